#include "runtime/drawing_steps.h"

#include <algorithm>

#include "base/error.h"

namespace llm {

void DrawingSteps::begin(std::span<const Drawing> work, Observer* observer) {
  Begun next;
  for (const Drawing& d : work) {
    const std::int64_t length = sequences_.length(d.sequence);
    next.lengths.emplace_back(d.sequence, length);
    next.rows += d.rule ? 1 : 0;
    for (std::size_t i = 0; i < d.tokens.size(); ++i) {
      if (d.tokens[i] < 0) next.unknown.push_back({d.sequence, static_cast<std::size_t>(length) + i});
    }
  }
  step_.clear();
  sequences_.next_step();
  try {
    submit(work, next, observer);
  } catch (...) {
    for (const auto& [sequence, length] : next.lengths) {
      sequences_.rewind(sequence, length);
      if (!is_begun(sequence)) sequences_.release(sequence);  // what a step begun holds is still its own
    }
    throw;
  }
  begun_.push_back(std::move(next));
}

void DrawingSteps::submit(std::span<const Drawing> work, Begun& next, Observer* observer) {
  rules_.clear();
  for (const Drawing& d : work) {
    if (d.rule) rules_.push_back(*d.rule);
    if (!is_begun(d.sequence)) sequences_.hold(d.sequence, sequences_.length(d.sequence));
    const Reading reading{d.sequence, d.tokens, d.rule ? Logits::Last : Logits::None};
    step_.add(reading, 0, d.tokens.size(), sequences_, store_, [this] { settle(); });
  }
  Program& p = programs_.of(static_cast<std::int64_t>(step_.tokens()));
  StepData data = step_.data(sequences_.cache());
  data.draws = rules_;
  p.executable->observe(observer);
  next.program = p.executable.get();
  next.ticket = p.executable->submit(data, {}, {});
}

/// Whether a step on its way has tokens of the sequence.
bool DrawingSteps::is_begun(SequenceId id) const {
  return std::ranges::any_of(begun_, [id](const Begun& b) {
    return std::ranges::any_of(b.lengths, [id](const auto& l) { return l.first == id; });
  });
}

std::optional<std::span<const Token>> DrawingSteps::collect() {
  check(!begun_.empty(), "a step that was begun");
  const Begun oldest = std::move(begun_.front());
  begun_.pop_front();
  oldest.program->wait(oldest.ticket);
  if (!oldest.program->may_be_non_finite()) {
    const std::span<const Token> drawn = oldest.program->drawn();
    pass_on(oldest, drawn);
    return drawn;
  }
  settle();
  for (; !begun_.empty(); begun_.pop_back()) take_back(begun_.back());
  take_back(oldest);
  return std::nullopt;
}

void DrawingSteps::take_back(const Begun& step) {
  for (const auto& [sequence, length] : step.lengths) {
    sequences_.rewind(sequence, std::min(length, sequences_.length(sequence)));
    sequences_.release(sequence);
  }
}

/// A step has ended well: the one behind it goes on with what it drew, and goes back to where it began.
void DrawingSteps::pass_on(const Begun& ended, std::span<const Token> drawn) {
  if (!sequences_.recurrent()) return;
  learn(drawn);
  for (const auto& [sequence, length] : ended.lengths) sequences_.release(sequence);
  if (begun_.empty()) return;
  for (const auto& [sequence, length] : begun_.front().lengths) sequences_.hold(sequence, length);
}

/// Tokens of the step that is now the oldest one begun, which the one before it drew.
void DrawingSteps::learn(std::span<const Token> drawn) {
  if (begun_.empty()) return;
  for (const Begun::Unknown& u : begun_.front().unknown) sequences_.learn(u.sequence, u.position, drawn);
}

void DrawingSteps::abandon() {
  while (!begun_.empty()) {
    const Begun oldest = std::move(begun_.front());
    begun_.pop_front();
    oldest.program->wait(oldest.ticket);
    if (sequences_.recurrent() && !oldest.program->may_be_non_finite()) learn(oldest.program->drawn());
    for (const auto& [sequence, length] : oldest.lengths) sequences_.release(sequence);
  }
}

void DrawingSteps::forget(SequenceId id) {
  for (Begun& b : begun_) {
    std::erase_if(b.lengths, [id](const auto& l) { return l.first == id; });
    std::erase_if(b.unknown, [id](const auto& u) { return u.sequence == id; });
  }
}

void DrawingSteps::settle() const {
  for (const Begun& b : begun_) b.program->wait(b.ticket);
}

}  // namespace llm
