#include "chat_controls.h"

#include <algorithm>

#include "common/escapes.h"
#include "common/input.h"
#include "common/numbers.h"
#include "constrain/grammar.h"
#include "constrain/token_masks.h"

namespace llm::app {

namespace {

/// As a shell would take them: around the whole text quotes are no part of it.
std::string without_quotes(const std::string& text) {
  const bool quoted = text.size() >= 2 && text.front() == '"' && text.find('"', 1) == text.size() - 1;
  return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

void ChatControls::system(const std::string& text) {
  PromptMaker& prompts = chat_.prompts;
  if (text.empty()) {
    return chat_.tell(prompts.system().empty() ? "there is no system text\n" : prompts.system() + "\n");
  }
  const std::string before = prompts.system();
  prompts.set_system(without_quotes(text));
  try {
    chat_.talk.require_renders();
  } catch (const Error&) {
    prompts.set_system(before);
    throw;
  }
  chat_.tell(prompts.system().empty() ? "no system text any more\n" : "the system text is replaced\n");
}

void ChatControls::set(const std::string& text) {
  if (text.empty()) return chat_.tell(list_settings(chat_.settings, chat_.prompts.thinking(), chat_.width()));
  const std::size_t space = std::min(text.find_first_of(" \t="), text.size());
  const std::size_t value = std::min(text.find_first_not_of(" \t=", space), text.size());
  const std::string given = text.substr(0, space), name = setting_name(given), what = text.substr(value);
  if (name == "parameter") throw Error(ErrorKind::Usage, "/set takes the name itself: /set " + escaped(what));
  const std::string setting = known_setting(name);
  if (setting == "stop") return stop(what);
  if (setting == "reasoning_effort" && !what.empty()) return set_effort(what);
  if (setting.starts_with("reasoning")) return think(what);
  if (what.empty()) return chat_.tell(show_setting(chat_.settings, chat_.prompts.thinking(), name, chat_.width()));
  const Escapes escapes = chat_.options.escape ? Escapes::Processed : Escapes::Kept;
  change_setting(chat_.settings, name, what, {escapes, chat_.model.tokenizer(), given});
  chat_.tell(name + " is " + what + "\n");
}

void ChatControls::set_effort(const std::string& value) {
  chat_.prompts.set_reasoning_effort(reasoning_effort("/set reasoning_effort", value));
  chat_.tell(chat_.prompts.describe_thinking() + "\n");
}

void ChatControls::stop(const std::string& text) {
  std::vector<std::string>& stops = chat_.settings.answer.stop_strings;
  if (text == "off") {
    stops.clear();
  } else if (!text.empty()) {
    stops.push_back(chat_.options.escape ? process_escapes(text) : text);
  }
  std::string list;
  for (const std::string& s : stops) list += " \"" + escaped(s) + "\"";
  chat_.tell(list.empty() ? "no text ends answers any more\n" : "answers end before" + list + "\n");
}

void ChatControls::think(const std::string& what) {
  PromptMaker& prompts = chat_.prompts;
  if (what == "on" || what == "off" || what == "auto") {
    prompts.set_thinking(thinking_wish("/think", what));
  } else if (!what.empty()) {
    if (what.find_first_not_of("-0123456789") != std::string::npos) {
      throw Error(ErrorKind::Usage, "/think takes on, off, auto or a number of tokens");
    }
    prompts.set_thinking_budget(parse_integer("/think", what, kNoBudget, kMaxInt32));
    if (prompts.thinking().wish == ThinkingWish::Off) prompts.set_thinking(ThinkingWish::Auto);
  }
  chat_.tell(prompts.describe_thinking() + "\n");
}

void ChatControls::constrain(const ChatLine& line) {
  if (line.text == "off") {
    chat_.settings.answer.constraint.reset();
    return chat_.tell("answers have no given form\n");
  }
  ConstraintChoice choice;
  (*line.command == ChatCommand::Json ? choice.schema_file : choice.grammar_file) = regular_file(line.text);
  finish_constraint(choice, Escapes::Kept);
  chat_.settings.answer.constraint = constraint_for(*compile_constraint(choice), chat_.model);
  chat_.tell("answers have the form of " + line.text + "\n");
}

}  // namespace llm::app
