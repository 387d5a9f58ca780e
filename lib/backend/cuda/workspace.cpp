#include "backend/cuda/workspace.h"

#include <cstdint>

namespace llm::cuda {

CudaWorkspace::CudaWorkspace(std::size_t bytes, int rows, int n, const StreamSize& streamed, int readers)
    : memory_(bytes),
      rows_(rows),
      drawn_(2 * static_cast<std::size_t>(rows) * sizeof(std::int32_t)),
      best_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(draw_parts(n)) * kMostDrawn *
            sizeof(std::uint64_t)),
      arrivals_(static_cast<std::size_t>(rows) * sizeof(std::uint32_t)),
      stream_(streamed.slot == 0 ? nullptr : std::make_unique<WeightStream>(streamed, readers)) {
  for (const DeviceBuffer* b : {&drawn_, &arrivals_}) fill_device(b->data(), 0, b->bytes(), "clearing memory of draws");
}

std::size_t CudaWorkspace::bytes() const {
  return memory_.bytes() + best_.bytes() + drawn_.bytes() + arrivals_.bytes() + (stream_ ? stream_->size().bytes() : 0);
}

DrawMemory CudaWorkspace::draws() const {
  return {.drawn = reinterpret_cast<std::int32_t*>(drawn_.data()),
          .best = reinterpret_cast<std::uint64_t*>(best_.data()),
          .arrivals = reinterpret_cast<std::uint32_t*>(arrivals_.data()),
          .rows = rows_};
}

}  // namespace llm::cuda
