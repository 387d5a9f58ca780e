// From the command line's text to the model's tokens: by a chat template, or as it is.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "gguf/metadata.h"
#include "options.h"
#include "runtime/thinking.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace llm::app {

struct Prompt {
  PromptText text;
  EncodedPrompt tokens;
  std::string made_by;                             ///< what formatted it, in words; empty: it is raw text
  std::optional<ReasoningOptions> reasoning = {};  ///< of its answer; nothing for raw text
};

/// Knows the template that the options and the file ask for. The tokenizer and the metadata must outlive it.
class PromptMaker {
 public:
  /// Throws ErrorKind::Notation and ErrorKind::Usage for a template that is missing or wrong.
  PromptMaker(const ChatOptions&, const Metadata&, const Tokenizer&);

  bool has_template() const { return plain_.chosen.has_value(); }
  /// The template may be another where a request offers tools.
  bool reads(const std::string& variable, ToolsOffered tools = ToolsOffered::No) const {
    const auto& chosen = choice_for(tools).chosen;
    return chosen && chosen->reads(variable);
  }
  /// Throws ErrorKind::Notation if there is none.
  void require_template() const;
  /// Throws ErrorKind::Notation if there is a system text and the template takes none.
  void require_system() const;
  /// Its Jinja text; empty without one.
  std::string_view template_source(ToolsOffered tools = ToolsOffered::No) const {
    const auto& chosen = choice_for(tools).chosen;
    return chosen ? chosen->source() : std::string_view();
  }
  /// What the options call it: "the file's chat template".
  const std::string& template_name() const { return plain_.name; }
  /// What --chat-template-file or --chat-template say: a template, or the name of one.
  const std::string& given_template() const { return given_template_; }
  const std::string& system() const { return system_; }
  void set_system(std::string text) { system_ = std::move(text); }
  /// What templates read as the time from now on, in place of when they are asked.
  void hold_time(std::chrono::system_clock::time_point t) { now_ = local_time(t); }
  /// How much the model is to think, from now on where it is set.
  const ThinkingSettings& thinking() const { return thinking_; }
  /// Throws ErrorKind::Usage for On where the template has no variable for it.
  void set_thinking(ThinkingWish);
  void set_thinking_budget(std::int64_t);
  /// Throws ErrorKind::Usage where the template does not read it.
  void set_reasoning_effort(const std::string&);
  /// "thinking off, at most 100 tokens"
  std::string describe_thinking() const;
  /// A text as the user's message, after the system text of the options; without a template as it is.
  Prompt from_text(PromptText text) const;
  /// Messages, tools and variables of a request, to which the options add their system text and variables.
  Prompt from_chat(ChatInput) const;
  /// The text of such a prompt, which nobody has encoded.
  PromptText text_from_chat(ChatInput) const;
  /// For a user who may expect otherwise: that there is no template, that a variable is not read.
  void say_what_is_lost() const;

 private:
  struct Choice {
    std::optional<ChatTemplate> chosen;
    std::string name;
  };
  Choice choose(ToolsOffered) const;
  const Choice& choice_for(ToolsOffered tools) const { return tools == ToolsOffered::Yes ? with_tools_ : plain_; }
  const Choice& choice_for(const ChatInput&) const;
  void switch_thinking();
  ReasoningOptions reasoning_of(const ChatTemplate&, std::string_view prompt) const;
  void refuse_without_template() const;
  bool may_think() const;
  void say_what_thinking_lacks() const;
  Prompt finish(Prompt) const;

  const ChatOptions& options_;
  const Metadata& metadata_;
  const Tokenizer& tokenizer_;
  std::optional<jinja::Now> now_;  ///< that is held
  std::string given_template_, system_;
  jinja::Context given_;  ///< variables of the options
  ThinkingSettings thinking_;
  jinja::Context variables_;      ///< those, and what the wish and the effort set
  bool has_switch_ = false;       ///< a variable of the template's turns thinking on and off
  bool has_kept_switch_ = false;  ///< one says whether the thinking of earlier answers stays
  Choice plain_, with_tools_;
};

/// Bytes of it that the vocabulary has nothing for.
void warn_of_lost_bytes(const Prompt&, const Tokenizer&);

/// For --explain-prompt: the text, then a line per token with its id, what made it and what it stands for.
std::string explain(const Prompt&, const Tokenizer&);

}  // namespace llm::app
