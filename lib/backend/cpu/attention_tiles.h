// How attention is cut into tasks: query heads, and tiles of tokens that share what is read of the cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backend/backend.h"

namespace llm::cpu {

/// Query heads of a task: all that share a KV head or, where these are many, as all are whose keys are latents, 8 to 16
/// that divide them, so that threads share the heads. Fewer would read its keys too often.
inline std::int32_t task_heads(std::int32_t all) {
  constexpr std::int32_t kMost = 16, kLeast = 8;
  for (std::int32_t n = kMost; n >= kLeast; --n)
    if (all > kMost && all % n == 0) return n;
  return all;
}

/// Tokens of a tile that take the same keys, as far as they see them.
inline constexpr std::int64_t kTileTokens = 16;

/// Tokens [begin, end) of a step, all of one sequence, and a group of heads.
struct AttentionTile {
  std::size_t sequence;
  std::int64_t begin, end;
  std::int64_t group;
};

/// The tiles of a step, for `groups` groups of heads. `sharing(span)`: the first so many tokens of a sequence take the
/// same keys; behind them each token is a tile.
template <class Sharing>
class AttentionTiles {
 public:
  AttentionTiles(const StepData& step, std::int64_t groups, const Sharing& sharing)
      : step_(step), groups_(groups), sharing_(sharing) {}

  std::int64_t count() const {
    std::int64_t n = 0;
    for (const SequenceSpan& s : step_.sequences) n += tiles(s) * groups_;
    return n;
  }
  AttentionTile tile(std::int64_t task) const {
    std::size_t sequence = 0;
    for (std::int64_t n; task >= (n = tiles(step_.sequences[sequence]) * groups_); ++sequence) task -= n;
    const SequenceSpan& s = step_.sequences[sequence];
    const std::int64_t number = tiles(s) - 1 - task / groups_;  // the longest first
    const std::int64_t all = sharing_(s), shared = shared_tiles(all);
    const std::int64_t begin = number < shared ? number * kTileTokens : all + number - shared;
    const std::int64_t end = number < shared ? std::min(all, begin + kTileTokens) : begin + 1;
    return {sequence, s.first_token + begin, s.first_token + end, task % groups_};
  }

 private:
  static std::int64_t shared_tiles(std::int64_t tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }
  std::int64_t tiles(const SequenceSpan& s) const {
    const std::int64_t all = sharing_(s);
    return shared_tiles(all) + s.n_tokens - all;
  }

  const StepData& step_;
  std::int64_t groups_;
  const Sharing& sharing_;
};

/// Of each token and head of a tile the largest score and the sum so far, as attention_add() keeps them.
class TileStates {
 public:
  static constexpr std::int64_t floats(std::int64_t tokens, std::int64_t heads) { return tokens * heads * 2; }

  TileStates(float* states, const AttentionTile& tile, std::int64_t heads)
      : states_(states), begin_(tile.begin), end_(tile.end), heads_(heads) {
    for (std::int64_t i = 0; i < (end_ - begin_) * heads_; ++i) {
      states_[2 * i] = -std::numeric_limits<float>::infinity();
      states_[2 * i + 1] = 0;
    }
  }
  /// fn(token, its states)
  template <class Fn>
  void for_each(const Fn& fn) const {
    for (std::int64_t t = begin_; t < end_; ++t) fn(t, states_ + floats(t - begin_, heads_));
  }

 private:
  float* states_;
  std::int64_t begin_, end_, heads_;
};

}  // namespace llm::cpu
