// Handlers do only what is allowed inside one: tcsetattr, tcgetpgrp, sigaction, pthread_sigmask, raise.
#include "quiet_terminal.h"

#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "common/terminal_undo.h"

namespace llm::app {
namespace {

termios g_as_it_was, g_quiet;     // written while there is no terminal
std::atomic<int> g_terminal{-1};  // -1: none is quiet

/// In the background it would stop the job, and the terminal is as others want it.
void set_modes(const termios& modes) {
  const int fd = g_terminal.load();
  if (fd >= 0 && ::tcgetpgrp(fd) == ::getpgrp()) ::tcsetattr(fd, TCSANOW, &modes);
}

void on_stop(int signal) {
  const int error = errno;
  set_modes(g_as_it_was);
  struct sigaction standard {
  }, own{};
  standard.sa_handler = SIG_DFL;
  ::sigemptyset(&standard.sa_mask);
  ::sigaction(signal, &standard, &own);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  ::raise(signal);  // it stops here, unless nobody could let it go on
  ::sigaction(signal, &own, nullptr);
  set_modes(g_quiet);
  errno = error;
}

}  // namespace

QuietTerminal::QuietTerminal(int fd) {
  ::sigaction(SIGTSTP, nullptr, &on_stop_);
  if (::tcgetattr(fd, &g_as_it_was) != 0) return;
  g_quiet = g_as_it_was;
  g_quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);  // not a line of its own: keys are the next reader's
  g_quiet.c_lflag |= NOFLSH;                                 // also those before Ctrl-C
  g_terminal.store(fd);
  restore_on_signal(fd, &g_as_it_was);
  if (on_stop_.sa_handler == SIG_DFL) {
    struct sigaction action {};
    action.sa_handler = on_stop;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGTSTP, &action, nullptr);
  }
  set_modes(g_quiet);
}

QuietTerminal::~QuietTerminal() {
  set_modes(g_as_it_was);
  g_terminal.store(-1);
  restore_on_signal(-1, nullptr);
  ::sigaction(SIGTSTP, &on_stop_, nullptr);
}

void quiet_terminal_again() { set_modes(g_quiet); }

}  // namespace llm::app
