// The commands of a chat: what begins with a slash.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llm::app {

enum class ChatCommand : std::uint8_t {
  Help,
  Exit,
  Clear,
  Regenerate,
  Undo,
  Edit,
  Continue,
  System,
  Set,
  Show,
  Think,
  Stop,
  Read,
  Glob,
  Save,
  Load,
  Fork,
  Export,
  Context,
  Stats,
  Why,
  Grammar,
  Json,
  Unsupported,  ///< the specification's, not built
};

struct ChatLine {
  std::optional<ChatCommand> command = {};  ///< nothing: a message
  std::string name = {};                    ///< as typed, with its slash
  std::string text = {};                    ///< the message, or what follows the command
  bool works_on_files = false;
};

/// `//text` is the message "/text", "~/" in paths the home folder. Throws ErrorKind::Usage for a command that does not
/// exist, with the nearest one, and for one that lacks its file.
ChatLine read_chat_line(std::string_view line);

/// What `typed` may become, for Tab: commands, and behind one its words, the names and words of settings, paths, or
/// those of `branches` that are no others.
std::vector<std::string> complete_chat_line(std::string_view typed, std::span<const std::string> branches);

/// What /help shows: of the command of this name, with or without its slash, or of all. Throws ErrorKind::Usage for one
/// that does not exist.
std::string chat_help(const std::string& name, std::size_t width);

}  // namespace llm::app
