// Properties of rules that follow from those of the rules that they call.
#pragma once

#include <cstddef>

namespace llm {

/// Calls `visit(i)`, which says whether something changed, for all i below n until nothing does. Downwards and upwards
/// in turns: a grammar has its rules before those that call them or behind them, and either way a few passes do.
template <class Visit>
void visit_until_stable(std::size_t n, const Visit& visit) {
  bool down = true;
  for (bool changed = true; changed; down = !down) {
    changed = false;
    for (std::size_t i = 0; i < n; ++i) changed |= visit(down ? n - 1 - i : i);
  }
}

}  // namespace llm
