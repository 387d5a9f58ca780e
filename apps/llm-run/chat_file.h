// Conversations in files: to go on with (JSON: messages, settings, the name of the cache's file), and to read.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "chat_branches.h"
#include "chat_settings.h"
#include "conversation.h"
#include "runtime/model.h"

namespace llm::app {

struct SavedChat {
  ChatBranch shown;  ///< that which goes on
  ChatSettings settings;
  ThinkingSettings thinking;
  std::optional<ChatBranches> branches = {};  ///< nothing: there were no others
  std::string cache = {};                     ///< file with what was computed of them; empty: none
};

/// Where the cache of a chat that is saved in `path` goes.
std::string cache_of(const std::string& path);
/// That which goes with a saved chat, wherever it is; empty: none.
std::string cache_of_saved(const std::string& path);
/// Throws ErrorKind::Usage if another file than a saved chat is there: none is replaced.
void require_saved_chat_or_nothing(const std::string& path);
/// Replaces a saved chat, nothing else. Throws ErrorKind::Usage, ErrorKind::Io.
void save_chat(const std::string& path, const SavedChat&, const Model& model);
/// `now` has the settings for what the file does not hold and for `typed`, which count more than it. Notes another
/// model than `model`, whose cache is of no use. Throws ErrorKind::Usage for what is no saved chat.
SavedChat load_chat(const std::string& path, SavedChat now, std::span<const std::string> typed, const Model& model);

/// By the name's ending: .md, or .jsonl with a message per line. Replaces what looks like such a file, nothing else.
/// Throws ErrorKind::Usage, ErrorKind::Io.
void export_chat(const std::string& path, const std::string& system, std::span<const ChatMessage>);

}  // namespace llm::app
