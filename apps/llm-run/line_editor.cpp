#include "line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "common/columns.h"
#include "common/descriptor_io.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/signals.h"
#include "quiet_terminal.h"

namespace llm::app {
namespace {

constexpr int kHistoryEntries = 1000;
constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l", kPasteEnd = "\x1b[201~";
constexpr wchar_t kCtrlC = L'\x03';

std::atomic<bool> g_continued{false}, g_resized{false};
void note_continued(int) {
  g_continued.store(true);
  const int error = errno;
  quiet_terminal_again();
  errno = error;
}
void note_resized(int) { g_resized.store(true); }

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

/// libedit measures characters by the locale. Where none is set, or one of single bytes, UTF-8 is the better guess.
void choose_locale() {
  const auto utf8 = [] { return MB_CUR_MAX > 1; };
  if (std::setlocale(LC_CTYPE, "") == nullptr || !utf8()) std::setlocale(LC_CTYPE, "C.UTF-8");
}

/// While a line is typed Ctrl-C is a key, and carriage returns and line feeds are what they are: of what is pasted both
/// together may be a line's end. libedit, which sets the terminal up and restores it, leaves a signal and exchanges
/// them.
void make_keys_of_controls(int fd) {
  termios state{};
  if (::tcgetattr(fd, &state) != 0 || (state.c_lflag & ICANON) != 0) return;
  constexpr tcflag_t kExchanged = ICRNL | INLCR;
  if (state.c_cc[VINTR] == _POSIX_VDISABLE && (state.c_iflag & kExchanged) == 0) return;
  state.c_cc[VINTR] = _POSIX_VDISABLE;
  state.c_iflag &= ~kExchanged;
  ::tcsetattr(fd, TCSADRAIN, &state);
}

/// Rows that the text fills before the one of its end; rather one too few than one too many.
int rows_above_end(std::wstring_view text, int width) {
  int rows = 0, column = 0;
  for (const wchar_t c : text) {
    const int columns = c == L'\n' ? width + 1 : columns_of(static_cast<char32_t>(c));
    if (column + columns > width) {
      ++rows;
      column = 0;
    }
    if (c != L'\n') column += columns;
  }
  return rows;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// A text as the line can have it: U+FFFD for what is not UTF-8, of controls only line ends and tabs.
std::string as_typed(std::string_view text) {
  std::string typed;
  while (!text.empty()) {
    const utf8::Unit unit = utf8::unit_at(text, 0);
    typed += unit.form == utf8::Form::Valid ? text.substr(0, unit.length) : utf8::kReplacement;
    text.remove_prefix(unit.length);
  }
  std::erase_if(typed,
                [](char b) { return (static_cast<unsigned char>(b) < 0x20 && b != '\n' && b != '\t') || b == 0x7f; });
  return typed;
}

}  // namespace

struct LineEditor::Impl {
  LineEditorOptions options;
  File in, out;
  EditLine* el = nullptr;
  History* history = nullptr;
  std::string prompt;
  std::optional<Outcome> key;  ///< what a key decided, beside the line
  std::string pasted;          ///< several lines, at the beginning of the line
  std::string unread;          ///< bytes of the terminal that are no character yet

  ~Impl() {
    if (el != nullptr) el_end(el);
    if (history != nullptr) history_end(history);
  }
  void start();
  void load_history();
  std::string line() const;
  void replace(const std::string& text);
  void write(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), out.get());
    std::fflush(out.get());
  }
  unsigned char complete();
  void take_terminal_back();
  void fit_to_window();
  bool goes_on() const;
  int columns() const;
  std::wstring shown_before_cursor() const;

  static Impl& of(EditLine* el) {
    void* data = nullptr;
    el_get(el, EL_CLIENTDATA, &data);
    return *static_cast<Impl*>(data);
  }
  static char* on_prompt(EditLine* el) { return of(el).prompt.data(); }
  static int on_read(EditLine* el, wchar_t* c);
  static unsigned char on_ctrl_c(EditLine* el, int);
  static unsigned char on_paste(EditLine* el, int);
  static unsigned char on_edit(EditLine* el, int);
  static unsigned char on_tab(EditLine* el, int) { return of(el).complete(); }
};

void LineEditor::Impl::start() {
  choose_locale();
  el = el_init("llm-run", in.get(), out.get(), out.get());
  if (el == nullptr) throw Error(ErrorKind::Runtime, "the terminal cannot be used for editing lines");
  el_set(el, EL_CLIENTDATA, this);
  el_set(el, EL_EDITOR, "emacs");
  el_set(el, EL_SIGNAL, 0);
  el_set(el, EL_GETCFN, on_read);
  el_set(el, EL_PROMPT, on_prompt);
  // The narrow form would copy names that nothing frees.
  el_wset(el, EL_ADDFN, L"llm-interrupt", L"clears the line", on_ctrl_c);
  el_wset(el, EL_ADDFN, L"llm-paste", L"takes in what is pasted", on_paste);
  el_wset(el, EL_ADDFN, L"llm-edit", L"opens $EDITOR", on_edit);
  el_wset(el, EL_ADDFN, L"llm-complete", L"completes commands and paths", on_tab);
  el_set(el, EL_BIND, "^C", "llm-interrupt", nullptr);
  el_set(el, EL_BIND, "\\e[200~", "llm-paste", nullptr);
  el_set(el, EL_BIND, "^G", "llm-edit", nullptr);
  el_set(el, EL_BIND, "^I", "llm-complete", nullptr);
  el_set(el, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(el, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
  el_set(el, EL_BIND, "\\e[H", "ed-move-to-beg", nullptr);
  el_set(el, EL_BIND, "\\e[F", "ed-move-to-end", nullptr);
  el_source(el, nullptr);  // the user's ~/.editrc
  load_history();
  set_handler(SIGCONT, note_continued);
  set_handler(SIGWINCH, note_resized);
}

void LineEditor::Impl::load_history() {
  history = history_init();
  if (history == nullptr) throw Error(ErrorKind::Memory, "no memory for the history of lines");
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kHistoryEntries);
  el_set(el, EL_HIST, ::history, history);
  if (options.history.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(options.history.parent_path(), error);
  if (!std::filesystem::exists(options.history, error)) return;
  const int loaded = ::history(history, &event, H_LOAD, options.history.c_str());
  if (loaded < 0) {
    note("the history in " + options.history.string() + " cannot be read; it is left as it is");
    options.history.clear();
  } else if (loaded > 2 * kHistoryEntries) {  // entries are only ever appended: cut it now and then
    ::history(history, &event, H_SAVE, options.history.c_str());
  }
}

std::string LineEditor::Impl::line() const {
  const LineInfo* info = el_line(el);
  return {info->buffer, info->lastchar};
}

void LineEditor::Impl::replace(const std::string& text) {
  const LineInfoW* info = el_wline(el);
  const auto length = static_cast<int>(info->lastchar - info->buffer);
  el_cursor(el, static_cast<int>(info->lastchar - info->cursor));
  el_deletestr(el, length);
  if (!text.empty()) el_insertstr(el, text.c_str());
}

int LineEditor::Impl::columns() const {
  int n = 0;
  el_get(el, EL_GETTC, "co", &n);
  return n;
}

std::wstring LineEditor::Impl::shown_before_cursor() const {
  std::wstring shown(utf8::count_characters(prompt), L' ');
  const LineInfoW* info = el_wline(el);
  return shown.append(info->buffer, info->cursor);
}

/// libedit would go on from its cursor's old place, which may lie beyond the rows that it has now. Most terminals wrap
/// the line anew, and some leave it as it was: of the rows above the cursor only those go that it has either way, for
/// what stands above them is not ours.
void LineEditor::Impl::fit_to_window() {
  const std::wstring shown = shown_before_cursor();
  const int before = rows_above_end(shown, columns());
  el_resize(el);
  const int up = std::min(before, rows_above_end(shown, columns()));
  write("\r" + (up > 0 ? "\x1b[" + std::to_string(up) + "A" : "") + "\x1b[J");
  el_set(el, EL_REFRESH);
}

/// Behind Ctrl-Z the shell had the terminal and set it for itself, while libedit believes that it is as it was.
void LineEditor::Impl::take_terminal_back() {
  el_set(el, EL_PREP_TERM, 0);
  el_set(el, EL_PREP_TERM, 1);
  make_keys_of_controls(::fileno(in.get()));
  write(kPasteOn);
  write("\r\x1b[J");
  el_set(el, EL_REFRESH);
}

/// One character of the terminal; U+FFFD for bytes that are none, behind which the next one is itself again. 0 ends the
/// line as the end of the file would.
int LineEditor::Impl::on_read(EditLine* el, wchar_t* c) {
  const int fd = ::fileno(of(el).in.get());
  std::string& bytes = of(el).unread;
  make_keys_of_controls(fd);
  for (;;) {
    const utf8::Unit unit = bytes.empty() ? utf8::Unit{0, utf8::Form::Incomplete} : utf8::unit_at(bytes, 0);
    if (unit.form != utf8::Form::Incomplete) {
      const bool valid = unit.form == utf8::Form::Valid;
      *c = static_cast<wchar_t>(utf8::code_point(valid ? std::string_view(bytes) : utf8::kReplacement));
      bytes.erase(0, unit.length);
      return 1;
    }
    if (signal_exit_code() != 0) return 0;
    if (g_resized.exchange(false)) of(el).fit_to_window();
    if (g_continued.exchange(false)) of(el).take_terminal_back();
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, kSignalDelayMs) <= 0) continue;
    char byte = 0;
    const ssize_t n = ::read(fd, &byte, 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return 0;
    bytes += byte;
  }
}

/// Whether more comes at once, as within a paste.
bool LineEditor::Impl::goes_on() const {
  pollfd waiting{::fileno(in.get()), POLLIN, 0};
  return !unread.empty() || ::poll(&waiting, 1, kSignalDelayMs) > 0;
}

unsigned char LineEditor::Impl::on_ctrl_c(EditLine* el, int) {
  Impl& self = of(el);
  self.key = self.line().empty() ? Outcome::CtrlC : Outcome::Cleared;
  el_cursor(el, 1 << 20);
  if (self.key == Outcome::CtrlC) return CC_NEWLINE;
  el_push(el, "\n");  // what was typed stays to be seen, the next prompt begins a line below
  return CC_CURSOR;
}

/// Terminals send the line ends of what is pasted as carriage returns, with line feeds behind them where some do not
/// change it. It may go on behind the end of the line, which then is no key. Where its end does not come, Ctrl-C is.
unsigned char LineEditor::Impl::on_paste(EditLine* el, int) {
  std::string text;
  wchar_t c = 0;
  while (!text.ends_with(kPasteEnd)) {
    const bool ended = c == L'\r';
    if (el_wgetc(el, &c) != 1) return CC_EOF;
    if (c == kCtrlC && !of(el).goes_on()) return on_ctrl_c(el, 0);
    if (ended && c == L'\n') continue;
    text += utf8::encoded(c == L'\r' ? U'\n' : static_cast<char32_t>(c));
  }
  text = as_typed(std::string_view(text).substr(0, text.size() - kPasteEnd.size()));
  const LineInfo* info = el_line(el);
  const bool begins = info->cursor == info->buffer;
  if (!text.empty() && el_insertstr(el, text.c_str()) != 0) return CC_ERROR;
  if (begins) of(el).pasted = text.find('\n') < text.find_last_not_of('\n') ? text : "";
  return CC_REFRESH;
}

unsigned char LineEditor::Impl::on_edit(EditLine* el, int) {
  Impl& self = of(el);
  std::string text = self.line();
  el_set(el, EL_PREP_TERM, 0);
  try {
    text = as_typed(edit_with_program(text));
  } catch (const std::exception& error) {  // libedit, whose function calls this one, knows none
    self.write("\n");                      // below what was typed
    const auto* const ours = dynamic_cast<const Error*>(&error);
    print_error(ours != nullptr ? *ours : Error(ErrorKind::Runtime, error.what()));
  }
  el_set(el, EL_PREP_TERM, 1);
  self.replace(text);
  return CC_REDISPLAY;
}

unsigned char LineEditor::Impl::complete() {
  const LineInfo* info = el_line(el);
  const std::string before(info->buffer, info->cursor);
  std::vector<std::string> found = options.complete ? options.complete(before) : std::vector<std::string>{};
  std::erase_if(found, [](const std::string& f) { return !utf8::valid(f); });  // no line can have these
  if (found.empty()) return CC_REFRESH_BEEP;
  std::string common = found.front();
  for (const std::string& f : found) {
    common.resize(static_cast<std::size_t>(std::mismatch(common.begin(), common.end(), f.begin(), f.end()).first -
                                           common.begin()));
  }
  while (!common.empty() && common.size() < found.front().size() &&
         !utf8::begins_character(found.front()[common.size()])) {
    common.pop_back();  // not inside of a character
  }
  if (common.size() > before.size() && common.starts_with(before)) {
    el_insertstr(el, common.substr(before.size()).c_str());
    return CC_REFRESH;
  }
  if (found.size() == 1) return CC_REFRESH_BEEP;
  const std::size_t same = before.rfind(' ') + 1;  // words that all begin with are not said again
  std::vector<std::string> words;
  for (const std::string& f : found) words.push_back(terminal_safe(std::string_view(f).substr(same)));
  write("\n" + columned(words, static_cast<std::size_t>(std::max(columns() - 1, 1))));
  return CC_REDISPLAY;
}

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineEditor::~LineEditor() = default;

std::unique_ptr<LineEditor> LineEditor::open(LineEditorOptions options) {
  if (::isatty(STDIN_FILENO) != 1) return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  impl->in.reset(::fdopen(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), "r"));
  impl->out.reset(std::fopen("/dev/tty", "we"));
  if (!impl->in || !impl->out) return nullptr;
  impl->start();
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(impl)));
}

LineEditor::Input LineEditor::read(std::string_view prompt) {
  Impl& self = *impl_;
  self.prompt = prompt;
  self.key.reset();
  self.pasted.clear();
  g_continued.store(false);  // behind the last line: nothing of this one is there to be shown again
  if (g_resized.exchange(false)) el_resize(self.el);
  // libedit would show the prompt first: a key typed at once would then still be one of a cooked terminal.
  el_set(self.el, EL_PREP_TERM, 1);
  make_keys_of_controls(::fileno(self.in.get()));
  self.write(kPasteOn);
  int n = 0;
  const char* typed = el_gets(self.el, &n);
  self.write(kPasteOff);
  // A Ctrl-C behind a whole line is for what comes of the line.
  const bool whole = typed != nullptr && n > 0 && typed[n - 1] == '\n' && !self.key;
  if (!whole && forget_interrupt()) {  // sent by a program
    self.write("\n");
    return {Outcome::CtrlC, {}};
  }
  if (signal_exit_code() != 0 && signal_exit_code() != kInterrupted) return {Outcome::Signalled, {}};
  if (self.key) return {*self.key, {}};
  if (typed == nullptr || n <= 0) return {Outcome::EndOfFile, {}};
  std::string text(typed, static_cast<std::size_t>(n));
  if (text.ends_with('\n')) text.pop_back();
  const bool begins_pasted = !self.pasted.empty() && text.starts_with(self.pasted);
  return {Outcome::Line, std::move(text), begins_pasted};
}

void LineEditor::remember(const std::string& entry) {
  Impl& self = *impl_;
  HistEvent event;
  ::history(self.history, &event, H_ENTER, entry.c_str());
  if (self.options.history.empty()) return;
  const int fd = ::open(self.options.history.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const File file(fd < 0 ? nullptr : ::fdopen(fd, "a"));
  if (!file) {
    note("the history in " + self.options.history.string() + " cannot be written: " + std::strerror(errno));
    self.options.history.clear();  // said once
    return;
  }
  std::fseek(file.get(), 0, SEEK_END);  // libedit writes its first line where the position is 0
  // The newest: libedit goes back by so many from there before it writes all that follow.
  ::history(self.history, &event, H_NSAVE_FP, static_cast<std::size_t>(0), file.get());
}

void LineEditor::write(std::string_view text) { impl_->write(text); }

std::string edit_with_program(const std::string& text) {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != 0 ? value : nullptr;
  };
  const char* program = set("VISUAL");
  if (program == nullptr) program = set("EDITOR");
  if (program == nullptr) program = "vi";
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(unknown);
  if (unknown) throw Error(ErrorKind::Runtime, "the text cannot be edited: $TMPDIR names no folder that is there");
  std::string path = (folder / "llm-run-XXXXXX").string();
  const int fd = ::mkstemp(path.data());
  int error = errno;
  if (fd >= 0) {
    error = write_all(fd, text + "\n");
    ::close(fd);
    if (error != 0) ::unlink(path.c_str());
  }
  if (error != 0)
    throw Error(ErrorKind::Runtime,
                ErrorParts{.file = path, .problem = std::string("cannot be written: ") + std::strerror(error)});
  // system() lets Ctrl-C reach the editor alone.
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  const int status = std::system((program + (" " + quoted) + "' </dev/tty >/dev/tty").c_str());
  std::string changed;
  try {
    changed = read_input(path);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  ::unlink(path.c_str());
  if (status != 0) {
    throw Error(ErrorKind::Runtime, "the editor \"" + escaped(program) + "\" failed; $VISUAL and $EDITOR name another");
  }
  while (changed.ends_with('\n')) changed.pop_back();
  return changed;
}

}  // namespace llm::app
