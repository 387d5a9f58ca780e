#include "runtime/step_work.h"

#include <algorithm>

namespace llm {

void StepWork::clear() {
  for (auto* v : {&tokens_, &positions_, &slots_, &out_rows_, &table_}) v->clear();
  spans_.clear();
  moves_.clear();
  ids_.clear();
}

void StepWork::add(const Reading& r, std::size_t first, std::size_t n, Sequences& sequences, StateStore& store,
                   const std::function<void()>& settle) {
  const std::span<const Token> tokens = r.tokens.subspan(first, n);
  copies_.clear();
  const Sequences::Appended at = sequences.append(r.sequence, tokens, slots_, copies_);
  if (!copies_.empty()) settle();
  for (const KvCache::BlockCopy& c : copies_) store.copy_block(c.from, c.to);
  spans_.push_back({.first_token = static_cast<std::int32_t>(tokens_.size()),
                    .n_tokens = static_cast<std::int32_t>(n),
                    .kv_len = static_cast<std::int32_t>(at.position + std::ssize(tokens))});
  ids_.push_back(r.sequence);
  if (sequences.recurrent()) moves_.push_back(at.move);
  for (std::size_t i = 0; i < n; ++i) {
    const bool last = first + i + 1 == r.tokens.size();
    if ((r.logits == Logits::All && first + i >= r.again) || (r.logits == Logits::Last && last))
      out_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(tokens[i]);
    positions_.push_back(static_cast<std::int32_t>(at.position + static_cast<std::int64_t>(i)));
  }
}

void StepWork::want_last() { out_rows_.push_back(static_cast<std::int32_t>(tokens_.size() - 1)); }

StepData StepWork::data(const KvCache& cache) {
  std::size_t stride = 0;
  for (const SequenceId id : ids_) stride = std::max(stride, cache.blocks(id).size());
  table_.assign(stride * ids_.size(), -1);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const auto blocks = cache.blocks(ids_[i]);
    std::copy(blocks.begin(), blocks.end(), table_.begin() + static_cast<std::ptrdiff_t>(i * stride));
  }
  group_ = {.block_table = table_, .stride = static_cast<std::int32_t>(stride), .slots = slots_};
  return {.tokens = tokens_,
          .positions = positions_,
          .sequences = spans_,
          .groups = {&group_, 1},
          .out_rows = out_rows_,
          .states = moves_};
}

}  // namespace llm
