// llm-inspect render: a chat template's text on stdout, exactly.
#include <limits>

#include "base/error.h"
#include "commands.h"
#include "common/input.h"
#include "common/messages.h"
#include "common/output.h"
#include "gguf/file.h"
#include "text/chat_template.h"
#include "text/jinja/json.h"

namespace llm::inspect {
namespace {

std::string special_text(const Tokenizer& tokenizer, Token token) {
  return token == kNoToken ? std::string() : std::string(tokenizer.token_text(token));
}

ChatTemplate choose_template(const RenderOptions& o, const Metadata* metadata, ToolsOffered tools) {
  if (!o.template_file.empty())
    return ChatTemplate(app::read_input(o.template_file, app::kMostText), {o.template_file, {}});
  if (!o.template_name.empty()) return ChatTemplate::by_name(metadata, o.template_name);
  if (metadata == nullptr) throw Error(ErrorKind::Usage, "give a GGUF file, or a template with --template-file");
  if (auto found = ChatTemplate::from_file(*metadata, tools)) return std::move(*found);
  throw Error(
      ErrorKind::Notation,
      ErrorParts{.file = o.file, .problem = "has no chat template; --template-file or --chat-template gives one"});
}

/// A line per stretch: whose it is, its bytes, its text.
std::string span_lines(const PromptText& prompt) {
  std::string lines;
  const auto add = [&](std::string_view whose, std::size_t begin, std::size_t end) {
    if (begin == end) return;
    const std::string range = std::to_string(begin) + ".." + std::to_string(end);
    lines +=
        std::string(whose) + " " + std::string(range.size() < 13 ? 13 - range.size() : 0, ' ') + range + "  \"" +
        escaped(std::string_view(prompt.text).substr(begin, end - begin), std::numeric_limits<std::size_t>::max()) +
        "\"\n";
  };
  std::size_t at = 0;
  for (const TextSpan& user : prompt.user) {
    add("template", at, user.begin);
    add("messages", user.begin, user.end);
    at = user.end;
  }
  add("template", at, prompt.text.size());
  return lines;
}

}  // namespace

void render(const RenderOptions& o) {
  if (!o.template_file.empty() && !o.template_name.empty())
    throw Error(ErrorKind::Usage, "give either --template-file or --chat-template");
  ChatInput input = read_chat_input(app::read_input(o.messages, app::kMostText), o.messages);
  if (!o.tools.empty())
    input.tools = jinja::from_json(app::read_input(o.tools, app::kMostText), jinja::Origin::User, o.tools);
  if (!o.tools.empty() && !input.tools.is_sequence())
    throw Error(ErrorKind::Usage, ErrorParts{.file = o.tools, .problem = "is no JSON array of tools"});
  if (!o.kwargs.empty()) read_chat_variables(o.kwargs, "--kwargs", input.variables);
  if (o.no_generation_prompt) {
    input.add_generation_prompt = false;
    input.variables.erase("add_generation_prompt");
  }
  input.now = o.now.empty() ? local_now() : parse_now(o.now);

  std::optional<GgufFile> file;
  if (!o.file.empty()) {
    Warnings warnings;
    file = GgufFile::open(o.file, warnings);
    const auto tokenizer = Tokenizer::load(file->metadata(), warnings);
    app::print_warnings(warnings);
    if (input.bos.empty()) input.bos = special_text(*tokenizer, tokenizer->special().bos);
    if (input.eos.empty()) input.eos = special_text(*tokenizer, tokenizer->special().eos);
  }
  if (o.bos) input.bos = *o.bos;
  if (o.eos) input.eos = *o.eos;
  const ToolsOffered tools = input.tools.is_none() ? ToolsOffered::No : ToolsOffered::Yes;
  const ChatTemplate chosen = choose_template(o, file ? &file->metadata() : nullptr, tools);
  const PromptText prompt = chosen.render(input);
  app::write_stdout(o.spans ? span_lines(prompt) : prompt.text);
}

}  // namespace llm::inspect
