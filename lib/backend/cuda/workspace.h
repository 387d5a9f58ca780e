// Memory that the programs of all buckets share: activations, and what is drawn.
#pragma once

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/draw.h"

namespace llm::cuda {

class CudaWorkspace final : public Workspace {
 public:
  /// For steps of at most `rows` rows of `n` logits.
  CudaWorkspace(std::size_t bytes, int rows, int n);
  std::size_t bytes() const override { return memory_.bytes() + best_.bytes() + drawn_.bytes() + arrivals_.bytes(); }
  std::size_t activation_bytes() const { return memory_.bytes(); }
  std::byte* data() const { return memory_.data(); }
  DrawMemory draws() const;
  /// The place of what the next step draws; the other one has what the step before drew.
  int next_turn() { return turn_ ^= 1; }

 private:
  DeviceBuffer memory_;
  int rows_;
  DeviceBuffer drawn_, best_, arrivals_;
  int turn_ = 0;
};

}  // namespace llm::cuda
