#include "backend/cuda/step_buffer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr std::size_t kCounts = 4;

void fill(std::int32_t* to, std::span<const std::int32_t> values, int capacity, std::int32_t rest) {
  std::fill(std::copy(values.begin(), values.end(), to), to + capacity, rest);
}

}  // namespace

StepBuffer::StepBuffer(const Bucket& bucket, int table_stride) : bucket_(bucket), table_stride_(table_stride) {
  std::size_t next = kCounts;
  const auto take = [&](int n) { return std::exchange(next, next + static_cast<std::size_t>(n)); };
  tokens_ = take(bucket.tokens);
  positions_ = take(bucket.tokens);
  slots_ = take(bucket.tokens);
  sequence_ = take(bucket.tokens);
  out_rows_ = take(bucket.outputs);
  table_ = take(0);
  end_ = next + static_cast<std::size_t>(bucket.sequences) * static_cast<std::size_t>(table_stride);
  pinned_ = PinnedBuffer(end_ * sizeof(std::int32_t));
  device_ = DeviceBuffer(end_ * sizeof(std::int32_t));
  std::fill(host(0), host(end_), 0);
}

void StepBuffer::upload(const StepData& step, cudaStream_t stream) {
  const auto tokens = static_cast<std::int32_t>(step.tokens.size());
  const std::int32_t counts[kCounts] = {tokens, static_cast<std::int32_t>(step.out_rows.size()),
                                        static_cast<std::int32_t>(step.sequences.size()), 0};
  std::copy(std::begin(counts), std::end(counts), host(0));
  fill(host(tokens_), step.tokens, bucket_.tokens, 0);
  fill(host(positions_), step.positions, bucket_.tokens, 0);
  fill(host(slots_), step.groups.empty() ? std::span<const std::int32_t>() : step.groups[0].slots, bucket_.tokens, -1);
  fill(host(out_rows_), step.out_rows, bucket_.outputs, 0);
  std::fill_n(host(sequence_), bucket_.tokens, -1);
  spans_.clear();
  std::size_t used = table_;
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceSpan& span = step.sequences[s];
    std::fill_n(host(sequence_) + span.first_token, span.n_tokens, static_cast<std::int32_t>(s));
    spans_.push_back({.first_token = span.first_token,
                      .n_tokens = span.n_tokens,
                      .first_position = span.kv_len - span.n_tokens,
                      .sequence = static_cast<std::int32_t>(s)});
    if (step.groups.empty() || table_stride_ == 0) continue;
    const StateGroup& group = step.groups[0];
    const std::int32_t blocks = (span.kv_len + kBlockPositions - 1) / kBlockPositions;
    check(blocks <= table_stride_ && blocks <= group.stride, "a sequence fits the cache's longest");
    std::int32_t* const row = host(table_ + s * static_cast<std::size_t>(table_stride_));
    std::copy_n(group.block_table.data() + s * static_cast<std::size_t>(group.stride), blocks, row);
    used = table_ + s * static_cast<std::size_t>(table_stride_) + static_cast<std::size_t>(blocks);
  }
  check_cuda(
      cudaMemcpyAsync(device_.data(), pinned_.data(), used * sizeof(std::int32_t), cudaMemcpyHostToDevice, stream),
      "copying a step's data");
}

StepView StepBuffer::view() const {
  return {.tokens = device(tokens_),
          .positions = device(positions_),
          .slots = device(slots_),
          .sequence = device(sequence_),
          .out_rows = device(out_rows_),
          .block_table = device(table_),
          .counts = device(0),
          .table_stride = table_stride_};
}

}  // namespace llm::cuda
