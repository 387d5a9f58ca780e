// The model's text on its way to stdout: every piece at once, exactly one line feed at the end.
#pragma once

#include <string>
#include <string_view>

namespace llm::app {

class AnswerWriter {
 public:
  AnswerWriter();
  /// Line feeds wait until something follows them.
  void write(std::string_view text);
  void finish();

 private:
  void out(std::string_view bytes) const;
  bool terminal_;
  std::size_t line_feeds_ = 0;  ///< held back
};

}  // namespace llm::app
