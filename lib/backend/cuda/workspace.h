// Memory that the programs of all buckets share: activations, what is drawn, and weights that are not kept.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/draw.h"
#include "backend/cuda/weight_stream.h"

namespace llm::cuda {

class CudaWorkspace final : public Workspace {
 public:
  /// For steps of at most `rows` rows of `n` logits. Where weights are streamed, `readers` threads bring them.
  CudaWorkspace(std::size_t bytes, int rows, int n, const StreamSize& streamed, int readers);
  std::size_t bytes() const override;
  std::size_t activation_bytes() const { return memory_.bytes(); }
  std::byte* data() const { return memory_.data(); }
  DrawMemory draws() const;
  /// Null where no weights are streamed.
  WeightStream* stream() const { return stream_.get(); }
  /// The place of what the next step draws; the other one has what the step before drew.
  int next_turn() { return turn_ ^= 1; }

 private:
  DeviceBuffer memory_;
  int rows_;
  DeviceBuffer drawn_, best_, arrivals_;
  int turn_ = 0;
  std::unique_ptr<WeightStream> stream_;
};

}  // namespace llm::cuda
