// Memory that the programs of all buckets share: activations, steps' data, what is drawn, and weights that are not
// kept.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/draw.h"
#include "backend/cuda/step_staging.h"
#include "backend/cuda/weight_stream.h"

namespace llm::cuda {

/// Rows of logits that steps may draw from, of `n` each at most, and the device's memory for that.
struct DrawSize {
  int rows = 1, n = 1;
  std::size_t bytes() const;
};

class CudaWorkspace final : public Workspace {
 public:
  /// `bytes` of activations, for `at_once` steps on their way. Where weights are streamed, `readers` threads bring
  /// them.
  CudaWorkspace(std::size_t bytes, const DrawSize&, int at_once, const StreamSize& streamed, int readers);
  std::size_t bytes() const override;
  std::size_t activation_bytes() const { return memory_.bytes(); }
  std::byte* data() const { return memory_.data(); }
  DrawMemory draws() const;
  StepStaging& staging() { return staging_; }
  /// Null where no weights are streamed.
  WeightStream* stream() const { return stream_.get(); }
  /// The place of what the next step draws; the other one has what the step before drew.
  int next_turn() { return turn_ ^= 1; }

 private:
  DeviceBuffer memory_;
  StepStaging staging_;
  int rows_;
  DeviceBuffer drawn_, best_, arrivals_;
  int turn_ = 0;
  std::unique_ptr<WeightStream> stream_;
};

}  // namespace llm::cuda
