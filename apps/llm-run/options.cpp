#include "options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/output_file.h"
#include "batch_state.h"
#include "chat_file.h"
#include "common/accepted_options.h"
#include "common/escapes.h"
#include "common/events.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/numbers.h"
#include "common/output.h"
#include "common/run_files.h"
#include "common/settings.h"
#include "doctor.h"
#include "tuning.h"

namespace llm::app {
namespace {

constexpr std::array kAliases{Alias{"-no-cnv", "--no-cnv"},
                              Alias{"-cnv", "--cnv"},
                              Alias{"-st", "--single-turn"},
                              Alias{"-sys", "--system-prompt"},
                              Alias{"-sysf", "--system-prompt-file"},
                              Alias{"-np", "--parallel"},
                              Alias{"-rea", "--reasoning"},
                              Alias{"-b", "--batch-size"},
                              Alias{"-ub", "--ubatch-size"},
                              Alias{"-sp", "--special"},
                              Alias{"-co", "--color"},
                              Alias{"-jf", "--json-schema-file"},
                              Alias{"-bf", "--binary-file"},
                              Alias{"-ctk", "--cache-type-k"},
                              Alias{"-ctv", "--cache-type-v"},
                              Alias{"-md", "--model-draft"},
                              Alias{"-ngld", "--gpu-layers-draft"},
                              Alias{"-otd", "--override-tensor-draft"}};

constexpr std::array<std::string_view, 38> kCommon{"--model",          "--threads",
                                                   "--gpu-layers",     "--prompt",
                                                   "--file",           "--predict",
                                                   "--reverse-prompt", "--interactive",
                                                   "--system-prompt",  "--single-turn",
                                                   "--no-cnv",         "--chat-template",
                                                   "--reasoning",      "--reasoning-budget",
                                                   "--ctx-size",       "--on-overflow",
                                                   "--seed",           "--temp",
                                                   "--top-k",          "--top-p",
                                                   "--min-p",          "--greedy",
                                                   "--grammar",        "--json-schema",
                                                   "--regex",          "--choice",
                                                   "--output-format",  "--output",
                                                   "--batch",          "--parallel",
                                                   "--resume",         "--quiet",
                                                   "--verbose",        "--config",
                                                   "--help",           "--help-all",
                                                   "--version",        "--dry-run"};

constexpr std::array<std::string_view, 4> kWritten{"--output", "--events", "--dump-graph", "--prompt-cache"};

constexpr Page kPage{.aliases = kAliases,
                     .usage =
                         "llm-run -m MODEL [-p TEXT | -f FILE | < FILE]      one answer\n"
                         "llm-run -m MODEL [-i]                              a chat\n"
                         "llm-run -m MODEL --batch FILE -o FILE              an answer per line\n"
                         "llm-run doctor | completion SHELL                  for machine and shell",
                     .common = kCommon,
                     .settings = Page::Settings::FromElsewhere,
                     .written = kWritten,
                     .takes_stdout = "--output",
                     .gate = {.group = "Batch", .option = "--batch"}};

void add_length_options(Command& cli, RunOptions& o) {
  add_integer(cli, "-n,--predict,--n-predict", o.max_tokens, kUntilContextIsFull, kMaxInt32,
              "most tokens to generate (default -1: until the model ends; -2: or the context is full, whatever "
              "--on-overflow says)");
  cli.add_flag("--ignore-eos", o.ignore_end, "never sample an end token");
}

void add_chat_options(Command& cli, ChatOptions& o) {
  const auto format = [&](const std::string& names, ChatOptions::Format f, const std::string& help) {
    cli.add_flag_callback(
           names, [&o, f] { o.format = f; }, help)
        ->trigger_on_parse();  // of several the last one counts
  };
  cli.add_option("--system-prompt", o.system, "system message")->type_name("TEXT")->take_last();
  cli.add_option("--system-prompt-file", o.system_file, "file with the system message, after that of -sys")
      ->type_name("FILE")
      ->take_last();
  cli.add_flag("-i,--interactive", o.interactive,
               "chat; -p is the first message (default on a terminal without a prompt)");
  const auto one_turn = [&o] {
    o.single_turn = true;
    o.format = ChatOptions::Format::Template;
  };
  cli.add_flag_callback("--single-turn", one_turn,
                        "one message, one answer; on a terminal without -p the message is asked for")
      ->trigger_on_parse();
  const auto saved = [&o](const std::string& file) {
    o.saved = file;
    o.interactive = true;
  };
  cli.add_option_function<std::string>("--load", saved, "chat, going on with what /save wrote, as /load does")
      ->type_name("FILE")
      ->take_last();
  cli.add_flag_callback(
      "--no-history", [&o] { o.keep_history = false; },
      "neither read nor write the history of what was typed in chats");
  format("--cnv,--conversation", ChatOptions::Format::Template,
         "the prompt is a message, put into a chat template; fails if there is none (default where the file "
         "has one)");
  format("--no-cnv,--no-conversation", ChatOptions::Format::Raw, "raw completion, without a chat template");
  cli.add_option_function<std::string>(
         "--chat-template",
         [&o](const std::string& text) {
           if (text.empty())
             throw Error(ErrorKind::Usage, "option --chat-template: neither a name nor a text is given");
           o.template_text = text;
         },
         "the template's name, in the file or of a known format, or its text (default: the file's)")
      ->type_name("NAME|TEXT")
      ->take_last();
  cli.add_option("--chat-template-file", o.template_file, "file with the template")->type_name("FILE")->take_last();
  cli.add_option("--chat-template-kwargs", o.template_kwargs,
                 "variables for the template, e.g. '{\"enable_thinking\": false}'; repeatable")
      ->option_text("JSON")
      ->one_value();
  cli.add_flag_callback(
      "--jinja", [] {}, "accepted: templates are always rendered as Jinja");
}

void add_text_options(Command& cli, RunOptions& o) {
  cli.add_option("-r,--reverse-prompt,--stop", o.stop_strings, "end the answer before this text; repeatable")
      ->option_text("TEXT")
      ->one_value();
  cli.add_flag_callback(
         "-e,--escape", [&o] { o.escape = true; },
         "process \\n \\r \\t \\' \\\" \\\\ \\xHH in texts on the command line, not in files (default)")
      ->trigger_on_parse();  // of the two the last one counts
  cli.add_flag_callback(
         "--no-escape", [&o] { o.escape = false; }, "keep them")
      ->trigger_on_parse();
}

/// As they were typed: what is written as \xHH is meant.
void warn_of_typed_bytes(const RunOptions& o) {
  warn_of_bytes("-p", o.prompt.text.value_or(""));
  warn_of_bytes("-sys", o.chat.system.value_or(""));
  warn_of_bytes("--prefill", o.output.prefill);
  warn_of_bytes("--template-row", o.batch.template_row.value_or(""));
}

/// Escapes, once it is known whether they are processed.
void finish_texts(RunOptions& o) {
  for (const std::string& stop : o.stop_strings) {
    if (stop.empty())
      throw Error(ErrorKind::Usage, "option --reverse-prompt: an empty text would end every answer at once");
  }
  warn_of_typed_bytes(o);
  const Escapes escapes = o.escape ? Escapes::Processed : Escapes::Kept;
  finish_sampling_choices(o.sampling, escapes);
  finish_constraint(o.constraint, escapes);
  if (!o.escape) return;
  o.output.prefill = process_escapes(o.output.prefill);
  if (o.prompt.text) o.prompt.text = process_escapes(*o.prompt.text);
  if (o.chat.system) o.chat.system = process_escapes(*o.chat.system);
  if (o.batch.template_row) o.batch.template_row = process_escapes(*o.batch.template_row);
  o.chat.reasoning.budget_message = process_escapes(o.chat.reasoning.budget_message);
  for (std::string& stop : o.stop_strings) stop = process_escapes(stop);
}

void refuse_options_of_one_answer(const RunOptions& o, const std::string& where) {
  std::string given = option_of_one_answer(o.output);
  if (o.output.logprobs && !o.batch.wanted()) given = "--logprobs";
  if (o.output.max_seconds && !o.batch.wanted()) given = "--max-time";
  if (o.context.overflow != Overflow::Error) given = "--on-overflow (--context-shift)";
  if (o.context.keep != 0) given = "--keep";
  if (o.explain_prompt) given = "--explain-prompt";
  if (o.profile) given = "--profile (--perf)";
  if (!o.dump_graph.empty()) given = "--dump-graph";
  if (!given.empty()) throw Error(ErrorKind::Usage, given + " is for one answer, not for " + where);
}

/// Of two that contradict each other the raw text counts, which the others are no part of.
void say_what_does_nothing(const RunOptions& o) {
  if (o.chat.format == ChatOptions::Format::Raw) {
    if (!o.chat.template_file.empty()) note("--chat-template-file does nothing beside -no-cnv");
    if (!o.chat.template_text.empty()) note("--chat-template does nothing beside -no-cnv");
    if (o.chat.single_turn) note("-st does nothing beside -no-cnv");
  }
  if (o.context.keep != 0 && o.context.overflow == Overflow::Error)
    note("--keep does nothing without --on-overflow shift or truncate");
}

void check_mode(RunOptions& o) {
  check_batch_options(o.batch);
  check_prompt_cache_options(o.prompt_cache);
  check_speculation_options(o.speculation);
  o.model.predicts = wants_prediction(o.speculation) && !o.batch.wanted();
  check_reasoning_options(o.chat.reasoning);
  if (o.tune) refuse_given_threads(o.model);
  if (o.batch.wanted()) {
    if (o.prompt.given()) throw Error(ErrorKind::Usage, "a batch has its own prompts: give --batch, or -p and -f");
    if (o.chat.reasoning.show != ShowThinking::Auto)
      throw Error(ErrorKind::Usage, "--show-thinking is for one answer or a chat; rows have reasoning_content");
    if (o.chat.interactive) throw Error(ErrorKind::Usage, "-i chats, --batch does not: give one");
    if (!o.prompt_cache.file.empty())
      throw Error(ErrorKind::Usage,
                  "--prompt-cache is for one answer or a chat; a batch finds common beginnings itself");
    refuse_speculation_in_batch(o.speculation);
    return refuse_options_of_one_answer(o, "a batch");
  }
  if (o.chat.interactive && o.chat.format == ChatOptions::Format::Raw) {
    throw Error(ErrorKind::Usage, "-i needs a chat template, and -no-cnv asks for none");
  }
  const bool plans_chat = o.dry_run && o.chat.interactive;
  if (wants_chat(o) && o.chat.format == ChatOptions::Format::Raw) {
    throw Error(ErrorKind::Usage, "-no-cnv completes a text: give it with -p or -f");
  }
  if (!o.chat.saved.empty() && !wants_chat(o)) {
    throw Error(ErrorKind::Usage, "--load goes on with a chat, and --dry-run and --explain-prompt begin none");
  }
  if (wants_chat(o) || plans_chat) {
    if (!o.prompt.reads_stdin()) will_read("the chat", "-");
    if (o.output.control_tokens == AnswerOptions::ControlTokens::Shown)
      throw Error(ErrorKind::Usage, "--special is for one answer or a batch: in a chat its text would become messages");
    return refuse_options_of_one_answer(o, "a chat");
  }
  check_output_options(o.output);
  if (o.output.format != OutputFormat::Text && o.chat.reasoning.show == ShowThinking::Stdout) {
    throw Error(ErrorKind::Usage, "--show-thinking stdout is about text: JSON has it in reasoning_content");
  }
  if (!o.output.prefill.empty() && o.constraint.given()) {
    throw Error(ErrorKind::Usage,
                "--prefill together with a grammar, schema, regex or choice: that one says how the answer begins");
  }
  if (o.dry_run && !o.prompt.given()) return;
  const bool by_default = !o.prompt.given();
  if (find_prompt(o.prompt)) {
    if (by_default) will_read("the prompt", "-");
  } else {
    throw Error(ErrorKind::Usage,
                "no prompt: give one with -p TEXT, or -f FILE (- for stdin), or many with --batch FILE");
  }
}

TypedSettings typed_settings(const Command& cli) {
  const auto is_typed = [&cli](const std::string& option) {
    return cli.times_given(option) > 0 && !is_set_elsewhere(option);
  };
  return {.names = settings_of(is_typed), .system = is_typed("--system-prompt") || is_typed("--system-prompt-file")};
}

bool writes_file(const RunOptions& o) { return !o.batch.output.empty() && o.batch.output != "-"; }

/// What is read and written beside the files that options name.
void declare_more_files(const RunOptions& o) {
  if (o.batch.wanted() && writes_file(o)) will_write("-o", state_path(o.batch.output));
  if (!o.chat.saved.empty()) will_read("--load", cache_of_saved(o.chat.saved));
}

/// What could not be written in the end is refused before all else.
void require_writable_files(const RunOptions& o) {
  require_writable_cache(o.prompt_cache);
  if (!o.dump_graph.empty()) require_openable(o.dump_graph);
  if (!writes_file(o)) return;
  require_openable(o.batch.output);
  std::error_code unknown;
  const bool keeps_state = !is_there(o.batch.output) || std::filesystem::is_regular_file(o.batch.output, unknown);
  if (o.batch.wanted() && keeps_state) require_writable(state_path(o.batch.output));
}

}  // namespace

bool wants_chat(const RunOptions& o) {
  if (o.batch.wanted() || o.explain_prompt || o.dry_run) return false;
  if (o.chat.interactive) return true;
  return !o.prompt.given() && ::isatty(STDIN_FILENO) == 1 && stdout_is_terminal();
}

std::optional<int> read_options(int argc, char** argv, RunOptions& o) {
  Command cli(
      "Answers a message, or completes a text, with a language model from a GGUF file.\n\n"
      "Examples:\n"
      "  llm-run -m chat-model.gguf -p \"Why is the sky blue?\" -sys \"Be brief.\"\n"
      "  llm-run -m model.gguf -no-cnv -p \"Once upon a time\" -n 100\n"
      "  llm-run -m model.gguf -p \"The capital of France is\" --temp 0\n"
      "  generate-prompt | llm-run -m model.gguf > answer.txt");
  DoctorOptions doctor;
  const Command* doctor_command = add_doctor_command(cli, doctor);
  add_completion_command(cli);
  begin_group(cli, "Model");
  add_model_options(cli, o.model);
  add_adapter_options(cli, o.model.adapters);
  cli.add_flag("--tune", o.tune,
               "measure for some seconds how many threads are fastest, and keep that for later runs of this model");
  begin_group(cli, "Prompt");
  add_prompt_input(cli, o.prompt);
  add_length_options(cli, o);
  add_text_options(cli, o);
  begin_group(cli, "Chat");
  add_chat_options(cli, o.chat);
  add_reasoning_options(cli, o.chat.reasoning);
  begin_group(cli, "Context");
  add_context_options(cli, o.context);
  add_prompt_cache_options(cli, o.prompt_cache);
  add_sampling_options(cli, o.sampling);
  add_constraint_options(cli, o.constraint);
  add_speculation_options(cli, o.speculation);
  begin_group(cli, "Output");
  add_output_options(cli, o.output);
  add_answer_file(cli, o.batch.output);
  add_batch_options(cli, o.batch);
  begin_group(cli, "Looking inside");
  cli.add_flag("--explain-prompt", o.explain_prompt,
               "print the prompt, its tokens and what made each of them, instead of an answer");
  cli.add_flag(
      "--dry-run", o.dry_run,
      "say what the run would take instead of running it (code 4: it does not fit); from the files' headers alone, but "
      "for the time of a batch, whose steps are measured");
  cli.add_flag("--strict", o.strict, "a run that gave a warning ends with code 10");
  cli.add_flag("--profile,--perf", o.profile, "print the time and the memory traffic of each node");
  cli.add_option("--dump-graph", o.dump_graph,
                 "write the graph before and after passes; a name that ends in .dot gets Graphviz")
      ->type_name("FILE")
      ->take_last();
  add_accepted_options(cli);
  add_accepted_flag(cli, "--no-warmup", kNoWarmUp);
  add_accepted_flag(cli, "--cont-batching", "rows of a batch always join and leave at any step");
  add_common_options(cli);
  cli.final_callback([&o] { declare_more_files(o); });
  if (const auto code = parse(cli, argc, argv, kPage)) return code;
  if (doctor_command->parsed()) return run_doctor(doctor, o.model.threads);
  o.chat.typed = typed_settings(cli);
  check_mode(o);
  say_what_does_nothing(o);
  require_writable_files(o);
  finish_texts(o);
  o.model.placement.room = {
      .context = o.context.size, .cache = o.context.cache, .batch_tokens = o.context.batch_tokens()};
  if (!o.output.events.empty()) open_events(o.output.events);
  return std::nullopt;
}

}  // namespace llm::app
