// The messages of a chat as they are typed, or one per line where nobody types. A line that ends in a backslash goes on
// in the next; """ begins and ends a message of several lines.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "line_editor.h"

namespace llm::app {

class MessageReader {
 public:
  /// Without an editor: lines of stdin.
  explicit MessageReader(LineEditor* editor) : editor_(editor) {}
  /// A message or a command. Ctrl-C gives up what was begun.
  LineEditor::Input next();

 private:
  LineEditor::Input line(std::string_view prompt);
  LineEditor* editor_;
  std::string buffered_;  ///< of stdin
  bool begun_ = false, ended_ = false;
  std::size_t lines_ = 0;  ///< that were taken
};

/// Where lines typed are kept: in $XDG_STATE_HOME, or else in ~/.local/state. Empty if neither is known.
std::filesystem::path history_file();

}  // namespace llm::app
