// The turns of a chat, a message with its answer: sent, answered again, gone on with, edited, taken back.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "chat_answers.h"
#include "chat_state.h"

namespace llm::app {

/// Where there is no answer to keep, or one fails, the messages are those before.
class ChatTurns {
 public:
  ChatTurns(ChatState& chat, ChatAnswers& answers) : chat_(chat), answers_(answers) {}

  void send(std::string text);
  void regenerate();
  /// In the person's editor.
  void edit();
  /// With the last answer.
  void go_on();
  /// First what waits for the next message, then so many turns; "" is one.
  void undo(const std::string& count);
  void clear();

 private:
  void ask(std::size_t at, std::string text);
  bool answer_or_go_back(std::vector<ChatMessage> before);
  void go_back(std::vector<ChatMessage> before);

  ChatState& chat_;
  ChatAnswers& answers_;
};

}  // namespace llm::app
