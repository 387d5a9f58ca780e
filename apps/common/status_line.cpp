#include "common/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "common/columns.h"
#include "common/output.h"
#include "common/terminal_undo.h"

namespace llm::app {
namespace {

/// 0 if nobody knows. Asked each time: windows change.
int columns_of_stderr() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

constexpr const char* kToBlankLine = "\r\033[K";

}  // namespace

void draw_status_line(std::string_view text) {
  undo_on_signal(STDERR_FILENO, kToBlankLine);
  write_stderr(kToBlankLine + fitted_to(text, columns_of_stderr()));
}

void clear_status_line() {
  write_stderr(kToBlankLine);
  undo_on_signal(STDERR_FILENO, nullptr);
}

std::string fitted_to(std::string_view text, int columns) {
  return std::string(columns <= 0 ? text : fitting_prefix(text, static_cast<std::size_t>(columns) - 1));
}

}  // namespace llm::app
