// A conversation and the part of the model's cache that belongs to it. Every answer renders all messages anew; what the
// cache holds of the result is kept, the rest of the cache rolled back. Whatever changes the messages, be it an undone
// turn or another system text, costs only the tokens behind the change.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "prompt.h"
#include "runtime/generator.h"
#include "runtime/session.h"

namespace llm::app {

struct ChatMessage {
  enum class Role : std::uint8_t { User, Assistant } role = Role::User;
  std::string text;
  std::vector<Token> tokens = {};  ///< of an answer, as they were sampled; nothing if it came from a file
  std::string thinking = {};       ///< before the text of an answer
  /// Whether an answer can go on: not behind the model's own end, and not where its text must have a form, which begins
  /// with the answer.
  enum class End : std::uint8_t { Open, Complete, InForm } end = End::Open;
};
std::string_view name(ChatMessage::Role);

/// Tokens of one message within the prompt, its markup included.
struct MessageSize {
  std::string_view role;
  std::string text;
  std::int64_t tokens = 0;
};

class Conversation {
 public:
  /// All must outlive it.
  Conversation(Model&, Session&, PromptMaker&);

  std::vector<ChatMessage> messages;  ///< user and assistant in turn; the system text is the PromptMaker's

  /// The messages as a prompt for the next answer; an answer at their end is one to go on with. Throws
  /// ErrorKind::Notation for what the template refuses.
  Prompt prompt() const;
  /// Throws ErrorKind::Notation if the template would refuse these messages, or a first one with this system text.
  void require_renders() const;
  /// Answers the prompt and returns with what was reused. The answer is not added to the messages. Whatever is thrown,
  /// the cache stays usable.
  struct Answered {
    GenerateResult result;
    std::int64_t cached = 0;
  };
  Answered answer(const Prompt&, GenerateOptions,
                  const std::function<void(std::int64_t done, std::int64_t total)>& progress);

  /// Turns from the front on that must go so that the rest has room for `answer` tokens, as far as that is possible.
  std::size_t turns_too_many(std::int64_t answer) const;
  /// Tokens of a prompt that has the last turn alone.
  std::int64_t last_turn_size() const;
  /// Removes turns, a user's message with what follows it, from the front or from the end. Returns how many went.
  std::size_t drop_oldest(std::size_t turns);
  std::size_t drop_newest(std::size_t turns);
  std::size_t turns() const;

  /// The tokens of the last answer, as they were sampled, from its beginning on where it went on.
  std::span<const Token> last_answer() const { return std::span(text_).subspan(answer_begin_); }
  /// The messages are others now.
  void forget_answer();
  /// What the model gave the n-th of them (from 0) and the `count` likeliest in its place: evaluates it again.
  Logprobs explain(std::size_t n, std::size_t count);

  /// The cache in a file, so that another run need not compute it. load_cache() throws ErrorKind::Usage for what is
  /// damaged or of another model, and then leaves the cache as it was.
  void save_cache(const std::string& path) const;
  void load_cache(const std::string& path);

  std::vector<MessageSize> sizes() const;
  std::int64_t cached_tokens() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t context() const { return session_.context(); }
  std::int64_t read_again() const { return session_.read_again(); }

 private:
  std::optional<MessageSize> system_size() const;
  void append_begun(Prompt&, const ChatMessage&) const;
  enum class Ending : std::uint8_t { AnswerBegins, AsItIs };
  Prompt render(std::span<const ChatMessage>, Ending) const;
  static std::size_t answer_begin(const Prompt&);
  std::int64_t keep_common_prefix(std::span<const Token> prompt);
  /// After work that may have been cut short: we know as much of the sequence as it has, and it has no more.
  void settle();

  Model& model_;
  Session& session_;
  PromptMaker& prompts_;
  SequenceId sequence_;
  std::vector<Token> tokens_;     ///< what the sequence holds
  std::vector<Token> text_;       ///< the last prompt and its answer, which begins with tokens_
  std::size_t answer_begin_ = 0;  ///< in it
};

}  // namespace llm::app
