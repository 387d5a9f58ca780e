// Steps whose tokens the backend draws: two can be on their way, the second of tokens that the first one draws.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/programs.h"
#include "runtime/sequences.h"
#include "runtime/step_work.h"
#include "runtime/work.h"

namespace llm {

class DrawingSteps {
 public:
  DrawingSteps(Sequences& sequences, Programs& programs, StateStore& store)
      : sequences_(sequences), programs_(programs), store_(store) {}

  /// As Session::begin() does, which has checked the work; no sequence of it has tokens to_read_again().
  void begin(std::span<const Drawing> work, Observer*);
  /// As Session::collect() does.
  std::optional<std::span<const Token>> collect();
  void abandon();
  int begun() const { return static_cast<int>(begun_.size()); }
  /// Rows that the step begun last draws.
  std::size_t last_rows() const { return begun_.empty() ? 0 : begun_.back().rows; }

  /// A sequence is no more; another one may get its id.
  void forget(SequenceId);
  /// Until the steps on their way have ended.
  void settle() const;

 private:
  struct Begun {
    Executable* program = nullptr;
    Ticket ticket = {};
    std::size_t rows = 0;
    std::vector<std::pair<SequenceId, std::int64_t>> lengths = {};  ///< of its sequences before it
    /// A token of it that the step before draws: where it is in the text.
    struct Unknown {
      SequenceId sequence;
      std::size_t position;
    };
    std::vector<Unknown> unknown = {};
  };

  void submit(std::span<const Drawing> work, Begun&, Observer*);
  bool is_begun(SequenceId) const;
  void learn(std::span<const Token> drawn);
  void pass_on(const Begun& ended, std::span<const Token> drawn);
  void take_back(const Begun&);

  Sequences& sequences_;
  Programs& programs_;
  StateStore& store_;
  StepWork step_;
  std::vector<DrawRule> rules_;
  std::deque<Begun> begun_;
};

}  // namespace llm
