// How a program's step data lie in device memory: at fixed places, so that a recorded step finds the next one's.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/draw.h"
#include "backend/cuda/kernels/step_view.h"
#include "backend/cuda/step_staging.h"
#include "graph/graph.h"

namespace llm::cuda {

class StepBuffer {
 public:
  /// `table_stride`: blocks of the longest sequence; 0 for graphs without a cache. `drawn`: rows that a step may draw
  /// from. The staging outlives it.
  StepBuffer(const Bucket&, int table_stride, int drawn, const DrawMemory&, StepStaging&);

  /// Enqueues the copy; the rows that the bucket has and the step has not are filled so that they do no harm. `turn`:
  /// where what the step draws goes; what it takes of the step before is in the other place.
  void upload(const StepData&, int turn, cudaStream_t);
  StepView view() const;
  /// Of the step that was uploaded last.
  const std::vector<PromptSpan>& spans() const { return spans_; }

 private:
  std::int32_t* host(std::size_t offset) const { return host_ + offset; }

  void fill_tokens(std::span<const std::int32_t> tokens, int turn);
  /// Edits go behind what the step uses of the table; their end.
  std::size_t fill_rules(std::span<const DrawRule> rules, int turn, std::size_t used);

  Bucket bucket_;
  int table_stride_;
  DrawMemory draws_;
  /// Offsets; counts come first, edits of rules last.
  std::size_t runs_, rules_, tokens_, positions_, slots_, sequence_, out_rows_, table_, end_;
  StepStaging& staging_;
  std::int32_t* host_ = nullptr;  ///< of the step that is uploaded
  const std::int32_t* device_ = nullptr;
  std::vector<PromptSpan> spans_;
};

}  // namespace llm::cuda
