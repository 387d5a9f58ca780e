#include "answer_printer.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/messages.h"
#include "common/output.h"
#include "common/terminal.h"
#include "common/terminal_undo.h"

namespace llm::app {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kNormal = "\x1b[0m";
constexpr const char* kNormalLine = "\x1b[0m\n";
constexpr std::string_view kOpen = "<think>\n", kClose = "\n</think>";

}  // namespace

ThinkingStyle thinking_style(ShowThinking show) {
  switch (show) {
    case ShowThinking::Hide:
      return ThinkingStyle::Hidden;
    case ShowThinking::Stderr:
      return stderr_has_colours() ? ThinkingStyle::StderrDimmed : ThinkingStyle::StderrPlain;
    case ShowThinking::Auto:
      if (!stdout_is_terminal()) return ThinkingStyle::Hidden;
      break;
    case ShowThinking::Stdout:
      break;
  }
  return stdout_has_colours() ? ThinkingStyle::Dimmed : ThinkingStyle::Tagged;
}

void ThinkingWriter::write(std::string_view text) {
  if (style_ == ThinkingStyle::Hidden || text.empty()) return;
  if (!open_) {
    if (dimmed()) {
      undo_on_signal(fd(), kNormalLine);
      mark(kDim);
    }
    if (style_ == ThinkingStyle::Tagged) mark(kOpen);
    open_ = true;
  }
  out(text);
}

void ThinkingWriter::end() {
  if (!open_) return;
  break_off();
  if (!on_stderr()) mark("\n\n");
}

void ThinkingWriter::break_off() {
  if (!open_) return;
  if (dimmed()) {
    mark(kNormal);
    undo_on_signal(fd(), nullptr);
  }
  if (style_ == ThinkingStyle::Tagged) mark(kClose);
  if (on_stderr()) mark("\n");
  open_ = false;
}

int ThinkingWriter::fd() const { return on_stderr() ? STDERR_FILENO : STDOUT_FILENO; }

/// What the model wrote: a terminal gets no control characters of it.
void ThinkingWriter::out(std::string_view text) const {
  const bool terminal = on_stderr() ? stderr_is_terminal() : stdout_is_terminal();
  mark(text_for(terminal, text));
}

void ThinkingWriter::mark(std::string_view bytes) const {
  if (on_stderr()) {
    write_stderr(bytes);
  } else {
    write_stdout(bytes);
  }
}

AnswerPrinter::AnswerPrinter(ThinkingStyle style, Start start, TextEnd end)
    : thinking_(style), text_(end), start_(start) {}

void AnswerPrinter::write(const AnswerText& piece) {
  thinking_.write(piece.thinking);
  std::string_view text = piece.text;
  if (!began_ && start_ == Start::WithoutLineFeeds) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  }
  if (text.empty()) return;
  thinking_.end();
  began_ = true;
  text_.write(text);
}

void AnswerPrinter::finish() {
  thinking_.break_off();
  text_.finish();
}

}  // namespace llm::app
