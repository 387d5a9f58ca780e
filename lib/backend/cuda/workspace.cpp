#include "backend/cuda/workspace.h"

#include <cstdint>

namespace llm::cuda {

namespace {

std::size_t drawn_bytes(const DrawSize& s) { return 2 * static_cast<std::size_t>(s.rows) * sizeof(std::int32_t); }
std::size_t best_bytes(const DrawSize& s) {
  return static_cast<std::size_t>(s.rows) * static_cast<std::size_t>(draw_parts(s.n)) * kMostDrawn *
         sizeof(std::uint64_t);
}
std::size_t arrivals_bytes(const DrawSize& s) { return static_cast<std::size_t>(s.rows) * sizeof(std::uint32_t); }

}  // namespace

std::size_t DrawSize::bytes() const { return drawn_bytes(*this) + best_bytes(*this) + arrivals_bytes(*this); }

CudaWorkspace::CudaWorkspace(std::size_t bytes, const DrawSize& draws, int at_once, const StreamSize& streamed,
                             int readers)
    : memory_(bytes),
      staging_(at_once),
      rows_(draws.rows),
      drawn_(drawn_bytes(draws)),
      best_(best_bytes(draws)),
      arrivals_(arrivals_bytes(draws)),
      stream_(streamed.slot == 0 ? nullptr : std::make_unique<WeightStream>(streamed, readers)) {
  for (const DeviceBuffer* b : {&drawn_, &arrivals_}) fill_device(b->data(), 0, b->bytes(), "clearing memory of draws");
}

std::size_t CudaWorkspace::bytes() const {
  return memory_.bytes() + staging_.device_bytes() + best_.bytes() + drawn_.bytes() + arrivals_.bytes() +
         (stream_ ? stream_->size().bytes() : 0);
}

DrawMemory CudaWorkspace::draws() const {
  return {.drawn = reinterpret_cast<std::int32_t*>(drawn_.data()),
          .best = reinterpret_cast<std::uint64_t*>(best_.data()),
          .arrivals = reinterpret_cast<std::uint32_t*>(arrivals_.data()),
          .rows = rows_};
}

}  // namespace llm::cuda
