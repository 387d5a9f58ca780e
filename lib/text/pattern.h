// A regular expression over valid UTF-8, compiled once (with PCRE2's just-in-time compiler where the machine has it).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

namespace llm {

/// Thread-safe: what one search needs beside the compiled pattern is in a PatternScratch of its own.
class PatternScratch {
 public:
  PatternScratch();
  ~PatternScratch();
  PatternScratch(const PatternScratch&) = delete;
  PatternScratch& operator=(const PatternScratch&) = delete;

 private:
  friend class Pattern;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Pattern {
 public:
  /// Perl syntax. `\s` and `\S` mean Unicode's White_Space property, `(?i:...)` Unicode's case folding.
  explicit Pattern(std::string_view expression);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  struct Match {
    std::size_t begin, end;
  };
  /// The first match at or after `from`. Throws ErrorKind::Runtime if the search runs out of a resource.
  std::optional<Match> find(std::string_view valid_utf8, std::size_t from, PatternScratch&) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llm
