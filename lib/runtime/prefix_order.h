// The order in which prompts are run. So that beginnings in common are computed once it is a walk through the tree of
// their tokens, branches in the order in which they first appear; prompts that have nothing in common keep their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

/// A shorter beginning in common is computed again: sharing it would copy a block of the cache.
inline constexpr std::size_t kLeastShared = 16;

struct PrefixStep {
  std::size_t prompt;  ///< index of the prompt that is next
  /// Tokens that it has from the prompt before it, since both begin with them: all but its last one, which gives the
  /// logits; none if they are fewer than kLeastShared. By beginnings, it could have more from no earlier prompt.
  std::size_t shared;
};

enum class RowOrder : std::uint8_t {
  ByBeginning,
  AsGiven,  ///< for results that are wanted in this order: a row ends soon after those before it
};

std::vector<PrefixStep> prefix_order(std::span<const std::span<const Token>> prompts, RowOrder = RowOrder::ByBeginning);

}  // namespace llm
