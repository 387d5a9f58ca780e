#include "runtime/composite_stores.h"

namespace llm {

std::size_t CompositeStates::bytes_per_block() const {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part->bytes_per_block();
  return bytes;
}

void CompositeStates::copy_block(std::int32_t from, std::int32_t to) {
  for (const auto& part : parts) part->copy_block(from, to);
}

void CompositeStates::read_block(std::int32_t block, std::span<std::byte> dst) const {
  for (const auto& part : parts) {
    part->read_block(block, dst.first(part->bytes_per_block()));
    dst = dst.subspan(part->bytes_per_block());
  }
}

void CompositeStates::write_block(std::int32_t block, std::span<const std::byte> src) {
  for (const auto& part : parts) {
    part->write_block(block, src.first(part->bytes_per_block()));
    src = src.subspan(part->bytes_per_block());
  }
}

std::size_t CompositeStates::bytes_per_slot() const {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part->bytes_per_slot();
  return bytes;
}

void CompositeStates::read_slot(std::int32_t slot, std::span<std::byte> dst) const {
  for (const auto& part : parts) {
    part->read_slot(slot, dst.first(part->bytes_per_slot()));
    dst = dst.subspan(part->bytes_per_slot());
  }
}

void CompositeStates::write_slot(std::int32_t slot, std::span<const std::byte> src) {
  for (const auto& part : parts) {
    part->write_slot(slot, src.first(part->bytes_per_slot()));
    src = src.subspan(part->bytes_per_slot());
  }
}

std::size_t CompositeWorkspace::bytes() const {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part == nullptr ? 0 : part->bytes();
  return bytes;
}

}  // namespace llm
