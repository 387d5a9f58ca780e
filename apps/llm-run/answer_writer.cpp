#include "answer_writer.h"

#include "common/output.h"
#include "common/terminal.h"

namespace llm::app {

AnswerWriter::AnswerWriter(TextEnd end) : end_(end), terminal_(stdout_is_terminal()) {}

void AnswerWriter::write(std::string_view text) {
  if (end_ == TextEnd::Exact) return out(text);
  const std::size_t end = text.find_last_not_of('\n') + 1;  // 0 if there are only line feeds
  if (end > 0) {
    out(std::string(line_feeds_, '\n').append(text.substr(0, end)));
    line_feeds_ = 0;
  }
  line_feeds_ += text.size() - end;
}

void AnswerWriter::finish() {
  if (end_ == TextEnd::LineFeed) out("\n");
}

/// A terminal gets no control characters that a model made up; a file or a pipe gets the exact bytes.
void AnswerWriter::out(std::string_view bytes) const { write_stdout(text_for(terminal_, bytes)); }

}  // namespace llm::app
