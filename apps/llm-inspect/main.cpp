// llm-inspect: looks into model files without running them.
#include <string>

#include "base/error.h"
#include "commands.h"
#include "common/app.h"
#include "common/numbers.h"
#include "runtime/session.h"

namespace llm::inspect {
namespace {

constexpr const char* kDescription =
    "Looks into a GGUF model file. Weights are not loaded.\n\n"
    "Examples:\n"
    "  llm-inspect show model.gguf\n"
    "  llm-inspect tokenize model.gguf --text 'Once upon a time'\n"
    "  llm-inspect tokenize model.gguf --stdin --ids < book.txt\n"
    "  llm-inspect graph model.gguf --tokens 512 --format dot | dot -Tsvg > graph.svg";

struct Commands {
  ShowOptions show;
  TokenizeOptions tokenize;
  GraphOptions graph;
};

CLI::App* add_command(CLI::App& cli, const std::string& name, const std::string& help, std::string& file) {
  CLI::App* command = cli.add_subcommand(name, help);
  command->fallthrough();
  command->add_option("file", file, "GGUF file; of a split model, any part")->type_name("FILE")->required();
  return command;
}

CLI::App* add_show(CLI::App& cli, ShowOptions& o) {
  CLI::App* command =
      add_command(cli, "show", "metadata, tensors, sizes, and what would be used here to run it", o.file);
  command->add_flag("--json", o.json, "one JSON object");
  return command;
}

CLI::App* add_tokenize(CLI::App& cli, TokenizeOptions& o) {
  CLI::App* command = add_command(cli, "tokenize", "text to tokens: a line with id and piece for each", o.file);
  command->add_option("--text", o.text, "the text")->type_name("TEXT")->take_last();
  command->add_flag("--stdin", o.from_stdin, "take the bytes of stdin exactly as they come");
  command->add_flag("--ids", o.ids_only, "one JSON array of ids on one line");
  command->add_flag("--no-bos", o.no_bos, "do not add the tokens that begin or end a text");
  command->add_flag("--no-special", o.no_special, "special tokens in the text are plain text");
  return command;
}

CLI::App* add_graph(CLI::App& cli, GraphOptions& o) {
  CLI::App* command = add_command(cli, "graph", "the graph of a step", o.file);
  app::add_integer(*command, "--tokens", o.tokens, 1, kMaxBatchTokens, "tokens of the step (default 1)");
  const auto set_format = [&o](const std::string& text) {
    if (text != "text" && text != "dot")
      throw Error(ErrorKind::Usage, "option --format: \"" + escaped(text) + "\" is not text or dot");
    o.dot = text == "dot";
  };
  command->add_option_function<std::string>("--format", set_format, "text or dot (default text)")
      ->type_name("FORMAT")
      ->take_last();
  command->add_flag("--before-passes", o.before_passes, "as the model's family wrote it");
  return command;
}

int body(int argc, char** argv) {
  CLI::App cli{kDescription};
  Commands options;
  CLI::App* const show_command = add_show(cli, options.show);
  CLI::App* const tokenize_command = add_tokenize(cli, options.tokenize);
  CLI::App* const graph_command = add_graph(cli, options.graph);
  cli.require_subcommand(1);
  app::add_common_options(cli);
  if (const auto code = app::parse(cli, argc, argv)) return *code;
  if (show_command->parsed()) show(options.show);
  if (tokenize_command->parsed()) tokenize(options.tokenize);
  if (graph_command->parsed()) graph(options.graph);
  return 0;
}

}  // namespace
}  // namespace llm::inspect

int main(int argc, char** argv) {
  return llm::app::run("llm-inspect", argc, argv, [&] { return llm::inspect::body(argc, argv); });
}
