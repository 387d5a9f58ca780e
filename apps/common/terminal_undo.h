// What a terminal must get back when a signal ends the program: a line that is drawn over, letters that are dimmed,
// the echo.
#pragma once

#include <termios.h>

namespace llm::app {

/// `bytes` go to `fd` (stdout's or stderr's) before a signal ends the program. They must last: a literal; null:
/// nothing.
void undo_on_signal(int fd, const char* bytes);

/// A terminal gets these modes then, which must last, if this job has it; null: nothing.
void restore_on_signal(int fd, const termios* modes);

}  // namespace llm::app
