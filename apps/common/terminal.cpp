#include "common/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/messages.h"
#include "common/output.h"

namespace llm::app {
namespace {

Colours g_colours = Colours::Auto;
bool g_simple = false, g_raw = false;

/// Other terminals would show the sequences that these obey.
bool obeys_sequences() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) != "dumb";
}

bool colours_on(bool terminal) {
  if (g_colours != Colours::Auto) return g_colours == Colours::On;
  const char* no_color = std::getenv("NO_COLOR");
  return terminal && !g_simple && obeys_sequences() && (no_color == nullptr || *no_color == 0);
}

}  // namespace

void set_colours(Colours colours) { g_colours = colours; }
bool stdout_has_colours() { return colours_on(stdout_is_terminal()); }
bool stderr_has_colours() { return colours_on(stderr_is_terminal()); }

void set_simple_io() { g_simple = true; }
bool simple_io() { return g_simple || (::isatty(STDIN_FILENO) == 1 && !obeys_sequences()); }
bool stderr_redraws() { return stderr_is_terminal() && !g_simple && obeys_sequences() && !log_is_json(); }

std::size_t text_width(int fd) {
  constexpr std::size_t kWidth = 80, kLeastWidth = 60, kMostWidth = 120;
  winsize size{};
  if (::isatty(fd) != 1 || ::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWidth;
  return std::clamp<std::size_t>(size.ws_col, kLeastWidth, kMostWidth);
}

void set_raw_text() { g_raw = true; }
std::string text_for(bool terminal, std::string_view text) {
  return terminal && !g_raw ? terminal_safe(text) : std::string(text);
}

}  // namespace llm::app
