// Handlers do only what is allowed inside one: lock-free atomics, write, unlink, tcsetattr, _exit.
#include "common/signals.h"

#include <signal.h>
#include <unistd.h>

#include <set>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "common/messages.h"
#include "common/terminal_undo.h"

namespace llm::app {
namespace {

std::atomic<bool> g_stop{false};
std::atomic<OnSignal> g_on_signal{OnSignal::ExitAtOnce};
std::atomic<int> g_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<OnSignal>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free && std::atomic<void*>::is_always_lock_free);

std::atomic<const char*> g_undo_stdout{nullptr}, g_undo_stderr{nullptr}, g_last_words{nullptr}, g_stop_words{nullptr};

std::atomic<const termios*> g_modes{nullptr};
std::atomic<int> g_modes_fd{-1};

void write_bytes(int fd, const char* bytes) {
  if (bytes == nullptr) return;
  std::size_t n = 0;
  while (bytes[n] != 0) ++n;
  if (::write(fd, bytes, n) < 0) return;  // nobody looks: nothing to do about it
}

[[noreturn]] void end_now(int code) {
  const termios* const modes = g_modes.load();
  if (const int fd = g_modes_fd.load(); modes != nullptr && ::tcgetpgrp(fd) == ::getpgrp())
    ::tcsetattr(fd, TCSANOW, modes);
  write_bytes(STDOUT_FILENO, g_undo_stdout.load());
  write_bytes(STDERR_FILENO, g_undo_stderr.load());
  write_bytes(STDERR_FILENO, g_last_words.load());
  OutputFile::remove_unfinished();
  ::_exit(code);
}

void handle(int signal) {
  const OnSignal what = g_on_signal.load();
  const bool again = what == OnSignal::AskAgain && g_signal.load() == SIGINT;
  if (what == OnSignal::ExitAtOnce || (g_stop.load() && !again)) end_now(128 + signal);
  g_signal.store(signal);
  g_stop.store(true);
  const char* const words = g_stop_words.exchange(nullptr);
  if (words == nullptr) return;
  write_bytes(STDERR_FILENO, g_undo_stderr.load());
  write_bytes(STDERR_FILENO, words);
}

void set_words(std::atomic<const char*>& words, const std::string& line) {
  static std::set<std::string> all;  // a handler may be reading any of them
  words.store(line.empty() ? nullptr : all.insert(line).first->c_str());
}

std::string g_error_of_file;  // made before the handler is installed

void handle_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // failing memory, or a bug: what it is by default
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
    return;
  }
  const char* const file = mapped_file_at(info->si_addr);
  write_bytes(STDERR_FILENO, g_error_of_file.c_str());
  write_bytes(STDERR_FILENO, file != nullptr ? file : "a file");
  write_bytes(STDERR_FILENO, " was cut or became unreadable while it was in use\n");
  end_now(static_cast<int>(ErrorKind::Io));
}

}  // namespace

void report_lost_files() {
  g_error_of_file = std::string(program()) + ": error[E-IO]: ";
  struct sigaction action {};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);  // nohup, and jobs in the background
  }
}

void undo_on_signal(int fd, const char* bytes) { (fd == STDOUT_FILENO ? g_undo_stdout : g_undo_stderr).store(bytes); }

void restore_on_signal(int fd, const termios* modes) {
  g_modes_fd.store(fd);
  g_modes.store(modes);
}

void on_signal(OnSignal what) { g_on_signal.store(what); }
void set_last_words(const std::string& line) { set_words(g_last_words, line); }
void set_stop_words(const std::string& line) { set_words(g_stop_words, line); }
const std::atomic<bool>& stop_requested() { return g_stop; }
bool forget_interrupt() {
  int interrupt = SIGINT;
  if (!g_signal.compare_exchange_strong(interrupt, 0)) return false;
  g_stop.store(false);
  if (g_signal.load() != 0) g_stop.store(true);  // of another signal that came between the two
  return true;
}
int signal_exit_code() { return g_signal.load() == 0 ? 0 : 128 + g_signal.load(); }

}  // namespace llm::app
