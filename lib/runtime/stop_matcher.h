// Finds stop strings in a text that comes in pieces, holding back no more than what may become one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// The text ends before the stop string that is complete first; of several that end at the same byte, before the
/// longest. An automaton over bytes (Aho and Corasick, 1975), so that neither the strings' number nor how they overlap
/// matters. A copy is cheap and is how to go back: it stands where the original stood.
class StopMatcher {
 public:
  /// No string may be empty; the list may.
  explicit StopMatcher(const std::vector<std::string>& strings);

  /// The text that is certain now: all so far but what was given out and the longest end that begins a stop string.
  /// Nothing after a match.
  std::string push(std::string_view text);
  /// What was held back, when no more text comes.
  std::string finish();
  /// The index of the string that was found.
  std::optional<std::size_t> matched() const { return matched_; }

 private:
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> next;
    std::uint32_t shorter = 0;         ///< the node of the longest proper end of this one's text that begins a string
    std::uint32_t depth = 0;           ///< bytes of its text
    std::optional<std::size_t> found;  ///< the longest string that its text ends in
  };
  using Automaton = std::vector<Node>;
  static Automaton build(const std::vector<std::string>& strings);
  static std::optional<std::uint32_t> child(const Node&, char byte);
  static std::uint32_t step(const Automaton&, std::uint32_t from, char byte);

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const std::vector<std::string>> strings_;
  std::uint32_t node_ = 0;
  std::string held_;
  std::optional<std::size_t> matched_;
};

}  // namespace llm
