#include "commands.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "common/escapes.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/output.h"
#include "common/token_input.h"
#include "gguf/file.h"
#include "graph/passes/passes.h"
#include "graph/print.h"
#include "models/registry.h"
#include "report.h"
#include "text/tokenizer.h"

namespace llm::inspect {
namespace {

constexpr std::size_t kWriteBytes = 1 << 16;

/// `  1234  "piece"`: special tokens by their names, other bytes escaped.
std::string token_line(const Tokenizer& tokenizer, Token token) {
  std::string id = std::to_string(token);
  if (id.size() < 7) id.insert(0, 7 - id.size(), ' ');
  return id + "  \"" + escaped(tokenizer.spelling(token)) + "\"\n";
}

void write_lines(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  std::string lines;
  for (const Token t : tokens) {
    lines += token_line(tokenizer, t);
    if (lines.size() < kWriteBytes) continue;
    app::write_stdout(lines);
    lines.clear();
  }
  app::write_stdout(lines);
}

}  // namespace

void show(const ShowOptions& o) {
  Warnings warnings;
  const GgufFile file = GgufFile::open(o.file, warnings);
  const Report report = make_report(o.file, file, warnings);
  app::print_warnings(warnings);
  app::write_stdout(o.json ? json_of(report) : text_of(report));
}

void tokenize(const TokenizeOptions& o) {
  const std::string path = o.from_stdin ? "-" : o.text_file;
  if (o.text.has_value() + o.from_stdin + !o.text_file.empty() != 1)
    throw Error(ErrorKind::Usage, "give the text once, with --text T, -f FILE or --stdin");
  Warnings warnings;
  const GgufFile file = GgufFile::open(o.file, warnings);
  const auto tokenizer = Tokenizer::load(file.metadata(), warnings);
  app::print_warnings(warnings);
  const std::string text = !o.text ? app::read_input(path) : o.escape ? app::process_escapes(*o.text) : *o.text;
  const std::vector<Token> tokens =
      tokenizer->encode(text, {.add_special = !o.no_bos, .parse_special = o.parse_special});
  app::warn_of_lost_bytes("the text", text, tokens, *tokenizer);
  if (o.ids_only) {
    app::write_stdout(nlohmann::json(tokens).dump() + "\n");
  } else {
    write_lines(*tokenizer, tokens);
  }
  if (o.show_count) app::write_stdout("Total number of tokens: " + std::to_string(tokens.size()) + "\n");
}

void graph(const GraphOptions& o) {
  Warnings warnings;
  const GgufFile file = GgufFile::open(o.file, warnings);
  app::print_warnings(warnings);
  Graph g = build_graph(open_model(file.metadata()), file, Bucket{.tokens = o.tokens, .sequences = 1, .outputs = 1});
  if (!o.before_passes) g = optimize(g);
  app::write_stdout(o.dot ? to_dot(g) : to_text(g));
}

}  // namespace llm::inspect
