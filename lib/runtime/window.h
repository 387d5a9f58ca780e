// The sequence of an answer while it grows: tokens go in one by one, perhaps computed ahead of time as a draft, and a
// full context goes on without its older half.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "runtime/answer.h"
#include "runtime/session.h"
#include "runtime/speculation.h"

namespace llm {

class Window {
 public:
  struct Options {
    /// When the context is full, the older half of what follows its first `keep` positions is forgotten; nothing: it
    /// stays full.
    std::optional<std::int64_t> keep = {};
    /// Asked while the rest is read again, between steps; no: the sequence then holds what was read, and has no logits.
    std::function<bool()> go_on = {};
    Speculation* speculation = nullptr;  ///< may be null
  };
  /// `sequence` ends in `prompt`. Whatever becomes of the window, in the end it holds the prompt and the tokens
  /// appended, unless go_on() said no.
  Window(Session&, SequenceId sequence, std::span<const Token> prompt, Options);
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window();

  bool full() const { return length_ == session_.context(); }
  /// Half of what follows the kept tokens makes room. A sequence that began with other tokens than the prompt's cannot
  /// be evaluated again.
  bool can_shift() const;
  /// How often that happened, and what it took out.
  struct Shifts {
    std::int64_t times = 0, tokens = 0;
  };
  const Shifts& shifts() const { return shifts_; }
  /// The logits after one more token, which `more` tokens at most are to follow; none if go_on() said no. Not if full()
  /// without can_shift().
  std::span<const float> append(Token, std::size_t more);
  /// The same, but where the backend draws tokens and the answer leaves that to it, the token it drew; the step after
  /// that has begun then.
  struct Next {
    std::optional<Token> token = {};
    std::span<const float> logits = {};  ///< if there is no token, and go_on() did not say no
  };
  Next next(Token, std::size_t more, Answer&);

 private:
  std::int64_t dropped() const { return (session_.context() - *options_.keep) / 2; }
  void take_back();
  std::span<const float> shift();
  std::span<const float> step(Token, std::size_t more);
  std::span<const float> eval(std::span<const Token> tokens);
  void enter(Token);
  bool computed(Token token) const { return came_ < ahead_.size() && ahead_[came_] == token; }
  std::span<const float> compute(Token, std::size_t more);
  std::optional<Token> drawn(Token, std::size_t more, Answer&);
  bool begin(Token, Answer&, int unseen);
  std::size_t longest_draft(std::size_t more) const;
  /// What tells whether a step was like others.
  struct StepsSoFar {
    std::size_t programs;
    std::int64_t read_again;
  };
  StepsSoFar steps_so_far() const { return {session_.programs(), session_.read_again()}; }
  void stepped(Clock::time_point start, StepsSoFar before);
  bool plans_draft(std::size_t more);
  bool expects_draft(std::size_t more);

  Session& session_;
  SequenceId sequence_;
  Options options_;
  std::int64_t length_;      ///< positions of the sequence that belong to the text; a draft may follow
  std::vector<Token> held_;  ///< the tokens of the sequence, if it may be shifted
  Shifts shifts_;
  std::optional<std::span<const Token>> planned_;  ///< the speculation's draft behind the last token, if it was made
  std::vector<Token> ahead_;     ///< the last token that was evaluated because it had come, and its draft
  std::size_t came_ = 0;         ///< of ahead_
  std::span<const float> rows_;  ///< logits after each of ahead_
};

}  // namespace llm
