// A compiled grammar: one automaton over bytes per rule, whose edges may call rules. What every kind of constraint is
// compiled to, and all that the runtime knows.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "constrain/automaton.h"

namespace llm {

class Productions;
using ByteSet = std::bitset<256>;

class Grammar {
 public:
  struct State {
    std::uint32_t bytes_begin, bytes_end;  ///< of byte_edges
    std::uint32_t calls_begin, calls_end;  ///< of call_edges
    RuleId rule;
    bool accepting;
    bool returns_only;  ///< accepting, no edges, in a rule that is not counted: nothing to come back for
  };
  struct Rule {
    std::string name;
    StateId start;
    /// A counted rule is its automaton's language, repeated: no word of it begins another one and none is empty, so
    /// that a number says where a repetition stands. Its start has no incoming edges.
    bool counted;
    std::uint32_t min, max;  ///< max: kNoLimit if there is none
    ByteSet follow;          ///< bytes that can come after the rule, whoever called it
  };
  static constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

  /// Throws ErrorKind::Notation: left recursion, a root that matches nothing, more states than allowed.
  static Grammar compile(const Productions&, RuleId root);

  RuleId root() const { return 0; }
  const State& state(StateId s) const { return states_[s]; }
  const Rule& rule(RuleId r) const { return rules_[r]; }
  std::span<const State> states() const { return states_; }
  std::span<const Rule> rules() const { return rules_; }
  std::span<const Automaton::ByteEdge> bytes(const State& s) const {
    return std::span(byte_edges_).subspan(s.bytes_begin, s.bytes_end - s.bytes_begin);
  }
  std::span<const Automaton::CallEdge> calls(const State& s) const {
    return std::span(call_edges_).subspan(s.calls_begin, s.calls_end - s.calls_begin);
  }
  /// For -v: "3 rules, 57 states".
  std::string describe() const;

 private:
  friend class GrammarLayout;
  Grammar() = default;
  std::vector<State> states_;
  std::vector<Rule> rules_;
  std::vector<Automaton::ByteEdge> byte_edges_;
  std::vector<Automaton::CallEdge> call_edges_;
};

/// GBNF, llama.cpp's notation. `file` is for messages, empty for text from the command line.
/// Throws ErrorKind::Notation with line and column.
Grammar grammar_from_gbnf(std::string_view text, std::string_view file = {});
/// ECMAScript's syntax with Unicode, matched against the whole text.
Grammar grammar_from_regex(std::string_view pattern);
struct SchemaOptions {
  /// Properties of an object that its schema has no keyword for, where it lists others in `properties`.
  enum class Unmentioned : std::uint8_t {
    Forbidden,  ///< as llama.cpp has it: models invent them. Every text is valid all the same
    Allowed     ///< as the standard has it: every valid text can be written
  } unmentioned = Unmentioned::Forbidden;
};
/// JSON texts that a schema (draft 2020-12 and the keywords of earlier drafts) allows. Throws ErrorKind::Notation
/// naming the JSON pointer of every keyword that cannot be enforced; keywords that no draft knows get a warning.
Grammar grammar_from_json_schema(std::string_view text, Warnings&, SchemaOptions = {}, std::string_view file = {});
/// Any JSON object.
Grammar grammar_of_json_objects();
/// One of the texts, exactly.
Grammar grammar_from_choices(std::span<const std::string> choices);

}  // namespace llm
