#include "options.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "common/escapes.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/output.h"

namespace llm::app {
namespace {

constexpr std::array kAliases{Alias{"-no-cnv", "--no-cnv"},           Alias{"-cnv", "--cnv"},
                              Alias{"-st", "--single-turn"},          Alias{"-sys", "--system-prompt"},
                              Alias{"-sysf", "--system-prompt-file"}, Alias{"-np", "--parallel"},
                              Alias{"-jf", "--json-schema-file"}};
constexpr std::int64_t kMaxContext = kMaxInt32;

void add_prompt_options(CLI::App& cli, RunOptions& o) {
  cli.add_option("-p,--prompt", o.prompt,
                 "the message; with -no-cnv the text to complete, in which special tokens are recognised")
      ->type_name("TEXT")
      ->take_last();
  cli.add_option("-f,--file", o.prompt_file, "file with it, - for stdin; one line feed at its end is dropped")
      ->type_name("FILE")
      ->take_last();
  add_integer(cli, "-n,--predict,--n-predict", o.max_tokens, -1, kMaxInt32,
              "most tokens to generate (default -1: until the model ends)");
  cli.add_flag("--ignore-eos", o.ignore_end, "never sample an end token");
}

/// Names after one dash are in the help texts, since CLI11 cannot declare them.
void add_chat_options(CLI::App& cli, ChatOptions& o) {
  const auto format = [&](const std::string& names, ChatOptions::Format f, const std::string& help) {
    cli.add_flag_callback(
           names, [&o, f] { o.format = f; }, help)
        ->trigger_on_parse();  // of several the last one counts
  };
  cli.add_option("--system-prompt", o.system, "system message (also -sys)")->type_name("TEXT")->take_last();
  cli.add_option("--system-prompt-file", o.system_file, "file with the system message, after that of -sys (also -sysf)")
      ->type_name("FILE")
      ->take_last();
  cli.add_flag("-i,--interactive", o.interactive,
               "chat; -p is the first message (default on a terminal without a prompt)");
  const auto one_turn = [&o] {
    o.single_turn = true;
    o.format = ChatOptions::Format::Template;
  };
  cli.add_flag_callback("--single-turn", one_turn,
                        "one message, asked for on a terminal if no -p gives it, one answer, put into a chat template "
                        "(also -st)")
      ->trigger_on_parse();
  cli.add_flag_callback(
      "--no-history", [&o] { o.keep_history = false; },
      "neither read nor write the history of what was typed in chats");
  format("--cnv,--conversation", ChatOptions::Format::Template,
         "the prompt is a message, put into a chat template; fails if there is none (also -cnv; default where the "
         "file has a template)");
  format("--no-cnv,--no-conversation", ChatOptions::Format::Raw,
         "raw completion, without a chat template (also -no-cnv)");
  cli.add_option("--chat-template", o.template_text,
                 "the template's name, in the file or of a known format, or its text (default: the file's)")
      ->type_name("NAME|TEXT")
      ->take_last();
  cli.add_option("--chat-template-file", o.template_file, "file with the template")->type_name("FILE")->take_last();
  cli.add_option("--chat-template-kwargs", o.template_kwargs,
                 "variables for the template, e.g. '{\"enable_thinking\": false}'; repeatable")
      ->option_text("JSON")
      ->allow_extra_args(false);
  cli.add_flag_callback(
      "--jinja", [] {}, "accepted: templates are always rendered as Jinja");
}

void add_context_option(CLI::App& cli, RunOptions& o) {
  const auto set = [&o](const std::string& text) { o.context = parse_integer("-c", text, 0, kMaxContext); };
  cli.add_option_function<std::string>("-c,--ctx-size", set,
                                       "context in tokens; 0: the model's (default: grows as needed, up to what fits)")
      ->type_name("N")
      ->take_last();
}

void add_text_options(CLI::App& cli, RunOptions& o) {
  cli.add_option("-r,--reverse-prompt,--stop", o.stop_strings, "end the answer before this text; repeatable")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  cli.add_flag_callback(
         "-e,--escape", [&o] { o.escape = true; },
         "process \\n \\r \\t \\' \\\" \\\\ \\xHH in texts on the command line, not in files (default)")
      ->trigger_on_parse();  // of the two the last one counts
  cli.add_flag_callback(
         "--no-escape", [&o] { o.escape = false; }, "keep them")
      ->trigger_on_parse();
}

/// Escapes, once it is known whether they are processed.
void finish_texts(RunOptions& o) {
  for (const std::string& stop : o.stop_strings) {
    if (stop.empty()) throw Error(ErrorKind::Usage, "option -r: an empty text would end every answer at once");
  }
  finish_sampling_choices(o.sampling, o.escape ? Escapes::Processed : Escapes::Kept);
  if (!o.escape) return;
  if (o.prompt) o.prompt = process_escapes(*o.prompt);
  if (o.chat.system) o.chat.system = process_escapes(*o.chat.system);
  for (std::string& stop : o.stop_strings) stop = process_escapes(stop);
}

void check_mode(const RunOptions& o) {
  const bool prompt = o.prompt || !o.prompt_file.empty();
  check_batch_options(o.batch);
  if (o.batch.wanted() && prompt)
    throw Error(ErrorKind::Usage, "a batch has its own prompts: give --batch, or -p and -f");
  if (o.batch.wanted() && o.chat.interactive) throw Error(ErrorKind::Usage, "-i chats, --batch does not: give one");
  if (o.chat.interactive && o.chat.format == ChatOptions::Format::Raw) {
    throw Error(ErrorKind::Usage, "-i needs a chat template, and -no-cnv asks for none");
  }
  if (!o.batch.wanted() && !prompt && !wants_chat(o)) {
    throw Error(ErrorKind::Usage,
                "no prompt: give one with -p TEXT, or -f FILE (- for stdin), or many with --batch FILE");
  }
}

}  // namespace

bool wants_chat(const RunOptions& o) {
  if (o.batch.wanted() || o.explain_prompt) return false;
  if (o.chat.interactive) return true;
  const bool prompt = o.prompt || !o.prompt_file.empty();
  return !prompt && ::isatty(STDIN_FILENO) == 1 && stdout_is_terminal();
}

std::optional<int> read_options(int argc, char** argv, RunOptions& o) {
  CLI::App cli(
      "Answers a message, or completes a text, with a language model from a GGUF file.\n\n"
      "Examples:\n"
      "  llm-run -m chat-model.gguf -p \"Why is the sky blue?\" -sys \"Be brief.\"\n"
      "  llm-run -m model.gguf -no-cnv -p \"Once upon a time\" -n 100\n"
      "  llm-run -m model.gguf -p \"The capital of France is\" --temp 0\n"
      "  generate-prompt | llm-run -m model.gguf -f - > answer.txt");
  add_model_options(cli, o.model);
  add_prompt_options(cli, o);
  add_chat_options(cli, o.chat);
  add_context_option(cli, o);
  add_sampling_options(cli, o.sampling);
  add_constraint_options(cli, o.constraint);
  add_text_options(cli, o);
  add_batch_options(cli, o.batch);
  add_common_options(cli);
  cli.add_flag("--explain-prompt", o.explain_prompt,
               "print the prompt, its tokens and what made each of them, instead of an answer");
  cli.add_flag("--profile", o.profile, "print the time and the memory traffic of each node");
  cli.add_option("--dump-graph", o.dump_graph,
                 "write the graph before and after passes; a name that ends in .dot gets Graphviz")
      ->type_name("FILE")
      ->take_last();
  if (const auto code = parse(cli, argc, argv, kAliases)) return code;
  check_mode(o);
  refuse_overwriting(o.dump_graph, {o.model.path, o.prompt_file, o.batch.input});
  refuse_overwriting(o.batch.output, {o.model.path, o.batch.input});
  finish_texts(o);
  return std::nullopt;
}

/// Text that somebody sent and that nobody reads is worth a word; an empty or a closed pipe is not.
void mention_unread_stdin() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  int waiting = 0;
  if (::ioctl(STDIN_FILENO, FIONREAD, &waiting) != 0 || waiting == 0) return;
  note("stdin holds text that -p leaves unread; -f - adds it to the prompt");
}

std::string read_prompt(const RunOptions& o) {
  if (o.prompt_file.empty()) {
    mention_unread_stdin();
    return *o.prompt;
  }
  std::string text = read_input(o.prompt_file);
  if (text.ends_with('\n')) text.pop_back();
  return o.prompt ? *o.prompt + "\n\n" + text : text;
}

}  // namespace llm::app
