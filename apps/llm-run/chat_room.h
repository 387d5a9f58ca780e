// Room for the next answer: what to do where a conversation has grown to the end of its context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "conversation.h"
#include "line_editor.h"

namespace llm::app {

struct RoomWanted {
  std::int64_t most_tokens = -1;  ///< of the answer; -1: any number
  LineEditor* editor = nullptr;   ///< who can be asked; null: nobody
  bool begins_with_read = false;  ///< the last message begins with a text of /read or /glob
};

/// The conversation as a prompt that leaves room for an answer. Asks before anything is forgotten: nothing if there is
/// no answer to that. Throws ErrorKind::Context if nothing may be forgotten or if it would not help.
std::optional<Prompt> prompt_with_room(Conversation&, const RoomWanted&);

}  // namespace llm::app
