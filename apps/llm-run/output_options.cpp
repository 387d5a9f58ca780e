#include "output_options.h"

#include "base/error.h"
#include "common/numbers.h"
#include "common/terminal.h"

namespace llm::app {
namespace {

constexpr double kMostSeconds = 1e9;

Colours colours(const std::string& text) {
  if (text == "auto") return Colours::Auto;
  if (text == "on") return Colours::On;
  if (text == "off") return Colours::Off;
  throw Error(ErrorKind::Usage, "option --color: \"" + escaped(text) + "\" is not auto, on or off");
}

OutputFormat output_format(const std::string& text) {
  if (text == "text") return OutputFormat::Text;
  if (text == "json") return OutputFormat::Json;
  if (text == "jsonl") return OutputFormat::JsonLines;
  throw Error(ErrorKind::Usage, "option --output-format: \"" + escaped(text) + "\" is not text, json or jsonl");
}

}  // namespace

void add_output_options(Command& cli, OutputOptions& o) {
  const auto text = [&cli](const std::string& name, auto set, const std::string& help, const std::string& type) {
    cli.add_option_function<std::string>(name, set, help)->type_name(type)->take_last();
  };
  const auto flag = [&cli](const std::string& name, auto set, const std::string& help) {
    cli.add_flag_callback(name, set, help)->trigger_on_parse();  // of two opposites the last one counts
  };
  text(
      "--output-format", [&o](const std::string& t) { o.format = output_format(t); },
      "json: one object at the end; jsonl: one per token, then that (default text)", "text|json|jsonl");
  text(
      "--logprobs",
      [&o](const std::string& t) { o.logprobs = static_cast<int>(parse_integer("--logprobs", t, 0, kMostLogprobs)); },
      "log probabilities of the tokens and of the N likeliest in their place; needs json, jsonl or --batch", "N");
  text(
      "--max-time", [&o](const std::string& t) { o.max_seconds = parse_real("--max-time", t, 0, kMostSeconds); },
      "end the answer so many seconds after the program's start, code 124; a row of a batch so long after its first "
      "step, as failed",
      "SEC");
  cli.add_option("--prefill", o.prefill, "the answer begins with this text, which the output has too")
      ->type_name("TEXT")
      ->take_last();
  flag(
      "--display-prompt", [&o] { o.display_prompt = true; }, "show the prompt on stderr, as the model gets it");
  flag(
      "--no-display-prompt", [&o] { o.display_prompt = false; }, "do not (default)");
  flag(
      "--show-timings", [&o] { o.show_timings = true; },
      "the line with figures at the end, on stderr (default); of a chat behind each answer, if this is given");
  flag(
      "--no-show-timings,--no-perf", [&o] { o.show_timings = false; }, "not that line");
  text(
      "--events", [&o](const std::string& t) { o.events = t; },
      "the run as JSON objects for other programs, a line each: load, prefill, decode, done", "FILE|fd:N");
  flag(
      "--special", [&o] { o.control_tokens = AnswerOptions::ControlTokens::Shown; },
      "control tokens that the model writes are text of the answer, the one that ends it, too");
  text(
      "--color", [](const std::string& t) { set_colours(colours(t)); },
      "colours (default auto: on terminals, unless NO_COLOR is set)", "auto|on|off");
  flag("--simple-io", set_simple_io,
       "no editing of lines, no bars, no colours: for terminals and programs that know lines only");
  flag("--raw", set_raw_text, "a terminal gets the control characters that the model writes as they are");
  flag(
      "--no-newline", [&o] { o.text_end = TextEnd::Exact; },
      "the exact bytes of the answer, in place of one line feed at its end");
}

void add_answer_file(Command& cli, std::string& path) {
  cli.add_option("-o,--output,--output-file", path,
                 "file that gets the answer, or the rows of a batch (default: stdout)")
      ->type_name("FILE")
      ->take_last();
}

void check_output_options(const OutputOptions& o) {
  if (o.logprobs && o.format == OutputFormat::Text) {
    throw Error(ErrorKind::Usage, "--logprobs needs --output-format json or jsonl: text has no place for them");
  }
  if (o.text_end == TextEnd::Exact && o.format != OutputFormat::Text) {
    throw Error(ErrorKind::Usage, "--no-newline is about text: JSON lines end in a line feed");
  }
}

std::string option_of_one_answer(const OutputOptions& o) {
  if (o.format != OutputFormat::Text) return "--output-format";
  if (!o.prefill.empty()) return "--prefill";
  if (o.display_prompt) return "--display-prompt";
  return o.text_end == TextEnd::Exact ? "--no-newline" : "";
}

}  // namespace llm::app
