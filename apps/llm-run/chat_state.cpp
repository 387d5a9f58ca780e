#include "chat_state.h"

#include <unistd.h>

#include "common/messages.h"
#include "common/terminal.h"

namespace llm::app {

void ChatState::tell(const std::string& text) const {
  const std::string safe = terminal_safe(text);
  if (editor != nullptr) {
    editor->write(safe);
  } else if (log_is_json()) {
    show(std::string_view(text).substr(0, text.find_last_not_of('\n') + 1));
  } else {
    print_text(text);
  }
}

void ChatState::tell_failure(const Error& error) {
  print_error(error);
  if (!failure) failure = static_cast<int>(error.kind());
}

std::size_t ChatState::width() const { return text_width(editor != nullptr ? STDIN_FILENO : STDERR_FILENO); }

bool ends_only_the_turn(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::Io:
    case ErrorKind::Internal:
    case ErrorKind::Device:
      return false;
    default:
      return true;
  }
}

}  // namespace llm::app
