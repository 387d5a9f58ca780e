// An answer as text for people: its thinking, then what it says. Each goes out at once, and the thinking only where it
// is wanted.
#pragma once

#include <cstdint>
#include <string_view>

#include "answer_writer.h"
#include "reasoning_options.h"
#include "runtime/answer.h"

namespace llm::app {

/// Where thinking goes and how it looks.
enum class ThinkingStyle : std::uint8_t {
  Hidden,
  Dimmed,  ///< on stdout, a terminal
  Tagged,  ///< on stdout, between <think> and </think>, whatever the model's marks are
  StderrDimmed,
  StderrPlain,
};
/// By where the streams lead, NO_COLOR and TERM.
ThinkingStyle thinking_style(ShowThinking);

class ThinkingWriter {
 public:
  explicit ThinkingWriter(ThinkingStyle style) : style_(style) {}
  void write(std::string_view text);
  /// Before the answer, and at the end: nothing if no thinking came.
  void end();
  /// The same, where an answer does not follow.
  void break_off();

 private:
  void out(std::string_view text) const;
  void mark(std::string_view bytes) const;
  bool on_stderr() const { return style_ == ThinkingStyle::StderrDimmed || style_ == ThinkingStyle::StderrPlain; }
  int fd() const;
  bool dimmed() const { return style_ == ThinkingStyle::Dimmed || style_ == ThinkingStyle::StderrDimmed; }

  ThinkingStyle style_;
  bool open_ = false;
};

class AnswerPrinter {
 public:
  enum class Start : std::uint8_t { AsItIs, WithoutLineFeeds };
  AnswerPrinter(ThinkingStyle, Start, TextEnd = TextEnd::LineFeed);
  void write(const AnswerText&);
  void finish();

 private:
  ThinkingWriter thinking_;
  AnswerWriter text_;
  Start start_;
  bool began_ = false;
};

}  // namespace llm::app
