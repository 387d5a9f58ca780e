// What may be done with terminals: colours, lines that are drawn again, and whether a model's control characters are
// obeyed. The options say so once, before anything is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llm::app {

enum class Colours : std::uint8_t {
  Auto,  ///< on terminals that have them, unless NO_COLOR is set
  On,    ///< wherever the stream leads
  Off,
};
void set_colours(Colours);
bool stdout_has_colours();
bool stderr_has_colours();

/// Nothing that needs more than lines of text: no colours unless they are asked for, no line that is drawn again, no
/// editor of lines. A dumb terminal has it so anyway.
void set_simple_io();
/// Messages are read as plain lines, behind a prompt on stderr.
bool simple_io();
/// A line of stderr may be drawn again and again.
bool stderr_redraws();

/// Columns for text that is wrapped or cut to be read: those of the terminal, within what reads well; 80 for what is
/// none.
std::size_t text_width(int fd);

/// A model's text goes to terminals byte by byte, whatever they make of it.
void set_raw_text();
/// A model's text as it may go to the stream: terminal_safe() for a terminal, unless it is to be raw.
std::string text_for(bool terminal, std::string_view text);

}  // namespace llm::app
