#include "chat_turns.h"

#include <utility>

#include "chat_branches.h"
#include "common/numbers.h"
#include "common/token_input.h"

namespace llm::app {

bool ChatTurns::answer_or_go_back(std::vector<ChatMessage> before) {
  bool kept = false;
  try {
    kept = answers_.answer();
  } catch (...) {
    go_back(std::move(before));
    throw;
  }
  if (!kept) go_back(std::move(before));
  return kept;
}

void ChatTurns::go_back(std::vector<ChatMessage> before) {
  chat_.talk.messages = std::move(before);
  chat_.talk.forget_answer();
}

/// In place of the messages from `at` on.
void ChatTurns::ask(std::size_t at, std::string text) {
  std::vector<ChatMessage>& messages = chat_.talk.messages;
  std::vector<ChatMessage> before = messages;
  std::string whole = chat_.pending.empty() ? std::move(text) : chat_.pending + "\n" + text;
  const Tokenizer& tokenizer = chat_.model.tokenizer();
  if (tokenizer.drops_bytes())
    warn_of_lost_bytes("the message", whole, tokenizer.encode(whole, {.add_special = false, .parse_special = false}),
                       tokenizer);
  messages.resize(at);
  messages.push_back({ChatMessage::Role::User, std::move(whole)});
  if (answer_or_go_back(std::move(before))) chat_.pending.clear();
}

void ChatTurns::send(std::string text) { ask(chat_.talk.messages.size(), std::move(text)); }

void ChatTurns::regenerate() {
  std::vector<ChatMessage>& messages = chat_.talk.messages;
  if (messages.empty()) throw Error(ErrorKind::Usage, "there is no message to answer again");
  const std::vector<ChatMessage> before = messages;
  if (messages.back().role == ChatMessage::Role::Assistant) messages.pop_back();
  const bool kept = answer_or_go_back(before);
  const bool same = messages.back().text == before.back().text && messages.size() == before.size();
  if (kept && same && chat_.settings.seed == ChatSettings::Seed::Given && chat_.editor != nullptr) {
    chat_.tell("(the same answer: the seed was given; /set seed -1 draws one)\n");
  }
}

void ChatTurns::edit() {
  const std::vector<ChatMessage>& messages = chat_.talk.messages;
  if (chat_.editor == nullptr) throw Error(ErrorKind::Usage, "/edit needs a terminal");
  if (messages.empty()) throw Error(ErrorKind::Usage, "there is no message to edit");
  std::size_t at = messages.size() - 1;
  if (messages[at].role == ChatMessage::Role::Assistant) --at;
  std::string text = edit_with_program(messages[at].text);
  if (text.empty() || text == messages[at].text) return chat_.tell("nothing was changed\n");
  chat_.editor->remember(text);
  chat_.tell("> " + text + "\n");
  ask(at, std::move(text));
}

void ChatTurns::go_on() {
  const std::vector<ChatMessage>& messages = chat_.talk.messages;
  if (messages.empty() || messages.back().role == ChatMessage::Role::User) {
    throw Error(ErrorKind::Usage, "there is no answer to go on with");
  }
  const ChatMessage before = messages.back();
  if (before.end == ChatMessage::End::Complete)
    return chat_.tell("(the answer is complete: the model ended it there)\n");
  if (chat_.settings.answer.constraint || before.end == ChatMessage::End::InForm) {
    throw Error(ErrorKind::Usage,
                "an answer that has a form cannot go on, the form begins with it; /regen answers again");
  }
  if (!answers_.answer() || messages.back().end != ChatMessage::End::Complete) return;
  if (messages.back().text == before.text && messages.back().thinking == before.thinking)
    chat_.tell("(the answer is complete: the model ends it here)\n");
}

void ChatTurns::undo(const std::string& count) {
  std::int64_t wanted = count.empty() ? 1 : parse_integer("/undo", count, 1, kMaxInt32);
  if (!chat_.pending.empty()) {
    chat_.pending.clear();
    chat_.tell("dropped what was read for the next message\n");
    if (--wanted == 0) return;
  }
  const std::size_t n = chat_.talk.drop_newest(static_cast<std::size_t>(wanted));
  if (n == 0) return chat_.tell("there is nothing to undo\n");
  chat_.talk.forget_answer();
  chat_.tell("removed " + turns_text(n) + ", " + std::to_string(chat_.talk.turns()) + " left\n");
}

void ChatTurns::clear() {
  go_back({});
  chat_.pending.clear();
  chat_.tell("all messages are forgotten" +
             std::string(chat_.prompts.system().empty() ? "" : ", the system text stays") + "\n");
}

}  // namespace llm::app
