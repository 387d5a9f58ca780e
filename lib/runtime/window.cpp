#include "runtime/window.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace llm {

Window::Window(Session& session, SequenceId sequence, std::span<const Token> prompt, Options options)
    : session_(session), sequence_(sequence), options_(options), length_(session.length(sequence)) {
  if (options_.keep) held_.assign(prompt.begin(), prompt.end());
  if (options_.speculation != nullptr) options_.speculation->begin(prompt);
}

bool Window::can_shift() const {
  return options_.keep && length_ == static_cast<std::int64_t>(held_.size()) && dropped() > 0;
}

std::span<const float> Window::append(Token token, std::size_t more) {
  if (options_.keep) held_.push_back(token);
  if (options_.speculation != nullptr) options_.speculation->append(token);
  if (came_ < ahead_.size() && ahead_[came_] == token) {
    ++length_;
    const std::size_t vocab = rows_.size() / ahead_.size();
    return rows_.subspan(came_++ * vocab, vocab);
  }
  take_back();
  return full() ? shift() : step(token, more);
}

/// Takes a draft out of the sequence that did not come true.
void Window::take_back() {
  ahead_.clear();
  if (session_.length(sequence_) > length_) session_.rewind(sequence_, length_);
}

std::span<const float> Window::shift() {
  held_.erase(held_.begin() + *options_.keep, held_.begin() + *options_.keep + dropped());
  session_.rewind(sequence_, *options_.keep);
  const Append work{sequence_, std::span(held_).subspan(static_cast<std::size_t>(*options_.keep)), Logits::Last};
  const auto logits = session_.eval({&work, 1});
  length_ = session_.length(sequence_);
  return logits;
}

std::span<const float> Window::step(Token token, std::size_t more) {
  ahead_.push_back(token);
  came_ = 1;
  if (options_.speculation == nullptr) {
    rows_ = eval(ahead_);
  } else {
    const auto room = static_cast<std::size_t>(session_.context() - length_ - 1);
    // The logits after the last token that may come are never needed.
    const auto draft = options_.speculation->draft(std::min(room, std::max<std::size_t>(more, 1) - 1));
    ahead_.insert(ahead_.end(), draft.begin(), draft.end());
    const std::size_t programs = session_.programs();
    const auto start = std::chrono::steady_clock::now();
    rows_ = eval(ahead_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    options_.speculation->stepped(
        seconds, session_.programs() == programs ? Speculation::Step::Usual : Speculation::Step::Compiled);
  }
  ++length_;
  return rows_.first(rows_.size() / ahead_.size());
}

/// A fault in the logits after a draft is none of the text's.
std::span<const float> Window::eval(std::span<const Token> tokens) {
  const Append all{sequence_, tokens, Logits::All};
  try {
    return session_.eval({&all, 1});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Numeric || tokens.size() == 1) throw;
  }
  ahead_.resize(1);
  const Append first{sequence_, ahead_, Logits::Last};
  return session_.eval({&first, 1});
}

}  // namespace llm
