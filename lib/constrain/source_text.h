// Text that somebody wrote by hand, and errors that say where in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"
#include "constrain/code_points.h"

namespace llm {

/// Notations nested more deeply are refused: what reads them calls itself.
inline constexpr std::size_t kMostNesting = 200;

class SourceText {
 public:
  /// `what` names the notation in messages: "grammar", "regex". `file` may be empty.
  SourceText(std::string_view what, std::string_view text, std::string_view file)
      : what_(what), text_(text), file_(file) {}

  std::string_view text() const { return text_; }
  /// 0 at the end, so that looking ahead needs no bounds.
  char peek(std::size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  bool at_end(std::size_t at) const { return at >= text_.size(); }
  /// The character at `at`; an error if there is none or it is not UTF-8.
  Character character(std::size_t at) const;

  /// ErrorKind::Notation: `FILE: grammar, line 3, column 14: problem, at "the text there"`.
  [[noreturn]] void fail(std::size_t at, const std::string& problem) const;
  /// "line 3"
  std::string line_of(std::size_t at) const;

 private:
  std::size_t line_begin(std::size_t at) const;

  std::string_view what_, text_, file_;
};

}  // namespace llm
