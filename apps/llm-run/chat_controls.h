// The commands of a chat that change how its answers are made: settings, system text, thinking, ends, forms.
#pragma once

#include <string>

#include "chat_commands.h"
#include "chat_state.h"

namespace llm::app {

class ChatControls {
 public:
  explicit ChatControls(ChatState& chat) : chat_(chat) {}

  // Each says what has come of it; most show what there is where they are given nothing.
  void system(const std::string& text);
  void set(const std::string& text);
  void stop(const std::string& text);
  void think(const std::string& what);
  void constrain(const ChatLine&);

 private:
  void set_effort(const std::string& value);

  ChatState& chat_;
};

}  // namespace llm::app
