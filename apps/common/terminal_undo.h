// What a terminal must get back when a signal ends the program: a line that is drawn over, letters that are dimmed.
#pragma once

namespace llm::app {

/// `bytes` go to `fd` (stdout's or stderr's) before a signal ends the program. They must last: a literal; null: nothing.
void undo_on_signal(int fd, const char* bytes);

}  // namespace llm::app
