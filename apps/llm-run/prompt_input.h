// Where the prompt of one answer comes from: the command line, files, stdin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/command.h"

namespace llm::app {

struct PromptFile {
  std::string path;  ///< "-" is stdin
  enum class Content : std::uint8_t {
    Text,  ///< one line end at its end is dropped
    Bytes  ///< every byte counts
  } content = Content::Text;
};

struct PromptInput {
  std::optional<std::string> text;
  std::vector<PromptFile> files;  ///< in the order of the command line
  bool by_default = false;        ///< it is stdin, and nobody said so

  bool given() const { return text || !files.empty(); }
  bool reads_stdin() const;
};

/// -p, -f, -bf.
void add_prompt_input(Command&, PromptInput&);

/// With no prompt on the command line a stdin that is no terminal is the prompt. False if there is none at all.
bool find_prompt(PromptInput&);

/// A note where stdin, which the prompt does not read, holds text that somebody sent.
void mention_unread_stdin(const PromptInput&);
/// The text of -p, then that of each file, with a blank line between them. Throws ErrorKind::Usage for a file that
/// cannot be read and for a stdin that is the prompt by default and is empty, ErrorKind::Io if reading stdin fails.
std::string read_prompt(const PromptInput&);

}  // namespace llm::app
