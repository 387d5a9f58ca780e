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
  bool escape = true;         ///< process what `text` has of them
  std::string text_file;      ///< "-": stdin; the bytes exactly as they come
  bool from_stdin = false;    ///< the same as text_file "-"
  bool ids_only = false;      ///< one JSON array instead of a line per token
  bool show_count = false;    ///< the number of tokens after them
  bool no_bos = false;        ///< nor EOS
  bool parse_special = true;  ///< else special tokens in the text are plain text
};
void tokenize(const TokenizeOptions&);

struct RenderOptions {
  std::string file;           ///< a model, for its template and its BOS and EOS; empty if there is none
  std::string template_file;  ///< instead of the model's
  std::string template_name;
  std::string messages, tools;  ///< files of JSON
  std::string kwargs;           ///< a JSON object
  std::optional<std::string> bos, eos;
  std::string now;
  bool no_generation_prompt = false;
  bool spans = false;
};
void render(const RenderOptions&);

struct GraphOptions {
  std::string file;
  int tokens = 1;
  bool dot = false;
  bool before_passes = false;
};
void graph(const GraphOptions&);

}  // namespace llm::inspect
