#include "chat_room.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "common/messages.h"
#include "runtime/figures.h"

namespace llm::app {
namespace {

std::int64_t size_of(const Prompt& prompt) { return static_cast<std::int64_t>(prompt.tokens.ids.size()); }

/// Whatever else is dropped, it does not fit.
[[noreturn]] void refuse_last_turn(std::int64_t size, const Conversation& talk, bool begins_with_read) {
  const std::string problem = "the last turn alone, with the system text, takes " + number_text(size) +
                              " tokens, the context holds " + number_text(talk.context()) + "; -c gives a longer one";
  const std::string waits = "; what was read before it still waits for the next message, /undo drops it";
  throw Error(ErrorKind::Context, problem + (begins_with_read ? waits : ""));
}

/// What is neither yes nor no may have been meant for the model, or be a command: it is no answer, and not lost.
/// Nothing if the question is given up.
std::optional<bool> says_yes(LineEditor& editor, const std::string& question) {
  for (;;) {
    const LineEditor::Input reply = editor.read(question);
    if (reply.outcome != LineEditor::Outcome::Line) {
      if (reply.outcome == LineEditor::Outcome::EndOfFile) editor.write("\n");
      return std::nullopt;
    }
    std::string word = reply.text;
    std::erase(word, ' ');
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
    if (word == "y" || word == "yes") return true;
    if (word == "n" || word == "no") return false;
    if (word.empty()) continue;
    editor.remember(reply.text);
    editor.write("(y or n first; what you typed was not sent, the up arrow brings it back)\n");
  }
}

}  // namespace

std::optional<Prompt> prompt_with_room(Conversation& talk, const RoomWanted& wanted) {
  Prompt prompt = talk.prompt();
  constexpr std::int64_t kWorthAnAnswer = 16;
  const std::int64_t size = size_of(prompt), limit = talk.context(), left = limit - size;
  const std::int64_t most = wanted.most_tokens < 0 ? limit : wanted.most_tokens;
  if (left > 0 && (wanted.editor == nullptr || left >= std::min(kWorthAnAnswer, most))) return prompt;
  // Where nobody can be asked it does not matter how many.
  const std::size_t n = wanted.editor == nullptr
                            ? talk.turns() - 1
                            : talk.turns_too_many(std::clamp<std::int64_t>(most, 1, limit / 4 + 1));
  if (n == 0 && left > 0) return prompt;
  if (const std::int64_t last = talk.last_turn_size(); n == 0 || last >= limit)
    refuse_last_turn(last, talk, wanted.begins_with_read);
  const std::string problem =
      "the conversation takes " + number_text(size) + " tokens, the context holds " + number_text(limit);
  if (wanted.editor != nullptr) {
    const std::string room = left > 0 ? ", which leaves " + number_text(left) + " for the answer" : "";
    wanted.editor->write(terminal_safe(problem + room + ".\n"));
    const std::optional<bool> yes = says_yes(*wanted.editor, "Drop the oldest " + std::to_string(n) + " of " +
                                                                 std::to_string(talk.turns()) + " turns? [y/n] ");
    if (!yes) return std::nullopt;
    if (*yes) {
      talk.drop_oldest(n);
      prompt = talk.prompt();
      if (size_of(prompt) < limit) return prompt;
    } else if (left > 0) {
      return prompt;  // the answer will be cut, and say so
    }
  }
  throw Error(ErrorKind::Context, problem + "; /undo and /clear make room, -c gives a longer one");
}

}  // namespace llm::app
