// A template's string: bytes of UTF-8, and for each of them whether the template or the outside wrote it. That is what
// keeps text from messages from becoming control tokens.
//
// A character begins at every byte that is no continuation byte, so that text which is not UTF-8 can be cut too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace llm::jinja {

enum class Origin : std::uint8_t {
  Template,  ///< literals of the template, and what is computed from nothing else
  User,      ///< messages, tools and other values from outside
};

/// What is made of parts is as little to be trusted as the least of them.
inline Origin combined(Origin a, Origin b) { return a == Origin::User ? a : b; }

/// Bytes up to `end` (from where the run before ends) have one origin.
struct Run {
  std::size_t end;
  Origin origin;
  bool operator==(const Run&) const = default;
};

class Str {
 public:
  Str() = default;
  explicit Str(std::string bytes, Origin origin = Origin::Template) : bytes_(std::move(bytes)), origin_(origin) {}

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }
  std::size_t size() const { return bytes_.size(); }
  /// Whether Jinja's filters declared it safe HTML: joined to others, it escapes them.
  bool markup() const { return markup_; }
  Str&& as_markup(bool markup) && {
    markup_ = markup;
    return std::move(*this);
  }

  void append(std::string_view bytes, Origin origin);
  void append(const Str& other) { append(other, 0, other.size()); }
  void append(const Str& other, std::size_t from, std::size_t count);
  /// Bytes [from, from + count), cut at the end; of the same markup.
  Str substr(std::size_t from, std::size_t count = std::string::npos) const;

  /// Never empty unless the string is; neighbours differ.
  std::vector<Run> runs() const;
  std::size_t n_runs() const { return std::max<std::size_t>(runs_.size(), 1); }
  Origin origin_at(std::size_t byte) const;
  /// User if any byte is.
  Origin origin() const;

  std::size_t length() const;  ///< in characters
  /// Where character `index` begins; size() if there are not as many.
  std::size_t offset(std::size_t index) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  ///< empty: all bytes are of origin_
  Origin origin_ = Origin::Template;
  bool markup_ = false;
};

using utf8::begins_character;
/// The byte after the character that begins at `at` < text.size().
std::size_t next_character(std::string_view text, std::size_t at);
std::size_t previous_character(std::string_view text, std::size_t at);
std::size_t count_characters(std::string_view text);

/// Walks through a string's origins without searching: `at` must not decrease.
class OriginCursor {
 public:
  explicit OriginCursor(const Str& s) : runs_(s.runs()) {}
  Origin at(std::size_t byte) {
    while (run_ + 1 < runs_.size() && byte >= runs_[run_].end) ++run_;
    return runs_.empty() ? Origin::Template : runs_[run_].origin;
  }

 private:
  std::vector<Run> runs_;
  std::size_t run_ = 0;
};

/// The first occurrence of `needle` at or after `from`, in time linear in the text; npos if there is none.
std::size_t find(std::string_view text, std::string_view needle, std::size_t from = 0);
/// The last occurrence that ends at or before `end`.
std::size_t rfind(std::string_view text, std::string_view needle, std::size_t end = std::string_view::npos);

}  // namespace llm::jinja
