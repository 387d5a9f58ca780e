// The terminal while an answer is written to it: what is typed meanwhile is not shown in it, and stays for who reads
// next, as a line that is typed ahead of a shell does.
#pragma once

#include <signal.h>

namespace llm::app {

/// Lives as long as that lasts, one at a time. Ctrl-C and Ctrl-Z go on being signals; while the program is stopped by
/// one, and where one ends it, the terminal is as it was.
class QuietTerminal {
 public:
  explicit QuietTerminal(int fd);
  QuietTerminal(const QuietTerminal&) = delete;
  QuietTerminal& operator=(const QuietTerminal&) = delete;
  ~QuietTerminal();

 private:
  struct sigaction on_stop_ {};  ///< what Ctrl-Z did before
};

/// For the handler of SIGCONT: whoever had the terminal meanwhile has set it for itself.
void quiet_terminal_again();

}  // namespace llm::app
