// Expressions become automata: repetitions are unrolled or counted, small rules are inlined.
#pragma once

#include <string>
#include <vector>

#include "constrain/expression.h"

namespace llm {

/// A rule while a grammar is compiled.
struct BuiltRule {
  std::string name;
  Automaton automaton;
  bool counted = false;
  std::uint64_t min = 1, max = 1;
  bool built = false;
  bool inlined = false;  ///< callers hold copies of it
};

/// Automata of all rules that `root` needs. Declared rules keep their ids, those of counted repetitions follow.
std::vector<BuiltRule> build_rules(const Productions&, RuleId root);

}  // namespace llm
