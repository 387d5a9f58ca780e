// The model's text on its way to stdout: every piece at once, exactly one line feed at the end unless the exact bytes
// are asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llm::app {

enum class TextEnd : std::uint8_t { LineFeed, Exact };

class AnswerWriter {
 public:
  explicit AnswerWriter(TextEnd end = TextEnd::LineFeed);
  /// Line feeds wait until something follows them, unless every byte counts.
  void write(std::string_view text);
  void finish();

 private:
  void out(std::string_view bytes) const;
  TextEnd end_;
  bool terminal_;
  std::size_t line_feeds_ = 0;  ///< held back
};

}  // namespace llm::app
