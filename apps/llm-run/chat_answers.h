// The answers of a chat: each to the last message, with what is told behind it, and the figures of all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "chat_state.h"

namespace llm::app {

class ChatAnswers {
 public:
  explicit ChatAnswers(ChatState& chat) : chat_(chat) {}

  /// Answers the last message, or goes on with the last answer. False if there is no answer to keep.
  bool answer();

  std::int64_t count() const { return count_; }
  /// When Ctrl-C ended one last.
  std::optional<Clock::time_point> last_stop() const { return last_stop_; }
  /// The last one's timing and what all took, in lines of at most `width` columns.
  std::string stats(std::size_t width) const;

 private:
  class Coming;
  AnswerOptions next_options(const Prompt&);
  bool answer(const Prompt&);
  void generate(const Prompt&, Coming&);
  bool take(Coming&);
  ChatMessage::End end_of(StopReason) const;
  void add_figures(Conversation::Answered, std::string seed);
  void keep(ChatMessage);
  void drop_unfinished_character(ChatMessage&) const;
  void tell_nothing() const;
  void tell_end(const GenerateResult&, bool said) const;
  void tell_figures();

  ChatState& chat_;
  std::optional<Conversation::Answered> last_;
  std::string last_seed_;  ///< its seed_text(), if the seed was drawn
  std::optional<Clock::time_point> last_stop_;
  std::int64_t count_ = 0, evaluated_ = 0, cached_ = 0, generated_ = 0;
  std::int64_t read_again_ = 0;  ///< by the session, up to the last answer
};

}  // namespace llm::app
