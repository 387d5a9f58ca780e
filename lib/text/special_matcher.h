// Finds special tokens in text: at each place the longest one that starts there, from left to right. Markup counts only
// where the text may hold any.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace llm {

/// What is found in stretches without markup.
enum class PlainStretches : std::uint8_t {
  AnyUserDefined,  ///< as other programs find them
  NoMarkup,        ///< user-defined tokens that formats are not made of
};

class SpecialMatcher {
 public:
  explicit SpecialMatcher(const Vocabulary&);

  struct Match {
    std::size_t at, length;  ///< at == text.size() if there is none
    Token token;
  };
  /// `plain` are the stretches without markup, ascending; those that were passed are taken off its front.
  Match next(std::string_view text, std::size_t from, std::span<const TextSpan>& plain, PlainStretches) const;

 private:
  struct Special {
    std::string_view text;
    Token token;
    bool user_defined, markup;
  };
  Match longest_at(std::string_view text, std::size_t at, std::size_t markup_end, PlainStretches) const;

  std::vector<Special> specials_;       ///< by text, each text once
  std::bitset<256> one_byte_;           ///< a special token is this byte
  std::bitset<256> first_byte_;         ///< or starts with it
  std::bitset<65536> first_two_bytes_;  ///< first << 8 | second
};

}  // namespace llm
