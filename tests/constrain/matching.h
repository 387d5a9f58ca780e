// Whole texts against compiled grammars, byte by byte.
#pragma once

#include <string>
#include <string_view>

#include "constrain/grammar.h"
#include "constrain/stacks.h"

namespace llm::test {

inline bool matches(const Grammar& grammar, std::string_view text) {
  Stacks stacks(grammar);
  Stacks::StandingId at = stacks.begin();
  for (const char c : text) {
    if (at == Stacks::kNowhere) return false;
    at = stacks.step(at, static_cast<std::uint8_t>(c));
  }
  return stacks.standing(at).complete;
}

/// Some text that begins so may be whole.
inline bool may_begin(const Grammar& grammar, std::string_view text) {
  Stacks stacks(grammar);
  Stacks::StandingId at = stacks.begin();
  for (const char c : text) at = at == Stacks::kNowhere ? at : stacks.step(at, static_cast<std::uint8_t>(c));
  return at != Stacks::kNowhere;
}

/// What the error of kind Grammar says; empty if there is none.
template <class Function>
std::string grammar_error(const Function& function) {
  try {
    function();
  } catch (const Error& e) {
    return e.kind() == ErrorKind::Notation ? e.what() : std::string("another kind: ") + e.what();
  }
  return {};
}

}  // namespace llm::test
