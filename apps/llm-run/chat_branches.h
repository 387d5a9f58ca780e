// The copies of a conversation that /fork makes, by their names.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "conversation.h"

namespace llm::app {

struct ChatBranch {
  std::vector<ChatMessage> messages = {};
  std::string system = {};
};

class ChatBranches {
 public:
  ChatBranches() = default;
  ChatBranches(std::string current, std::map<std::string, ChatBranch> others)
      : current_(std::move(current)), others_(std::move(others)) {}

  const std::string& current() const { return current_; }
  const std::map<std::string, ChatBranch>& others() const { return others_; }
  /// Of the others.
  std::vector<std::string> names() const;
  /// The current one, then the others, a line each.
  std::string list(const Conversation&) const;
  /// Goes on in a copy of that name, or back in the branch that has it, and says which. Throws ErrorKind::Usage for the
  /// current one's name.
  std::string enter(const std::string& name, Conversation&, PromptMaker&);

 private:
  std::string current_ = "main";
  std::map<std::string, ChatBranch> others_;
};

/// "1 turn", "2 turns"
std::string turns_text(std::size_t);

}  // namespace llm::app
