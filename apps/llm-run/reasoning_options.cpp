#include "reasoning_options.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

constexpr std::string_view kLevels[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

ReasoningFormat reasoning_format(const std::string& text) {
  if (text == "auto") return ReasoningFormat::Auto;
  if (text == "none") return ReasoningFormat::InText;
  if (text == "deepseek") return ReasoningFormat::Apart;
  if (text == "deepseek-legacy") return ReasoningFormat::ApartAndInText;
  throw Error(ErrorKind::Usage,
              "option --reasoning-format: \"" + escaped(text) + "\" is not none, deepseek, deepseek-legacy or auto");
}

ShowThinking show_thinking(const std::string& text) {
  if (text == "auto") return ShowThinking::Auto;
  if (text == "stderr") return ShowThinking::Stderr;
  if (text == "stdout") return ShowThinking::Stdout;
  if (text == "hide") return ShowThinking::Hide;
  throw Error(ErrorKind::Usage,
              "option --show-thinking: \"" + escaped(text) + "\" is not auto, stderr, stdout or hide");
}

}  // namespace

ThinkingWish thinking_wish(const std::string& option, const std::string& text) {
  if (text == "on") return ThinkingWish::On;
  if (text == "off") return ThinkingWish::Off;
  if (text == "auto") return ThinkingWish::Auto;
  throw Error(ErrorKind::Usage, "option " + option + ": \"" + escaped(text) + "\" is not on, off or auto");
}

const char* name(ThinkingWish wish) {
  return wish == ThinkingWish::On ? "on" : wish == ThinkingWish::Off ? "off" : "auto";
}

std::vector<std::string> reasoning_efforts() {
  std::vector<std::string> efforts{kTemplatesEffort};
  efforts.insert(efforts.end(), std::begin(kLevels), std::end(kLevels));
  return efforts;
}

std::string reasoning_effort(const std::string& option, const std::string& text) {
  if (text == kTemplatesEffort) return {};
  if (std::find(std::begin(kLevels), std::end(kLevels), text) != std::end(kLevels)) return text;
  std::string levels;
  for (const std::string& level : reasoning_efforts()) levels += (levels.empty() ? "" : ", ") + level;
  throw Error(ErrorKind::Usage, "option " + option + ": \"" + escaped(text) + "\" is no level; there are " + levels);
}

void add_reasoning_options(Command& cli, ReasoningChoice& o) {
  const auto text = [&cli](const std::string& names, auto set, const std::string& help, const std::string& type) {
    cli.add_option_function<std::string>(names, set, help)->type_name(type)->take_last();
  };
  text(
      "--reasoning", [&o](const std::string& t) { o.wish = thinking_wish("--reasoning", t); },
      "whether the model thinks before it answers, where its chat template has a variable for it; off ends the "
      "thinking at once where it has none (default auto: as the template does)",
      "on|off|auto");
  text(
      "--reasoning-format", [&o](const std::string& t) { o.format = reasoning_format(t); },
      "where the thinking is; none: in the text, with its marks; deepseek: apart from it, in JSON as "
      "reasoning_content; deepseek-legacy: both (default auto: deepseek)",
      "none|deepseek|deepseek-legacy|auto");
  text(
      "--reasoning-effort", [&o](const std::string& t) { o.effort = reasoning_effort("--reasoning-effort", t); },
      "how much to think, for templates that read reasoning_effort", "default|none|minimal|low|medium|high|xhigh|max");
  add_integer(cli, "--reasoning-budget", o.budget, kNoBudget, kMaxInt32,
              "most tokens of thinking, which is ended then; 0: none (default -1: no limit)");
  cli.add_option("--reasoning-budget-message", o.budget_message, "what the thinking ends with if the budget ended it")
      ->type_name("TEXT")
      ->take_last();
  const auto keep = [&](const std::string& name, ThinkingWish wish, const std::string& help) {
    cli.add_flag_callback(
           name, [&o, wish] { o.keep = wish; }, help)
        ->trigger_on_parse();  // of the two the last one counts
  };
  keep("--reasoning-preserve", ThinkingWish::On,
       "later prompts have the thinking of earlier answers, where the chat template has a variable for it (default: as "
       "the template does)");
  keep("--no-reasoning-preserve", ThinkingWish::Off, "they do not");
  text(
      "--show-thinking", [&o](const std::string& t) { o.show = show_thinking(t); },
      "where thinking is shown (default auto: dimmed, before the answer, on a terminal; else not)",
      "auto|stderr|stdout|hide");
}

void check_reasoning_options(const ReasoningChoice& o) {
  if (o.is_in_text() && o.show != ShowThinking::Auto) {
    throw Error(ErrorKind::Usage,
                "--show-thinking is about thinking that is apart from the text, and --reasoning-format keeps it there");
  }
}

}  // namespace llm::app
