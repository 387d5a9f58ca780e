// What several backends hold of one model, behind the interfaces of one: a part of each, in the backends' order.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"

namespace llm {

struct CompositeWeights final : WeightStore {
  std::vector<std::unique_ptr<WeightStore>> parts;
};

/// One book-keeping, several storages: a block, or a slot, is the same number in all of them. Its bytes are the parts'
/// one after another.
struct CompositeStates : StateStore {
  std::size_t bytes_per_block() const override;
  void copy_block(std::int32_t from, std::int32_t to) override;
  void read_block(std::int32_t block, std::span<std::byte> dst) const override;
  void write_block(std::int32_t block, std::span<const std::byte> src) override;
  std::size_t bytes_per_slot() const override;
  void read_slot(std::int32_t slot, std::span<std::byte> dst) const override;
  void write_slot(std::int32_t slot, std::span<const std::byte> src) override;

  std::vector<std::unique_ptr<StateStore>> parts;
};

/// Null where a backend computes nothing.
struct CompositeWorkspace : Workspace {
  std::size_t bytes() const override;

  std::vector<std::unique_ptr<Workspace>> parts;
};

}  // namespace llm
