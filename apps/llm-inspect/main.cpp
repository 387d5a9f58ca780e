// llm-inspect: looks into model files without running them, checks, splits and merges them.
#include <string>

#include "base/error.h"
#include "commands.h"
#include "common/app.h"
#include "common/numbers.h"
#include "runtime/programs.h"
#include "split_merge.h"
#include "verify.h"

namespace llm::inspect {
namespace {

constexpr const char* kDescription =
    "Looks into GGUF model files, checks them, splits and merges them.\n\n"
    "Examples:\n"
    "  llm-inspect show model.gguf\n"
    "  llm-inspect tokenize model.gguf --text 'Once upon a time'\n"
    "  llm-inspect tokenize model.gguf --stdin --ids < book.txt\n"
    "  llm-inspect render model.gguf --messages chat.json --spans\n"
    "  llm-inspect graph model.gguf --tokens 512 --format dot | dot -Tsvg > graph.svg\n"
    "  llm-inspect verify model.gguf --sha256 SHA256SUMS\n"
    "  llm-inspect split model.gguf parts/model --max-size 4G\n"
    "  llm-inspect merge parts/model-00001-of-00003.gguf model.gguf";

struct Commands {
  ShowOptions show;
  TokenizeOptions tokenize;
  RenderOptions render;
  GraphOptions graph;
  VerifyOptions verify;
  SplitOptions split;
  MergeOptions merge;
};

app::Command* add_command(app::Command& cli, const std::string& name, const std::string& help, std::string& file) {
  app::Command* command = cli.add_subcommand(name, help);
  command->fallthrough();
  command->add_option("model", file, "GGUF file; of a split model, any part")->type_name("MODEL")->required();
  return command;
}

app::Command* add_show(app::Command& cli, ShowOptions& o) {
  app::Command* command =
      add_command(cli, "show", "metadata, tensors, sizes, and what would be used here to run it", o.file);
  command->add_flag("--json", o.json, "one JSON object");
  return command;
}

app::Command* add_tokenize(app::Command& cli, TokenizeOptions& o) {
  app::Command* command = add_command(cli, "tokenize", "text to tokens: a line with id and piece for each", o.file);
  command
      ->add_option("-p,--prompt,--text", o.text,
                   "the text; its escapes (\\n ...) are processed, as those of llm-run -p")
      ->type_name("TEXT")
      ->take_last();
  command->add_flag("--no-escape{false}", o.escape, "keep escapes of --text as they are");
  command->add_option("-f,--file", o.text_file, "a file with the text, taken byte for byte; - is stdin")
      ->type_name("FILE")
      ->take_last();
  command->add_flag("--stdin", o.from_stdin, "the same as -f -");
  command->add_flag("--ids", o.ids_only, "one JSON array of ids on one line");
  command->add_flag("--no-bos", o.no_bos, "do not add the tokens that begin or end a text");
  command->add_flag("--no-parse-special{false},--no-special{false}", o.parse_special,
                    "special tokens in the text are plain text");
  command->add_flag("--show-count", o.show_count, "the number of tokens, on a line behind them");
  return command;
}

app::Command* add_render(app::Command& cli, RenderOptions& o) {
  app::Command* command = cli.add_subcommand("render", "a conversation as the prompt that a chat template makes of it");
  command->fallthrough();
  command->add_option("file", o.file, "GGUF file with the template; may be left out with --template-file")
      ->type_name("FILE");
  command->add_option("--template-file", o.template_file, "a Jinja template instead of the file's")->type_name("FILE");
  command->add_option("--chat-template", o.template_name, "a template by its name, the file's or a known one")
      ->type_name("NAME");
  command
      ->add_option("--messages", o.messages,
                   "JSON: an array of messages, or an object with messages, tools and other variables; - for stdin")
      ->type_name("FILE")
      ->required();
  command->add_option("--tools", o.tools, "JSON array of tools")->type_name("FILE");
  command->add_option("--kwargs", o.kwargs, "further variables of the template, e.g. '{\"enable_thinking\": false}'")
      ->type_name("JSON");
  command->add_flag("--no-generation-prompt", o.no_generation_prompt, "do not begin the assistant's answer");
  command->add_option("--bos", o.bos, "text of bos_token (default: the file's)")->type_name("TEXT");
  command->add_option("--eos", o.eos, "text of eos_token (default: the file's)")->type_name("TEXT");
  command->add_option("--now", o.now, "the time for templates that print it, e.g. 2025-07-10T12:00:00")
      ->type_name("TIME");
  command->add_flag("--spans", o.spans, "say which bytes come from the template and which from the messages");
  return command;
}

app::Command* add_graph(app::Command& cli, GraphOptions& o) {
  app::Command* command = add_command(cli, "graph", "the graph of a step", o.file);
  app::add_integer(*command, "--tokens", o.tokens, 1, kMaxBatchTokens, "tokens of the step (default 1)");
  const auto set_format = [&o](const std::string& text) {
    if (text != "text" && text != "dot")
      throw Error(ErrorKind::Usage, "option --format: \"" + escaped(text) + "\" is not text or dot");
    o.dot = text == "dot";
  };
  command->add_option_function<std::string>("--format", set_format, "form of it (default text)")
      ->type_name("text|dot")
      ->take_last();
  command->add_flag("--before-passes", o.before_passes, "as the model's family wrote it");
  return command;
}

app::Command* add_verify(app::Command& cli, VerifyOptions& o) {
  app::Command* command = add_command(
      cli, "verify", "reads everything: structure, NaN and infinite scales, SHA-256 of files and tensors", o.file);
  command->add_option("--sha256", o.sha256, "the file's sum, or a file of sums as sha256sum writes them")
      ->type_name("SUM|FILE")
      ->take_last();
  app::add_threads_option(*command, o.threads);
  command->add_flag("--json", o.json, "one JSON object");
  return command;
}

void add_output_flags(app::Command& command, bool& dry_run, app::Existing& existing) {
  command.add_flag("--dry-run", dry_run, "only print what would be written");
  command.add_flag_callback(
      "--force", [&existing] { existing = app::Existing::Replace; }, "replace files that exist");
}

app::Command* add_split(app::Command& cli, SplitOptions& o) {
  app::Command* command = add_command(cli, "split", "one file into PREFIX-00001-of-0000N.gguf and so on", o.file);
  command->add_option("prefix", o.prefix, "of the files to write")->type_name("PREFIX")->required();
  app::add_integer(*command, "--max-tensors,--split-max-tensors", o.limits.tensors, 1, app::kMaxInt32,
                   "most tensors in a file");
  app::add_integer(*command, "--max-size,--split-max-size", o.limits.bytes, 1, std::int64_t{1} << 50,
                   "most bytes of a file, with its metadata: 500M, 4G; a tensor larger than that is alone in its file");
  command->add_flag("--no-tensor-first-split", o.limits.metadata_first, "the first file holds the metadata alone");
  add_output_flags(*command, o.dry_run, o.existing);
  return command;
}

app::Command* add_merge(app::Command& cli, MergeOptions& o) {
  app::Command* command = add_command(cli, "merge", "a set of files into one", o.file);
  command->add_option("output", o.output, "file to write")->type_name("OUT")->required();
  add_output_flags(*command, o.dry_run, o.existing);
  return command;
}

int body(int argc, char** argv) {
  app::Command cli{kDescription};
  Commands options;
  app::Command* const show_command = add_show(cli, options.show);
  app::Command* const tokenize_command = add_tokenize(cli, options.tokenize);
  app::Command* const render_command = add_render(cli, options.render);
  app::Command* const graph_command = add_graph(cli, options.graph);
  app::Command* const verify_command = add_verify(cli, options.verify);
  app::Command* const split_command = add_split(cli, options.split);
  app::Command* const merge_command = add_merge(cli, options.merge);
  cli.require_subcommand();
  app::add_common_options(cli);
  if (const auto code = app::parse(cli, argc, argv)) return *code;
  if (show_command->parsed()) show(options.show);
  if (tokenize_command->parsed()) tokenize(options.tokenize);
  if (render_command->parsed()) render(options.render);
  if (graph_command->parsed()) graph(options.graph);
  if (verify_command->parsed()) verify(options.verify);
  if (split_command->parsed()) split(options.split);
  if (merge_command->parsed()) merge(options.merge);
  return 0;
}

}  // namespace
}  // namespace llm::inspect

int main(int argc, char** argv) {
  return llm::app::run("llm-inspect", argc, argv, [&] { return llm::inspect::body(argc, argv); });
}
