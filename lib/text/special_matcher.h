// Finds special tokens in text: at each place the longest one that starts there, from left to right.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace llm {

/// Which special tokens count: control tokens only where the caller says that the text may hold markup.
enum class SpecialScope : std::uint8_t { UserDefinedOnly, All };

class SpecialMatcher {
 public:
  explicit SpecialMatcher(const Vocabulary&);

  struct Match {
    std::size_t at, length;  ///< at == text.size() if there is none
    Token token;
  };
  Match next(std::string_view text, std::size_t from, SpecialScope) const;

 private:
  struct Special {
    std::string_view text;
    Token token;
    bool user_defined;
  };
  Match longest_at(std::string_view text, std::size_t at, SpecialScope) const;

  std::vector<Special> specials_;       ///< by text, each text once
  std::bitset<256> one_byte_;           ///< a special token is this byte
  std::bitset<256> first_byte_;         ///< or starts with it
  std::bitset<65536> first_two_bytes_;  ///< first << 8 | second
};

}  // namespace llm
