// The copies of a conversation that /fork makes, by their names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conversation.h"

namespace llm::app {

class ChatBranches {
 public:
  /// The current one, then the others, a line each.
  std::string list(const Conversation&) const;
  /// Goes on in a copy of that name, or back in the branch that has it, and says which. Throws ErrorKind::Usage for the
  /// current one's name.
  std::string enter(const std::string& name, Conversation&, PromptMaker&);

 private:
  struct Branch {
    std::vector<ChatMessage> messages;
    std::string system;
  };
  std::string current_ = "main";
  std::map<std::string, Branch> others_;
};

/// "1 turn", "2 turns"
std::string turns_text(std::size_t);

}  // namespace llm::app
