// One line at the bottom of a terminal's stderr that is drawn again and again: what a program is doing right now.
#pragma once

#include <string>
#include <string_view>

namespace llm::app {

/// Over the last one; no longer than the terminal is wide, since a line that wraps could not be taken back.
void draw_status_line(std::string_view text);
void clear_status_line();

/// As much of a text as fits so many columns, the last of which stays empty. 0: all.
std::string fitted_to(std::string_view text, int columns);

}  // namespace llm::app
