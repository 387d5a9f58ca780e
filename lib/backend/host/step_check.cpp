#include "backend/host/step_check.h"

#include <algorithm>

#include "base/error.h"

namespace llm::host {
namespace {

/// The rows of sequence `s` in a group: its table covers the cache, and every token is stored where the table says.
void check_group(const StepData& step, const StateGroup& group, std::size_t s) {
  const SequenceSpan& span = step.sequences[s];
  const std::int32_t blocks = (span.kv_len + kBlockPositions - 1) / kBlockPositions;
  check(blocks <= group.stride, "the block table covers the sequence");
  const std::int32_t* table = group.block_table.data() + s * static_cast<std::size_t>(group.stride);
  for (std::int32_t i = 0; i < span.n_tokens; ++i) {
    const auto token = static_cast<std::size_t>(span.first_token + i);
    const std::int32_t slot = group.slots[token];
    if (slot == -1) continue;
    const std::int32_t position = step.positions[token];
    check(slot == table[position / kBlockPositions] * kBlockPositions + position % kBlockPositions,
          "a token's slot is where the block table has its position");
  }
}

void check_sequences(const StepData& step) {
  std::int64_t next = 0;
  for (const SequenceSpan& span : step.sequences) {
    check(span.first_token == next && span.n_tokens > 0, "sequences are contiguous and not empty");
    check(span.kv_len >= span.n_tokens, "the cache holds the step's tokens");
    next += span.n_tokens;
    check(next <= std::ssize(step.tokens), "sequences end with the tokens");
    for (std::int32_t i = 0; i < span.n_tokens; ++i) {
      check(step.positions[static_cast<std::size_t>(span.first_token + i)] == span.kv_len - span.n_tokens + i,
            "a step's tokens are the last positions of their sequence");
    }
  }
  check(next == std::ssize(step.tokens), "every token belongs to a sequence");
}

/// Against the bucket, and the spans against each other.
StepRows check_step(const StepData& step, const Bucket& bucket) {
  check(!step.tokens.empty() && std::ssize(step.tokens) <= bucket.tokens, "a step's tokens fit the bucket");
  check(step.positions.size() == step.tokens.size(), "a position for each token");
  check(!step.sequences.empty() && std::ssize(step.sequences) <= bucket.sequences, "a step's sequences fit the bucket");
  check(std::ssize(step.out_rows) <= bucket.outputs, "a step's outputs fit the bucket");
  check_sequences(step);
  for (const StateGroup& group : step.groups) {
    check(group.slots.size() == step.tokens.size(), "a slot for each token");
    check(
        group.stride >= 0 && group.block_table.size() >= step.sequences.size() * static_cast<std::size_t>(group.stride),
        "a row of the block table for each sequence");
    for (std::size_t s = 0; s < step.sequences.size(); ++s) check_group(step, group, s);
  }
  std::int32_t last = -1;
  for (const std::int32_t row : step.out_rows) {
    check(row > last && row < std::ssize(step.tokens), "output rows are ascending token indices");
    last = row;
  }
  return {.tokens = std::ssize(step.tokens), .outputs = std::ssize(step.out_rows)};
}

/// The block tables name blocks of a cache of `n_blocks`.
void check_blocks(const StepData& step, std::int32_t n_blocks) {
  check(step.groups.size() == 1, "a step brings the cache's block table");
  const StateGroup& group = step.groups[0];
  for (std::size_t s = 0; s < step.sequences.size(); ++s) {
    const std::int32_t* row = group.block_table.data() + s * static_cast<std::size_t>(group.stride);
    const std::int32_t blocks = (step.sequences[s].kv_len + kBlockPositions - 1) / kBlockPositions;
    for (std::int32_t b = 0; b < blocks; ++b) {
      check(row[b] >= 0 && row[b] < n_blocks, "a block table names blocks of the cache");
    }
  }
}

/// The step moves the state of each of its sequences between slots of `n_slots`, none of them in two ways.
void check_states(const StepData& step, std::int32_t n_slots) {
  check(step.states.size() == step.sequences.size(), "a step moves the states of its sequences");
  for (std::size_t s = 0; s < step.states.size(); ++s) {
    const StateMove& move = step.states[s];
    const bool begins = step.sequences[s].kv_len == step.sequences[s].n_tokens;
    check(begins ? move.from == -1 : move.from >= 0 && move.from < n_slots,
          "the state of a sequence with tokens is in a slot");
    check(move.to >= 0 && move.to < n_slots, "a state goes to a slot");
    for (std::size_t other = 0; other < step.states.size(); ++other)
      check(other == s || (step.states[other].from != move.to && step.states[other].to != move.to),
            "a slot that is written is one sequence's");
  }
}

}  // namespace

StepCheck::StepCheck(const Graph& graph, std::int32_t n_blocks, std::int32_t n_slots)
    : bucket_(graph.bucket()), n_blocks_(n_blocks), n_slots_(n_slots) {
  const auto has = [&](ValueKind kind) {
    return std::ranges::any_of(graph.values(), [&](const ValueInfo& v) { return v.kind == kind; });
  };
  uses_cache_ = has(ValueKind::Cache);
  uses_states_ = has(ValueKind::Recurrent);
}

StepRows StepCheck::operator()(const StepData& step) const {
  const StepRows rows = check_step(step, bucket_);
  if (uses_cache_) check_blocks(step, n_blocks_);
  if (uses_states_) check_states(step, n_slots_);
  return rows;
}

}  // namespace llm::host
