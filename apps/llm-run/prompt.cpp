#include "prompt.h"

#include <algorithm>

#include "base/error.h"
#include "common/input.h"
#include "common/messages.h"
#include "text/chat_template.h"

namespace llm::app {
namespace {

std::string special_text(const Tokenizer& tokenizer, Token token) {
  return token == kNoToken ? std::string() : std::string(tokenizer.token_text(token));
}

struct Choice {
  std::optional<ChatTemplate> chosen;
  std::string name;
};

Choice choose_template(const ChatOptions& o, const Metadata& metadata) {
  if (o.format == ChatOptions::Format::Raw) return {};
  if (!o.template_file.empty()) {
    return {ChatTemplate(read_input(o.template_file), {o.template_file, {}}), "the template in " + o.template_file};
  }
  if (!o.template_text.empty()) {
    if (ChatTemplate::is_source(o.template_text)) {
      return {ChatTemplate(o.template_text, {{}, "--chat-template"}), "the template of --chat-template"};
    }
    return {ChatTemplate::by_name(&metadata, o.template_text), "the template " + o.template_text};
  }
  if (auto found = ChatTemplate::from_file(metadata, false)) return {std::move(found), "the file's chat template"};
  return {};
}

void refuse_without_template(const ChatOptions& o, const std::string& file) {
  const bool raw = o.format == ChatOptions::Format::Raw;
  const bool asked = o.format == ChatOptions::Format::Template;
  const bool needs_one = o.system || !o.system_file.empty() || !o.template_kwargs.empty();
  if (raw && needs_one) {
    throw Error(ErrorKind::Usage, "-sys and --chat-template-kwargs need a chat template, and -no-cnv asks for none");
  }
  if (!raw && (asked || needs_one)) {
    throw Error(
        ErrorKind::Template,
        ErrorParts{.file = file, .problem = "has no chat template; give one with --chat-template, e.g. chatml"});
  }
}

ChatInput conversation(const ChatOptions& o, const Tokenizer& tokenizer, const std::string& text) {
  std::vector<jinja::Value> messages;
  std::string system = o.system.value_or("");
  if (!o.system_file.empty()) {
    const std::string more = read_input(o.system_file);
    system += (system.empty() ? "" : "\n\n") + more.substr(0, more.size() - (more.ends_with('\n') ? 1 : 0));
  }
  if (!system.empty()) messages.push_back(chat_message("system", system));
  messages.push_back(chat_message("user", text));
  ChatInput input;
  input.messages = chat_messages(std::move(messages));
  input.bos = special_text(tokenizer, tokenizer.special().bos);
  input.eos = special_text(tokenizer, tokenizer.special().eos);
  input.now = local_now();
  for (const std::string& json : o.template_kwargs)
    read_chat_variables(json, "--chat-template-kwargs", input.variables);
  return input;
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

Prompt make_prompt(const RunOptions& options, const Metadata& metadata, const Tokenizer& tokenizer,
                   const std::string& text) {
  const ChatOptions& o = options.chat;
  Prompt prompt;
  Choice choice = choose_template(o, metadata);
  if (choice.chosen) {
    const ChatInput input = conversation(o, tokenizer, text);
    for (const auto& [name, value] : input.variables) {
      if (!choice.chosen->reads(name)) note("the chat template does not read the variable \"" + escaped(name) + "\"");
    }
    prompt.text = choice.chosen->render(input);
    prompt.made_by = choice.name;
  } else {
    refuse_without_template(o, metadata.file());
    if (o.format == ChatOptions::Format::ByFile) {
      note("the file has no chat template: raw completion (-no-cnv: without this note; --chat-template gives one)");
    }
    prompt.text.text = text;
  }
  prompt.tokens = tokenizer.encode(prompt.text);
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
