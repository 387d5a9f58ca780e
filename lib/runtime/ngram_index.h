// Where the end of a growing text stood before: for drafts that copy what followed there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

/// Lengths of the ends that are looked up, ascending. A longer one is worth more than a later one.
inline constexpr std::array<std::size_t, 6> kNgramLengths{2, 3, 4, 6, 10, 16};

/// Takes about 0.1 us a token, and for each length 8 to 16 bytes, whatever the text is.
class NgramIndex {
 public:
  struct Match {
    std::size_t length = 0;  ///< tokens by which the two places agree, counted up to kLongest; 0: there is no match
    std::size_t next = 0;    ///< the place in text() behind the earlier one
  };
  static constexpr std::size_t kLongest = 64;

  void clear();
  void append(Token);
  std::span<const Token> text() const { return text_; }
  /// The latest place before the end where the last n tokens stood, for the largest n of kNgramLengths that has one.
  Match match() const { return match_; }

 private:
  struct Entry {
    std::uint32_t check = 0;  ///< upper half of the hash
    std::uint32_t end = 0;    ///< the n-gram's last token is before this place; 0: the entry is free
  };
  Match enter(std::size_t end);
  Entry& entry_of(std::uint64_t hash);
  std::size_t agreeing(std::size_t a, std::size_t b) const;
  void grow();

  std::vector<Token> text_;
  std::vector<Entry> entries_;  ///< open addressing, a power of two, at most half full
  std::size_t used_ = 0;
  Match match_;
};

}  // namespace llm
