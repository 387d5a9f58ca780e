#include "backend/cuda/step_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr std::size_t kCounts = 2;
constexpr std::size_t kRunWords = sizeof(SequenceRun) / sizeof(std::int32_t);
constexpr int kRuleWords = sizeof(DeviceRule) / sizeof(std::int32_t);
constexpr std::size_t kEditWords = 3;
static_assert(sizeof(LogitEdit) == kEditWords * sizeof(std::int32_t), "an edit as kernels/draw.cu reads it");

void fill(std::int32_t* to, std::span<const std::int32_t> values, int capacity, std::int32_t rest) {
  std::fill(std::copy(values.begin(), values.end(), to), to + capacity, rest);
}

}  // namespace

StepBuffer::StepBuffer(const Bucket& bucket, int table_stride, int drawn, const DrawMemory& draws, StepStaging& staging)
    : bucket_(bucket), table_stride_(table_stride), draws_(draws), staging_(staging) {
  static_assert(kCounts * sizeof(std::int32_t) % alignof(DeviceRule) == 0);
  std::size_t next = kCounts;
  const auto take = [&](int n) { return std::exchange(next, next + static_cast<std::size_t>(n)); };
  next = (next + kRunWords - 1) / kRunWords * kRunWords;  // read as wholes
  runs_ = take(bucket.sequences * static_cast<int>(kRunWords));
  rules_ = take(drawn * kRuleWords);
  tokens_ = take(bucket.tokens);
  positions_ = take(bucket.tokens);
  slots_ = take(bucket.tokens);
  sequence_ = take(bucket.tokens);
  out_rows_ = take(bucket.outputs);
  table_ = take(0);
  end_ = next + static_cast<std::size_t>(bucket.sequences) * static_cast<std::size_t>(table_stride) +
         static_cast<std::size_t>(drawn) * kMostEdits * kEditWords;
  device_ = staging.reserve(end_);
}

/// What the step before drew stands in the place that is not this step's.
void StepBuffer::fill_tokens(std::span<const std::int32_t> tokens, int turn) {
  fill(host(tokens_), tokens, bucket_.tokens, 0);
  const std::int32_t before = (turn ^ 1) * draws_.rows;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0) *host(tokens_ + i) = drawn_by(before + ~tokens[i]);
  }
}

std::size_t StepBuffer::fill_rules(std::span<const DrawRule> rules, int turn, std::size_t used) {
  auto* to = reinterpret_cast<DeviceRule*>(host(rules_));
  for (const DrawRule& r : rules) {
    check(
        r.top_k >= 1 && r.top_k <= kMostDrawn && std::ssize(r.edits) <= kMostEdits && std::ssize(r.edits) < r.n_tokens,
        "a rule for drawing within its bounds");
    *to++ = device_rule(r, turn, draws_.rows, used);
    if (!r.edits.empty()) std::memcpy(host(used), r.edits.data(), r.edits.size_bytes());
    used += r.edits.size() * kEditWords;
  }
  return used;
}

void StepBuffer::upload(const StepData& step, int turn, cudaStream_t stream) {
  host_ = staging_.next();
  const std::int32_t counts[kCounts] = {static_cast<std::int32_t>(step.tokens.size()),
                                        static_cast<std::int32_t>(step.out_rows.size())};
  std::copy(std::begin(counts), std::end(counts), host(0));
  fill_tokens(step.tokens, turn);
  fill(host(positions_), step.positions, bucket_.tokens, 0);
  fill(host(slots_), step.groups.empty() ? std::span<const std::int32_t>() : step.groups[0].slots, bucket_.tokens, -1);
  fill(host(out_rows_), step.out_rows, bucket_.outputs, 0);
  std::fill_n(host(sequence_), bucket_.tokens, -1);
  std::fill_n(reinterpret_cast<SequenceRun*>(host(runs_)), bucket_.sequences, SequenceRun());
  spans_.clear();
  std::size_t used = table_;
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const SequenceSpan& span = step.sequences[s];
    std::fill_n(host(sequence_) + span.first_token, span.n_tokens, static_cast<std::int32_t>(s));
    spans_.push_back({.first_token = span.first_token,
                      .n_tokens = span.n_tokens,
                      .first_position = span.kv_len - span.n_tokens,
                      .sequence = static_cast<std::int32_t>(s)});
    const StateMove move = step.states.empty() ? StateMove() : step.states[s];
    reinterpret_cast<SequenceRun*>(host(runs_))[s] = {span.first_token, span.n_tokens, move.from, move.to};
    if (step.groups.empty() || table_stride_ == 0) continue;
    const StateGroup& group = step.groups[0];
    const std::int32_t blocks = (span.kv_len + kBlockPositions - 1) / kBlockPositions;
    check(blocks <= table_stride_ && blocks <= group.stride, "a sequence fits the cache's longest");
    std::int32_t* const row = host(table_ + s * static_cast<std::size_t>(table_stride_));
    std::copy_n(group.block_table.data() + s * static_cast<std::size_t>(group.stride), blocks, row);
    used = table_ + s * static_cast<std::size_t>(table_stride_) + static_cast<std::size_t>(blocks);
  }
  used = fill_rules(step.draws, turn, used);
  staging_.send(device_, used, stream);
}

StepView StepBuffer::view() const {
  return {.tokens = device_ + tokens_,
          .positions = device_ + positions_,
          .slots = device_ + slots_,
          .sequence = device_ + sequence_,
          .out_rows = device_ + out_rows_,
          .block_table = device_ + table_,
          .runs = reinterpret_cast<const SequenceRun*>(device_ + runs_),
          .counts = device_,
          .rules = reinterpret_cast<const DeviceRule*>(device_ + rules_),
          .drawn = draws_.drawn,
          .table_stride = table_stride_};
}

}  // namespace llm::cuda
