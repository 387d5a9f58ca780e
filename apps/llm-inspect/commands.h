// The commands of llm-inspect. Each reads a file without loading its weights and writes its result to stdout.
#pragma once

#include <optional>
#include <string>

namespace llm::inspect {

struct ShowOptions {
  std::string file;
  bool json = false;
};
void show(const ShowOptions&);

struct TokenizeOptions {
  std::string file;
  std::optional<std::string> text;
  std::string text_file;      ///< "-": stdin; the bytes exactly as they come
  bool from_stdin = false;    ///< the same as text_file "-"
  bool ids_only = false;      ///< one JSON array instead of a line per token
  bool show_count = false;    ///< the number of tokens after them
  bool no_bos = false;        ///< nor EOS
  bool parse_special = true;  ///< else special tokens in the text are plain text
};
void tokenize(const TokenizeOptions&);

struct GraphOptions {
  std::string file;
  int tokens = 1;
  bool dot = false;
  bool before_passes = false;
};
void graph(const GraphOptions&);

}  // namespace llm::inspect
