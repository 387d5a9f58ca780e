// What vocabulary model `hybriddna` adds to `gpt2`: between <dna> and </dna> text is a sequence of bases, six to a
// token.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/vocabulary.h"

namespace llm {

/// The private-use character that ends the token string of six bases, which is else the string of a common token.
inline constexpr std::string_view kSixBasesMark = "\xEE\x80\x80";

class DnaVocabulary {
 public:
  /// Nothing if the vocabulary lacks <dna>, </dna> or <oov> as tokens that text can become.
  static std::optional<DnaVocabulary> find(const Vocabulary&);

  struct Part {
    TextSpan bytes;  ///< of the text
    Token token;     ///< kNoToken: to be encoded as any text
  };
  /// A text as its parts, in order. Small letters count as capitals; the last six bases are filled up with A; six that
  /// are no token become <oov>.
  std::vector<Part> split(std::string_view text) const;

 private:
  Token six_bases(std::string_view) const;

  Token open_, close_, unknown_;
  std::unordered_map<std::string, Token> six_;
};

}  // namespace llm
