#include "prompt.h"

#include <algorithm>

#include "base/error.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/token_input.h"

namespace llm::app {
namespace {

std::string special_text(const Tokenizer& tokenizer, Token token) {
  return token == kNoToken ? std::string() : std::string(tokenizer.token_text(token));
}

std::string read_system(const ChatOptions& o) {
  std::string system = o.system.value_or("");
  if (o.system_file.empty()) return system;
  return system + (system.empty() ? "" : "\n\n") + read_message(o.system_file);
}

/// The first that is given of those that only a chat template can do something with; empty: none.
std::string option_for_template(const ChatOptions& o, const std::string& system) {
  const ReasoningChoice& r = o.reasoning;
  if (!system.empty()) return o.system_file.empty() ? "--system-prompt" : "--system-prompt-file";
  if (!o.template_kwargs.empty()) return "--chat-template-kwargs";
  if (r.wish != ThinkingWish::Auto) return "--reasoning";
  if (r.keep != ThinkingWish::Auto)
    return r.keep == ThinkingWish::On ? "--reasoning-preserve" : "--no-reasoning-preserve";
  if (!r.effort.empty()) return "--reasoning-effort";
  return r.budget != kNoBudget ? "--reasoning-budget" : "";
}

bool begins_with_system(const std::vector<jinja::Value>& messages) {
  if (messages.empty()) return false;
  const jinja::Value* role = messages.front().as<jinja::DictObject>().find("role");
  return role != nullptr && role->is_string() && role->as_string().bytes() == "system";
}

std::string_view origin_name(TokenOrigin origin, bool raw) {
  switch (origin) {
    case TokenOrigin::Rule:
      return "rule";
    case TokenOrigin::Template:
      return raw ? "prompt" : "template";
    case TokenOrigin::User:
      return "user";
  }
  return "";
}

std::string_view kind_name(TokenKind kind) {
  switch (kind) {
    case TokenKind::Control:
      return "control";
    case TokenKind::UserDefined:
      return "added";
    case TokenKind::Byte:
      return "byte";
    case TokenKind::Unknown:
      return "unknown";
    default:
      return "";
  }
}

std::string padded(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(text.size() < width ? width - text.size() : 0, ' ');
}

}  // namespace

PromptMaker::PromptMaker(const ChatOptions& options, const Metadata& metadata, const Tokenizer& tokenizer)
    : options_(options),
      metadata_(metadata),
      tokenizer_(tokenizer),
      given_template_(options.template_file.empty() ? options.template_text
                                                    : read_text(options.template_file, kMostText)),
      system_(read_system(options)),
      thinking_{options.reasoning.wish, options.reasoning.budget, options.reasoning.effort} {
  if (!options.template_file.empty() && !options.template_text.empty())
    note("--chat-template does nothing beside --chat-template-file");
  for (const std::string& json : options.template_kwargs) {
    read_chat_variables(json, "--chat-template-kwargs", given_);
  }
  plain_ = choose(ToolsOffered::No);
  with_tools_ = choose(ToolsOffered::Yes);
  if (!has_template()) refuse_without_template();
  switch_thinking();
}

/// What is given by name counts more than a wish that stands for it.
void PromptMaker::switch_thinking() {
  variables_ = given_;
  const auto set = [this](std::string_view variable, const std::string& json) {
    jinja::Context one;
    read_chat_variables("{\"" + std::string(variable) + "\": " + json + "}", "", one);
    variables_.insert(one.begin(), one.end());
  };
  const auto turn = [&](std::span<const ThinkingSwitch> switches, ThinkingWish wish) {
    bool found = false;
    for (const ThinkingSwitch& s : switches) {
      if (!reads(std::string(s.variable))) continue;
      found = true;
      if (wish != ThinkingWish::Auto) set(s.variable, std::string(wish == ThinkingWish::On ? s.on : s.off));
    }
    return found;
  };
  has_switch_ = turn(thinking_switches(), thinking_.wish);
  has_kept_switch_ = turn(kept_thinking_switches(), options_.reasoning.keep);
  if (reads(std::string(kThinkingBudgetVariable))) {
    has_switch_ = true;
    if (thinking_.wish == ThinkingWish::Off) {
      set(kThinkingBudgetVariable, "0");
    } else if (thinking_.budget != kNoBudget) {
      set(kThinkingBudgetVariable, std::to_string(thinking_.budget));
    }
  }
  if (!thinking_.effort.empty()) set(kReasoningEffortVariable, "\"" + thinking_.effort + "\"");
}

void PromptMaker::set_thinking(ThinkingWish wish) {
  if (wish == ThinkingWish::On && !has_switch_) {
    throw Error(
        ErrorKind::Usage,
        "this chat template has no variable that turns thinking on, such as enable_thinking: the model thinks if "
        "it does so by itself");
  }
  thinking_.wish = wish;
  switch_thinking();
}

void PromptMaker::set_thinking_budget(std::int64_t budget) {
  thinking_.budget = budget;
  switch_thinking();
}

void PromptMaker::set_reasoning_effort(const std::string& effort) {
  if (!reads(std::string(kReasoningEffortVariable))) {
    throw Error(ErrorKind::Usage, "this chat template does not read reasoning_effort");
  }
  thinking_.effort = effort;
  switch_thinking();
}

std::string PromptMaker::describe_thinking() const {
  std::string text = "thinking ";
  text += thinking_.wish == ThinkingWish::Auto ? "as the chat template has it" : name(thinking_.wish);
  if (thinking_.wish == ThinkingWish::Off && !has_switch_) text += ", by ending it at once";
  if (thinking_.budget != kNoBudget && thinking_.wish != ThinkingWish::Off)
    text += ", at most " + number_text(thinking_.budget) + " tokens";
  if (!thinking_.effort.empty()) text += ", effort " + thinking_.effort;
  return text;
}

ReasoningOptions PromptMaker::reasoning_of(const ChatTemplate& made_by, std::string_view prompt) const {
  const std::optional<ReasoningMarkers>& known = made_by.reasoning();
  ReasoningOptions o{.markers = known ? *known : usual_reasoning_markers()};
  o.begins = reasoning_phase_after(o.markers, prompt);
  o.budget = thinking_.wish == ThinkingWish::Off && !has_switch_ ? 0 : thinking_.budget;
  o.budget_message = options_.reasoning.budget_message;
  // Where the template neither knows the marks nor has written one, they are text like any other.
  const bool thinks = known || o.begins != ReasoningPhase::Before;
  o.form = thinks ? ReasoningOptions::Form::Answer : ReasoningOptions::Form::Everything;
  o.text = options_.reasoning.is_in_text() ? ReasoningOptions::Text::Everything : ReasoningOptions::Text::Answer;
  return o;
}

PromptMaker::Choice PromptMaker::choose(ToolsOffered tools) const {
  const ChatOptions& o = options_;
  if (o.format == ChatOptions::Format::Raw) return {};
  if (!o.template_file.empty()) {
    return {ChatTemplate(given_template_, {o.template_file, {}}), "the template in " + o.template_file};
  }
  if (!o.template_text.empty()) {
    if (ChatTemplate::is_source(o.template_text)) {
      return {ChatTemplate(o.template_text, {{}, "--chat-template"}), "the template of --chat-template"};
    }
    try {
      return {ChatTemplate::by_name(&metadata_, o.template_text), "the template " + o.template_text};
    } catch (const Error&) {
      refuse_name_of_file("--chat-template", o.template_text, "--chat-template-file");
      throw;
    }
  }
  if (auto found = ChatTemplate::from_file(metadata_, tools)) {
    return {std::move(found),
            tools == ToolsOffered::Yes ? "the file's chat template for tools" : "the file's chat template"};
  }
  return {};
}

void PromptMaker::refuse_without_template() const {
  const ChatOptions& o = options_;
  const bool raw = o.format == ChatOptions::Format::Raw;
  const std::string wants_one = option_for_template(o, system_);
  if (raw && !wants_one.empty())
    throw Error(ErrorKind::Usage, "option " + wants_one + " needs a chat template, and -no-cnv asks for none");
  if (o.format == ChatOptions::Format::Template || !wants_one.empty()) {
    throw Error(ErrorKind::Notation,
                ErrorParts{.file = metadata_.file(),
                           .problem = "has no chat template; give one with --chat-template, e.g. chatml"});
  }
}

void PromptMaker::require_template() const {
  if (has_template()) return;
  throw Error(ErrorKind::Notation, ErrorParts{.file = metadata_.file(),
                                              .problem = "has no chat template; give one with --chat-template, e.g. "
                                                         "chatml, or a text to complete with -p"});
}

void PromptMaker::require_system() const {
  if (!system_.empty()) (void)from_text({"a", {}});
}

void PromptMaker::say_what_is_lost() const {
  if (!has_template() && options_.format == ChatOptions::Format::ByFile) {
    note("the file has no chat template: raw completion (-no-cnv: without this note; --chat-template gives one)");
  }
  if (!has_switch_ && thinking_.wish == ThinkingWish::On) {
    print_warnings({{"no-thinking-switch",
                     "the chat template has no variable that turns thinking on, such as enable_thinking: the model "
                     "thinks if it does so by itself"}});
  }
  if (!has_kept_switch_ && options_.reasoning.keep != ThinkingWish::Auto) {
    print_warnings({{"no-thinking-switch",
                     "the chat template has no variable that keeps or drops the thinking of earlier answers, such as "
                     "preserve_thinking: it does as it always does"}});
  }
  if (!has_switch_ && thinking_.wish == ThinkingWish::Off) {
    note("the chat template has no variable that turns thinking off: what begins is ended at once");
  }
  say_what_thinking_lacks();
  for (const auto& [name, value] : variables_) {
    if (!plain_.chosen->reads(name)) note("the chat template does not read the variable \"" + escaped(name) + "\"");
  }
}

/// The template has marks of thinking, or begins an answer with one.
bool PromptMaker::may_think() const {
  if (plain_.chosen->reasoning()) return true;
  try {
    return from_text({"a", {}}).reasoning->form == ReasoningOptions::Form::Answer;
  } catch (const Error&) {  // which the prompt itself meets, or not
    return true;
  }
}

/// A model may think all the same, between the usual marks.
void PromptMaker::say_what_thinking_lacks() const {
  const ReasoningChoice& r = options_.reasoning;
  const auto has_none = [](const char* option) {
    note(std::string(option) + " does nothing unless the model writes " + usual_reasoning_markers().open +
         " by itself: the chat template knows no thinking");
  };
  if (!has_template() && r.show != ShowThinking::Auto)
    note("--show-thinking does nothing: raw completion has no thinking");
  const bool asked = r.budget != kNoBudget || r.show != ShowThinking::Auto;
  if (asked && has_template() && !may_think()) {
    if (r.budget != kNoBudget && !reads(std::string(kThinkingBudgetVariable))) has_none("--reasoning-budget");
    if (r.show != ShowThinking::Auto) has_none("--show-thinking");
  }
  if (!r.budget_message.empty() && thinking_.budget == kNoBudget &&
      (thinking_.wish != ThinkingWish::Off || has_switch_))
    note("--reasoning-budget-message does nothing without --reasoning-budget");
}

Prompt PromptMaker::from_text(PromptText text) const {
  if (!has_template()) return finish({.text = std::move(text), .tokens = {}, .made_by = {}});
  if (text.text.empty()) throw Error(ErrorKind::Usage, "the prompt is empty: there is no message to answer");
  ChatInput input;
  input.messages = chat_messages({chat_message("user", text.text)});
  return from_chat(std::move(input));
}

const PromptMaker::Choice& PromptMaker::choice_for(const ChatInput& input) const {
  if (!has_template()) {
    throw Error(ErrorKind::Notation, "messages need a chat template; give one with --chat-template, e.g. chatml");
  }
  return choice_for(input.tools.is_none() ? ToolsOffered::No : ToolsOffered::Yes);
}

PromptText PromptMaker::text_from_chat(ChatInput input) const {
  const ChatTemplate& chosen = *choice_for(input).chosen;
  std::vector<jinja::Value> messages = input.messages.items();
  if (!system_.empty() && !begins_with_system(messages)) {
    messages.insert(messages.begin(), chat_message("system", system_));
    input.messages = chat_messages(std::move(messages));
  }
  input.bos = special_text(tokenizer_, tokenizer_.special().bos);
  input.eos = special_text(tokenizer_, tokenizer_.special().eos);
  input.now = now_ ? *now_ : local_now();
  input.variables.insert(variables_.begin(), variables_.end());
  return chosen.render(input);
}

Prompt PromptMaker::from_chat(ChatInput input) const {
  const Choice& choice = choice_for(input);
  Prompt prompt{.text = text_from_chat(std::move(input)), .tokens = {}, .made_by = choice.name};
  prompt.reasoning = reasoning_of(*choice.chosen, prompt.text.text);
  return finish(std::move(prompt));
}

Prompt PromptMaker::finish(Prompt prompt) const {
  prompt.tokens = tokenizer_.encode(prompt.text);
  if (prompt.tokens.ids.empty()) {
    throw Error(ErrorKind::Usage, "the prompt is empty, and this model has no token that begins a text");
  }
  return prompt;
}

void warn_of_lost_bytes(const Prompt& prompt, const Tokenizer& tokenizer) {
  warn_of_lost_bytes("the prompt", prompt.text.text, prompt.tokens.ids, tokenizer);
}

std::string explain(const Prompt& prompt, const Tokenizer& tokenizer) {
  const bool raw = prompt.made_by.empty();
  const std::size_t n = prompt.tokens.ids.size();
  std::string out =
      "The prompt, " + (raw ? "raw text" : "by " + prompt.made_by) + ", " + number_text(prompt.text.text.size()) +
      " bytes:\n\n" + prompt.text.text + "\n\nIts " + number_text(n) + (n == 1 ? " token (" : " tokens (") +
      (raw ? "prompt: the text" + std::string(prompt.text.user.empty() ? "" : ", user: the answer's beginning")
           : "template: the template's text, user: the messages'") +
      ",\nrule: put in as the vocabulary asks):\n\n     id  from      kind     text\n";
  for (std::size_t i = 0; i < n; ++i) {
    const Token token = prompt.tokens.ids[i];
    const std::string id = std::to_string(token);
    out += std::string(id.size() < 7 ? 7 - id.size() : 0, ' ') + id + "  " +
           padded(origin_name(prompt.tokens.sources[i].origin, raw), 8) + "  " +
           padded(kind_name(tokenizer.kind(token)), 7) + "  \"" + escaped(tokenizer.spelling(token)) + "\"\n";
  }
  if (prompt.reasoning && prompt.reasoning->begins == ReasoningPhase::Inside) {
    out += "\nThe answer begins inside its thinking, which " + escaped(prompt.reasoning->markers.close) + " ends.\n";
  }
  return out;
}

}  // namespace llm::app
