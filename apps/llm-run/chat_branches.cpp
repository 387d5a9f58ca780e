#include "chat_branches.h"

#include <utility>

#include "base/error.h"

namespace llm::app {

std::string turns_text(std::size_t n) { return std::to_string(n) + (n == 1 ? " turn" : " turns"); }

std::vector<std::string> ChatBranches::names() const {
  std::vector<std::string> names;
  for (const auto& [name, branch] : others_) names.push_back(name);
  return names;
}

std::string ChatBranches::list(const Conversation& talk) const {
  std::string text = "* " + current_ + ", " + turns_text(talk.turns()) + "\n";
  for (const auto& [name, kept] : others_)
    text += "  " + name + ", " + turns_text((kept.messages.size() + 1) / 2) + "\n";
  return text;
}

std::string ChatBranches::enter(const std::string& name, Conversation& talk, PromptMaker& prompts) {
  if (name == current_) throw Error(ErrorKind::Usage, "this is " + escaped(name) + " already");
  const auto known = others_.find(name);
  const bool back = known != others_.end();
  others_[current_] = {talk.messages, prompts.system()};
  if (back) {
    talk.messages = known->second.messages;
    prompts.set_system(known->second.system);
    others_.erase(known);
    talk.forget_answer();
  }
  const std::string of = back ? "back in " : "a copy of " + current_ + ", ";
  current_ = name;
  return of + name + ", " + turns_text(talk.turns()) + "\n";
}

}  // namespace llm::app
