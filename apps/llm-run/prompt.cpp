#include "prompt.h"

#include <algorithm>

#include "base/error.h"
#include "common/input.h"
#include "common/messages.h"

namespace llm::app {
namespace {

std::string special_text(const Tokenizer& tokenizer, Token token) {
  return token == kNoToken ? std::string() : std::string(tokenizer.token_text(token));
}

std::string read_system(const ChatOptions& o) {
  std::string system = o.system.value_or("");
  if (o.system_file.empty()) return system;
  const std::string more = read_input(o.system_file);
  return system + (system.empty() ? "" : "\n\n") + more.substr(0, more.size() - (more.ends_with('\n') ? 1 : 0));
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
    : options_(options), metadata_(metadata), tokenizer_(tokenizer), system_(read_system(options)) {
  for (const std::string& json : options.template_kwargs) {
    read_chat_variables(json, "--chat-template-kwargs", variables_);
  }
  plain_ = choose(false);
  with_tools_ = choose(true);
  if (!has_template()) refuse_without_template();
}

PromptMaker::Choice PromptMaker::choose(bool with_tools) const {
  const ChatOptions& o = options_;
  if (o.format == ChatOptions::Format::Raw) return {};
  if (!o.template_file.empty()) {
    return {ChatTemplate(read_input(o.template_file), {o.template_file, {}}), "the template in " + o.template_file};
  }
  if (!o.template_text.empty()) {
    if (ChatTemplate::is_source(o.template_text)) {
      return {ChatTemplate(o.template_text, {{}, "--chat-template"}), "the template of --chat-template"};
    }
    return {ChatTemplate::by_name(&metadata_, o.template_text), "the template " + o.template_text};
  }
  if (auto found = ChatTemplate::from_file(metadata_, with_tools)) {
    return {std::move(found), with_tools ? "the file's chat template for tools" : "the file's chat template"};
  }
  return {};
}

void PromptMaker::refuse_without_template() const {
  const ChatOptions& o = options_;
  const bool raw = o.format == ChatOptions::Format::Raw;
  const bool needs_one = !system_.empty() || !o.template_kwargs.empty();
  if (raw && needs_one) {
    throw Error(ErrorKind::Usage, "-sys and --chat-template-kwargs need a chat template, and -no-cnv asks for none");
  }
  if (o.format == ChatOptions::Format::Template || needs_one) {
    throw Error(ErrorKind::Notation,
                ErrorParts{.file = metadata_.file(),
                           .problem = "has no chat template; give one with --chat-template, e.g. chatml"});
  }
}

void PromptMaker::say_what_is_lost() const {
  if (!has_template() && options_.format == ChatOptions::Format::ByFile) {
    note("the file has no chat template: raw completion (-no-cnv: without this note; --chat-template gives one)");
  }
  for (const auto& [name, value] : variables_) {
    if (!plain_.chosen->reads(name)) note("the chat template does not read the variable \"" + escaped(name) + "\"");
  }
}

Prompt PromptMaker::from_text(PromptText text) const {
  if (!has_template()) return finish({.text = std::move(text), .tokens = {}, .made_by = {}});
  ChatInput input;
  input.messages = chat_messages({chat_message("user", text.text)});
  return from_chat(std::move(input));
}

Prompt PromptMaker::from_chat(ChatInput input) const {
  if (!has_template()) {
    throw Error(ErrorKind::Notation, "messages need a chat template; give one with --chat-template, e.g. chatml");
  }
  const Choice& choice = input.tools.is_none() ? plain_ : with_tools_;
  std::vector<jinja::Value> messages = input.messages.items();
  if (!system_.empty() && !begins_with_system(messages)) {
    messages.insert(messages.begin(), chat_message("system", system_));
    input.messages = chat_messages(std::move(messages));
  }
  input.bos = special_text(tokenizer_, tokenizer_.special().bos);
  input.eos = special_text(tokenizer_, tokenizer_.special().eos);
  input.now = local_now();
  input.variables.insert(variables_.begin(), variables_.end());
  return finish({.text = choice.chosen->render(input), .tokens = {}, .made_by = choice.name});
}

Prompt PromptMaker::finish(Prompt prompt) const {
  prompt.tokens = tokenizer_.encode(prompt.text);
  if (prompt.tokens.ids.empty()) {
    throw Error(ErrorKind::Usage, "the prompt is empty, and this model has no token that begins a text");
  }
  return prompt;
}

std::string explain(const Prompt& prompt, const Tokenizer& tokenizer) {
  const bool raw = prompt.made_by.empty();
  const std::size_t n = prompt.tokens.ids.size();
  std::string out = "The prompt, " + (raw ? "raw text" : "by " + prompt.made_by) + ", " +
                    number_text(static_cast<std::int64_t>(prompt.text.text.size())) + " bytes:\n\n" + prompt.text.text +
                    "\n\nIts " + number_text(static_cast<std::int64_t>(n)) + " tokens (" +
                    (raw ? "prompt: the text" : "template: the template's text, user: the messages'") +
                    ", rule: put in as the vocabulary asks):\n\n     id  from      kind     text\n";
  for (std::size_t i = 0; i < n; ++i) {
    const Token token = prompt.tokens.ids[i];
    const std::string id = std::to_string(token);
    out += std::string(id.size() < 7 ? 7 - id.size() : 0, ' ') + id + "  " +
           padded(origin_name(prompt.tokens.sources[i].origin, raw), 8) + "  " +
           padded(kind_name(tokenizer.kind(token)), 7) + "  \"" + escaped(tokenizer.piece(token, true)) + "\"\n";
  }
  return out;
}

}  // namespace llm::app
