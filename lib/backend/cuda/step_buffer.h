// A step's data in device memory, at fixed places, so that a recorded step finds the next one's.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/graph.h"

namespace llm::cuda {

class StepBuffer {
 public:
  /// `table_stride`: blocks of the longest sequence; 0 for graphs without a cache.
  StepBuffer(const Bucket&, int table_stride);

  /// Enqueues the copy; the rows that the bucket has and the step has not are filled so that they do no harm. The step
  /// before must have ended.
  void upload(const StepData&, cudaStream_t);
  StepView view() const;
  /// Of the step that was uploaded last.
  const std::vector<PromptSpan>& spans() const { return spans_; }

 private:
  std::int32_t* host(std::size_t offset) const { return reinterpret_cast<std::int32_t*>(pinned_.data()) + offset; }
  const std::int32_t* device(std::size_t offset) const {
    return reinterpret_cast<const std::int32_t*>(device_.data()) + offset;
  }

  Bucket bucket_;
  int table_stride_;
  std::size_t tokens_, positions_, slots_, sequence_, out_rows_, table_, end_;  ///< offsets; counts come first
  PinnedBuffer pinned_;
  DeviceBuffer device_;
  std::vector<PromptSpan> spans_;
};

}  // namespace llm::cuda
