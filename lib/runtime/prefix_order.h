// The order in which prompts are run so that beginnings in common are computed once: a walk through the tree of their
// tokens, branches in the order in which they first appear. Prompts that have nothing in common keep their order.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

struct PrefixStep {
  std::size_t prompt;  ///< index of the prompt that is next
  /// Tokens that it begins with as the prompt before it does; no earlier prompt has more in common with it.
  std::size_t shared;
};

std::vector<PrefixStep> prefix_order(std::span<const std::span<const Token>> prompts);

}  // namespace llm
