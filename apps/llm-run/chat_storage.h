// /save and /load: a chat with the model's cache of it.
#pragma once

#include <string>

#include "chat_state.h"

namespace llm::app {

void store_chat(const std::string& path, const ChatState&);
/// In place of the messages and settings there are, but for those typed, and of the branches, if the file has others.
void restore_chat(const std::string& path, ChatState&, const TypedSettings&);

}  // namespace llm::app
