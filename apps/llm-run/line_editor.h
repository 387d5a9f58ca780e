// A line typed on the terminal, with editing, history, completion and pasting by libedit. The prompt and the echo go to
// the terminal itself, wherever stdout leads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llm::app {

struct LineEditorOptions {
  std::filesystem::path history = {};  ///< file; empty: nothing is kept beyond this run
  /// What the text before the cursor may go on with, each replacing it as a whole; for Tab.
  std::function<std::vector<std::string>(std::string_view before_cursor)> complete = {};
};

class LineEditor {
 public:
  enum class Outcome : std::uint8_t {
    Line,
    CtrlC,      ///< on an empty line
    Cleared,    ///< Ctrl-C on a line that had text
    EndOfFile,  ///< Ctrl-D on an empty line, or the terminal has gone
    Signalled,  ///< one that ends the program came
  };
  struct Input {
    Outcome outcome = Outcome::Line;
    std::string text;            ///< without its line feed; has others if it was pasted or comes from $EDITOR
    bool begins_pasted = false;  ///< with several lines
  };

  /// Nothing if there is no terminal to talk to.
  static std::unique_ptr<LineEditor> open(LineEditorOptions);
  ~LineEditor();

  Input read(std::string_view prompt);
  /// Into the history of this run and its file.
  void remember(const std::string& entry);
  void write(std::string_view text);

 private:
  struct Impl;
  explicit LineEditor(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

/// Lets $VISUAL or $EDITOR change the text, on the terminal. Throws ErrorKind::Runtime if that fails.
std::string edit_with_program(const std::string& text);

}  // namespace llm::app
