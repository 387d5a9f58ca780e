// What the parts of a chat share: the conversation, what its answers are made with, and who is told.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/error.h"
#include "chat_branches.h"
#include "chat_settings.h"
#include "conversation.h"
#include "line_editor.h"
#include "options.h"
#include "runtime/speculation.h"

namespace llm::app {

struct ChatState {
  const RunOptions& options;
  Model& model;
  PromptMaker& prompts;
  Session& session;
  LineEditor* editor;  ///< null: nobody types
  ChatSettings settings;
  Speculation* speculation;  ///< null: nothing is drafted
  Conversation talk = {model, session, prompts};
  ChatBranches branches = {};
  std::string pending = {};         ///< of /read and /glob, for the next message
  std::optional<int> failure = {};  ///< exit code of the first message without an answer

  /// The message that is to be answered begins with what /read and /glob have read.
  bool begins_with_read() const { return !pending.empty() && talk.messages.back().text.starts_with(pending); }

  /// What is neither an answer nor an error.
  void tell(const std::string& text) const;
  /// What a message or a command has come to.
  void tell_failure(const Error&);
  std::size_t width() const;
};

/// What one turn's failure leaves usable; anything else ends the program.
bool ends_only_the_turn(const Error&);

}  // namespace llm::app
