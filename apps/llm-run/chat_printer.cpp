#include "chat_printer.h"

#include <algorithm>
#include <cstdlib>

#include "common/messages.h"
#include "common/output.h"

namespace llm::app {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";
constexpr std::string_view kDim = "\x1b[2m", kNormal = "\x1b[0m";

/// The longest end of `text` that `tag` could go on from.
std::size_t begun(std::string_view text, std::string_view tag) {
  std::size_t n = std::min(text.size(), tag.size() - 1);
  while (n > 0 && !tag.starts_with(text.substr(text.size() - n))) --n;
  return n;
}

}  // namespace

ShowReasoning default_reasoning_display() {
  if (!stdout_is_terminal()) return ShowReasoning::Hidden;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool plain = (no_color != nullptr && *no_color != 0) || term == nullptr || std::string_view(term) == "dumb";
  return plain ? ShowReasoning::AsText : ShowReasoning::Dimmed;
}

ChatPrinter::ChatPrinter(ShowReasoning show, Begins begins) : show_(show), terminal_(stdout_is_terminal()) {
  if (show_ == ShowReasoning::AsText) {
    part_ = Part::Answer;  // tags are text like any other
  } else if (begins == Begins::InReasoning) {
    begin_reasoning();
  }
}

void ChatPrinter::write(std::string_view text) {
  held_ += text;
  if (part_ == Part::Unknown) {
    const std::size_t start = std::min(held_.find_first_not_of(" \n\t"), held_.size());
    const std::string_view rest = std::string_view(held_).substr(start);
    if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) return;
    if (rest.starts_with(kOpen)) {
      held_.erase(0, start + kOpen.size());
      begin_reasoning();
    } else {
      part_ = Part::Answer;
    }
  }
  if (part_ == Part::Reasoning) {
    const std::size_t end = held_.find(kClose);
    pass_on(end == std::string::npos ? begun(held_, kClose) : held_.size() - end);
    if (end == std::string::npos) return;
    held_.erase(0, kClose.size());
    end_reasoning();
  }
  pass_on(0);
}

void ChatPrinter::finish() {
  pass_on(0);
  if (dimmed_) end_reasoning();
  out("\n");
}

/// All that is held but its last `keep` bytes.
void ChatPrinter::pass_on(std::size_t keep) {
  const std::size_t n = held_.size() - keep;
  if (part_ != Part::Reasoning || show_ != ShowReasoning::Hidden) emit(std::string_view(held_).substr(0, n));
  held_.erase(0, n);
}

void ChatPrinter::begin_reasoning() {
  part_ = Part::Reasoning;
  dimmed_ = show_ == ShowReasoning::Dimmed;
  if (dimmed_) write_stdout(kDim);
}

void ChatPrinter::end_reasoning() {
  part_ = Part::Answer;
  if (dimmed_) write_stdout(kNormal);
  dimmed_ = false;
}

void ChatPrinter::emit(std::string_view text) {
  if (!wrote_ && show_ != ShowReasoning::AsText)
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  const std::size_t end = text.find_last_not_of('\n') + 1;  // 0 if there are only line feeds
  if (end > 0) {
    out(std::string(line_feeds_, '\n').append(text.substr(0, end)));
    line_feeds_ = 0;
    wrote_ = true;
  }
  line_feeds_ += text.size() - end;
}

void ChatPrinter::out(std::string_view bytes) const {
  write_stdout(terminal_ ? terminal_safe(bytes) : std::string(bytes));
}

}  // namespace llm::app
