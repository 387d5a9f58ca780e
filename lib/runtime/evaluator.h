// Runs texts through a model, in as many steps as they need, some of them on their way at once, for rows of logits.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/programs.h"
#include "runtime/sequences.h"
#include "runtime/step_work.h"
#include "runtime/work.h"

namespace llm {

/// Rows of logits, grown without keeping or clearing what was there.
class LogitRows {
 public:
  float* reserve(Backend&, std::size_t n);

 private:
  std::unique_ptr<HostMemory> memory_;
  std::size_t capacity_ = 0;
};

class Evaluator {
 public:
  /// Steps of at most `most_step_tokens`.
  Evaluator(Model&, Sequences&, Programs&, StateStore&, int most_step_tokens);

  /// As Session::eval() does, which has checked the work.
  std::span<const float> eval(std::span<const Append> work, const GoOn&, Observer*);
  /// States of the work's sequences that were taken back see again what they missed.
  void catch_up(std::span<const Append> work, Observer*);
  std::int64_t read_again() const { return read_again_; }
  OnHidden on_hidden;  ///< where the model gives hidden rows; may be empty

  /// Most tokens of each step of an evaluation of so many.
  int step_tokens(std::int64_t all) const;
  int steps_at_once() const { return static_cast<int>(steps_.size()); }
  /// Until the steps on their way have ended.
  void settle() const;

 private:
  /// A step on its way.
  struct Evaluating {
    Program* program;
    Ticket ticket;
    StepData data;                    ///< of one of steps_
    std::int64_t done = 0;            ///< tokens of the evaluation up to its end
    std::array<Binding, 2> out = {};  ///< rows of logits; of all tokens hidden ones, if the model gives them
    std::size_t n_out = 1;

    std::span<const Binding> outputs() const { return std::span(out).first(n_out); }
    std::span<const float> rows(std::size_t i) const {
      return {reinterpret_cast<const float*>(out[i].data), out[i].bytes / sizeof(float)};
    }
  };

  std::vector<Reading> readings(std::span<const Append> work);
  bool compute(std::span<const Reading> work, float* rows, float* spare, const GoOn&, Observer*);
  bool run_all(std::span<const Reading> work, float* rows, float* spare, const GoOn&, Observer*);
  std::size_t tokens_before_cut(std::span<const Reading> work, const Reading&, std::size_t first, std::size_t n) const;
  /// Tokens that the step can still take.
  std::size_t room_in_step(Logits wanted) const;
  void submit_step(float* rows, Observer*);
  void tell_hidden(const Evaluating&) const;
  void next_step();
  void finish_oldest();
  void abandon_steps() noexcept;
  void fail_with_cause(std::span<const Append> work, std::span<const Reading> failed);
  [[noreturn]] void fail_numeric(const Evaluating&, std::size_t row);
  std::size_t vocab() const { return static_cast<std::size_t>(model_.dims().vocab); }
  StepWork& step() { return steps_[step_number_ % steps_.size()]; }
  const StepWork& step() const { return steps_[step_number_ % steps_.size()]; }

  Model& model_;
  Sequences& sequences_;
  Programs& programs_;
  StateStore& store_;
  int most_step_tokens_;
  std::vector<StepWork> steps_;            ///< that may be on their way at once, in turns
  std::size_t step_number_ = 0;            ///< of the one that is being put together
  int step_tokens_ = 0;                    ///< most of it
  std::int64_t submitted_ = 0;             ///< tokens of the evaluation in steps begun
  std::int64_t computed_ = 0;              ///< and in those that have ended
  std::vector<std::vector<Token>> again_;  ///< memory of readings
  std::int64_t read_again_ = 0;
  LogitRows logits_, hidden_;
  std::deque<Evaluating> evaluating_;
};

}  // namespace llm
