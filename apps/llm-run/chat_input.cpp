#include "chat_input.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "common/descriptor_io.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/signals.h"
#include "common/terminal.h"

namespace llm::app {
namespace {

using Outcome = LineEditor::Outcome;
/// What a terminal that hands over whole lines keeps of one (Linux: N_TTY_BUF_SIZE less its line feed).
constexpr std::size_t kTerminalLine = 4095;
constexpr std::string_view kPrompt = "> ", kContinued = "\u2026 ", kBlock = "\"\"\"";

std::string read_stdin() {
  std::array<char, 4096> bytes;
  const ssize_t n = read_some(STDIN_FILENO, bytes);
  if (n < 0 && errno == EBADF) return {};  // closed: whoever started us has nothing to say
  if (n < 0)
    throw Error(ErrorKind::Io,
                ErrorParts{.file = "stdin", .problem = std::string("cannot read: ") + std::strerror(errno)});
  return {bytes.data(), static_cast<std::size_t>(n)};
}

}  // namespace

LineEditor::Input MessageReader::line(std::string_view prompt) {
  if (editor_ != nullptr) return editor_->read(prompt);
  if (simple_io()) write_stderr(prompt);
  while (!ended_ && buffered_.find('\n') == std::string::npos) {
    if (!wait_for_input(STDIN_FILENO, stop_requested())) return {Outcome::Signalled, {}};
    const std::string more = read_stdin();
    ended_ = more.empty();
    buffered_ += more;
  }
  if (!std::exchange(begun_, true)) drop_byte_order_mark(buffered_);
  if (buffered_.empty()) return {Outcome::EndOfFile, {}};
  const std::size_t end = std::min(buffered_.find('\n'), buffered_.size());
  std::string text = buffered_.substr(0, end);
  buffered_.erase(0, end + 1);
  ++lines_;
  if (text.ends_with('\r')) text.pop_back();
  if (text.size() >= kTerminalLine && ::isatty(STDIN_FILENO) == 1) {
    print_error(Error(ErrorKind::Usage, "not sent: with --simple-io the terminal drops what is beyond " +
                                            number_text(kTerminalLine) + " bytes of a line"));
    return {Outcome::Cleared, {}};
  }
  return {Outcome::Line, std::move(text)};
}

LineEditor::Input MessageReader::next() {
  LineEditor::Input input = line(kPrompt);
  if (input.outcome != Outcome::Line) return input;
  std::string text = std::move(input.text);
  const std::size_t first = lines_;
  // What was pasted, or is called back from the history, has line feeds inside, which nobody can type.
  const bool pasted = input.begins_pasted, whole = pasted || text.find('\n') < text.find_last_not_of('\n');
  const bool block = !whole && text.starts_with(kBlock);
  if (block) text.erase(0, kBlock.size());
  for (;;) {
    if (block && text.ends_with(kBlock)) {
      text.resize(text.size() - kBlock.size());
      break;
    }
    if (!block) {
      if (text.ends_with('\n')) text.pop_back();  // of a paste
      if (whole || !text.ends_with('\\')) break;
      text.pop_back();
    }
    input = line(kContinued);
    if (input.outcome == Outcome::EndOfFile && editor_ == nullptr) {  // what there is counts
      if (block) note("the \"\"\" that begins the last message is never closed: it ends where stdin does");
      break;
    }
    const bool given_up = input.outcome == Outcome::CtrlC || input.outcome == Outcome::EndOfFile;
    if (given_up && editor_ != nullptr) editor_->write("\n");  // the next prompt goes below this one
    if (input.outcome != Outcome::Line) return {given_up ? Outcome::Cleared : input.outcome, {}};
    text += "\n" + input.text;
  }
  if (block && text.starts_with('\n')) text.erase(0, 1);
  if (block && text.ends_with('\n')) text.pop_back();
  if ((block || pasted) && text.starts_with('/')) text.insert(0, 1, '/');  // never a command
  const bool typed = editor_ != nullptr || ::isatty(STDIN_FILENO) == 1;
  warn_of_bytes(typed ? "what was typed" : "stdin", text, typed ? 1 : first);
  return {Outcome::Line, std::move(text)};
}

std::filesystem::path history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::filesystem::path(state) / "llm-run" / "history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return {};
  return std::filesystem::path(home) / ".local" / "state" / "llm-run" / "history";
}

}  // namespace llm::app
