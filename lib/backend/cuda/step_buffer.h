// A step's data in device memory, at fixed places, so that a recorded step finds the next one's.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/draw.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/graph.h"

namespace llm::cuda {

class StepBuffer {
 public:
  /// `table_stride`: blocks of the longest sequence; 0 for graphs without a cache.
  StepBuffer(const Bucket&, int table_stride, const DrawMemory&);

  /// Enqueues the copy; the rows that the bucket has and the step has not are filled so that they do no harm. The step
  /// two before must have ended. `turn`: where what the step draws goes; what it takes of the step before is in the
  /// other place.
  void upload(const StepData&, int turn, cudaStream_t);
  StepView view() const;
  /// Of the step that was uploaded last.
  const std::vector<PromptSpan>& spans() const { return spans_; }

 private:
  std::int32_t* host(std::size_t offset) const {
    return reinterpret_cast<std::int32_t*>(pinned_[pinned_turn_].data()) + offset;
  }
  const std::int32_t* device(std::size_t offset) const {
    return reinterpret_cast<const std::int32_t*>(device_.data()) + offset;
  }

  void fill_tokens(std::span<const std::int32_t> tokens, int turn);
  /// Edits go behind what the step uses of the table; their end.
  std::size_t fill_rules(std::span<const DrawRule> rules, int turn, std::size_t used);

  Bucket bucket_;
  int table_stride_;
  DrawMemory draws_;
  /// Offsets; counts come first, edits of rules last.
  std::size_t rules_, tokens_, positions_, slots_, sequence_, out_rows_, table_, end_;
  PinnedBuffer pinned_[2];  ///< in turns: the copy out of one may not have begun when the next step comes
  int pinned_turn_ = 0;
  DeviceBuffer device_;
  std::vector<PromptSpan> spans_;
};

}  // namespace llm::cuda
