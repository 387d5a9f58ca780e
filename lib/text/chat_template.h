// Conversations as prompts: which template applies, what it gets to see, and which of the result's characters are the
// messages' own, so that these never become control tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"
#include "text/jinja/template.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"

namespace llm {

/// A conversation, and everything else that a template may ask for.
struct ChatInput {
  jinja::Value messages;  ///< a list of dicts
  jinja::Value tools;     ///< a list, or None
  bool add_generation_prompt = true;
  std::string bos, eos;      ///< texts of these tokens; empty: the template does not see any
  jinja::Context variables;  ///< further ones: documents, enable_thinking ...; they win over those above
  jinja::Now now;
};

/// A message that is only text.
jinja::Value chat_message(std::string_view role, std::string_view content);
/// An answer with the thinking before it, which templates keep or drop.
jinja::Value chat_message(std::string_view role, std::string_view content, std::string_view thinking);
jinja::Value chat_messages(std::vector<jinja::Value> messages);
/// Reads {"messages": [...], "tools": [...], other variables ...} or the array of messages alone. Throws
/// ErrorKind::Usage, with `name` as the file: also for parts of a message's content that are no text.
ChatInput read_chat_input(std::string_view json, const std::string& name);
/// Variables from a JSON object.
void read_chat_variables(std::string_view json, const std::string& name, jinja::Context& into);
/// This moment in local time.
jinja::Now local_now();
jinja::Now local_time(std::chrono::system_clock::time_point);
/// "2025-07-10", "2025-07-10T12:00" or "2025-07-10T12:00:30", with a "Z" or not. Throws ErrorKind::Usage.
jinja::Now parse_now(std::string_view iso);

/// Whether a conversation has tools to offer, for which a file may have a template of its own.
enum class ToolsOffered : std::uint8_t { No, Yes };

class ChatTemplate {
 public:
  ChatTemplate(std::string_view source, jinja::TemplateName name)
      : template_(source, std::move(name)), reasoning_(reasoning_markers_in(source)) {}

  /// The default template of a file, or where there are tools its template "tool_use" if it has one; nothing if the
  /// file has none.
  static std::optional<ChatTemplate> from_file(const Metadata&, ToolsOffered);
  /// A template of the file's by name ("default" is the unnamed one), or one of those that everybody knows. Throws
  /// ErrorKind::Usage that lists both if there is no such name.
  static ChatTemplate by_name(const Metadata*, std::string_view name);
  /// Names of the file's templates: "default" and others.
  static std::vector<std::string> names_in(const Metadata&);
  /// Text with a tag in it is a template, not the name of one.
  static bool is_source(std::string_view name_or_source);

  /// Content in parts goes to a template that writes the parts of these messages, and to any other as one text; content
  /// that is null goes to one that has a use for it, and to any other as an empty text. Throws ErrorKind::Notation.
  PromptText render(const ChatInput&) const;
  /// How answers set their thinking apart, as far as the template says.
  const std::optional<ReasoningMarkers>& reasoning() const { return reasoning_; }
  bool reads(std::string_view variable) const { return template_.reads(variable); }
  std::string_view source() const { return template_.source(); }

 private:
  jinja::Rendered rendered(const ChatInput&, const jinja::Value& messages) const;
  bool writes_parts(const ChatInput&, const jinja::Value& messages) const;
  bool writes_arguments(const ChatInput&, const jinja::Value& messages) const;
  jinja::Rendered rendered_with_nulls(const ChatInput&, const jinja::Value& messages) const;

  jinja::Template template_;
  std::optional<ReasoningMarkers> reasoning_;
};

}  // namespace llm
