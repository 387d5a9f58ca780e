// Sets of Unicode code points, and their UTF-8 as sequences of byte ranges: characters end here, automata know bytes
// only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

/// A set as ascending ranges that neither overlap nor touch. Surrogates are in no set: UTF-8 has no form for them.
class CodePoints {
 public:
  static constexpr char32_t kLast = 0x10ffff;
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };

  CodePoints() = default;
  CodePoints(std::initializer_list<Range>);
  static CodePoints all();
  static CodePoints one(char32_t c) { return {{c, c}}; }

  void add(char32_t first, char32_t last);
  void add(const CodePoints&);
  CodePoints complement() const;
  CodePoints intersection(const CodePoints&) const;

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t) const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CodePoints&) const = default;

 private:
  std::vector<Range> ranges_;
};

struct ByteRange {
  std::uint8_t first, last;
};
/// One to four byte ranges, one after another: all strings that they allow are UTF-8.
struct ByteSequence {
  std::size_t length;
  std::array<ByteRange, 4> bytes;
};
/// The UTF-8 of all code points of a set.
std::vector<ByteSequence> utf8_sequences(const CodePoints&);

/// Code points of UTF-8 text, for front ends: `bytes` is 0 at the end and where the text is not UTF-8.
struct Character {
  std::size_t bytes;
  char32_t code;
};
Character character_at(std::string_view text, std::size_t at);

}  // namespace llm
