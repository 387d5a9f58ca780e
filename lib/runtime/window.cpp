#include "runtime/window.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/read_text.h"

namespace llm {
namespace {

/// Where a guess did not come, a recurrent state goes back to before its step, and sees what did come again in the next
/// one. If that one's guess does not come either, there is more to see, so that beyond this a step has none and leaves
/// the state where the text is.
constexpr std::int64_t kMostReadAgain = 4;

}  // namespace

Window::Window(Session& session, SequenceId sequence, std::span<const Token> prompt, Options options)
    : session_(session), sequence_(sequence), options_(std::move(options)), length_(session.length(sequence)) {
  if (options_.keep) held_.assign(prompt.begin(), prompt.end());
  if (options_.speculation != nullptr) options_.speculation->begin(prompt);
}

bool Window::can_shift() const {
  return options_.keep && length_ == static_cast<std::int64_t>(held_.size()) && dropped() > 0;
}

Window::~Window() {
  try {
    session_.abandon();
    take_back();
  } catch (...) {
    // A device that failed has told whoever waited for it before.
  }
}

std::span<const float> Window::append(Token token, std::size_t more) {
  enter(token);
  return compute(token, more);
}

Window::Next Window::next(Token token, std::size_t more, Answer& answer) {
  enter(token);
  if (session_.draws() && !computed(token)) {
    if (const auto t = drawn(token, more, answer)) return {.token = t};
  }
  return {.logits = compute(token, more)};
}

void Window::enter(Token token) {
  if (options_.keep) held_.push_back(token);
  if (options_.speculation != nullptr) options_.speculation->append(token);
}

/// What the backend draws after `token`, whose step may have begun with the call before. Nothing, and nothing begun,
/// where logits are to be had: the answer wants them, a draft is in sight, the context is full, or they are not finite.
std::optional<Token> Window::drawn(Token token, std::size_t more, Answer& answer) {
  const StepsSoFar before = steps_so_far();
  if (session_.begun() == 0) {
    take_back();
    if (full() || plans_draft(more)) return std::nullopt;
  }
  const auto start = Clock::now();
  if (session_.begun() == 0 && !begin(token, answer, 0)) return std::nullopt;
  planned_.reset();
  const bool room = length_ + 1 < session_.context();
  if (more > 1 && room && !expects_draft(more)) begin(drawn_by(0), answer, 1);
  const auto rows = session_.collect();
  if (!rows) return std::nullopt;
  const Token drawn = rows->front();
  ++length_;
  if (options_.speculation != nullptr) stepped(start, before);
  return drawn;
}

/// Begins the step of a token, if the answer has a rule for what follows it.
bool Window::begin(Token token, Answer& answer, int unseen) {
  auto rule = answer.rule(unseen);
  if (!rule) return false;
  if (unseen > 0 && rule->penalises()) rule->newest = 0;
  const Drawing work{sequence_, {&token, 1}, rule};
  session_.begin({&work, 1});
  return true;
}

/// What there is to draft now, for the step that is to be computed: made once.
bool Window::plans_draft(std::size_t more) {
  if (options_.speculation == nullptr) return false;
  planned_ = options_.speculation->draft(longest_draft(more));
  return !planned_->empty();
}

/// Whether there would be a draft in the place of a token that is being drawn.
bool Window::expects_draft(std::size_t more) {
  if (options_.speculation == nullptr) return false;
  const bool found = !options_.speculation->draft(longest_draft(more)).empty();
  options_.speculation->withdraw();
  return found;
}

/// The logits after the last token that may come are never needed.
std::size_t Window::longest_draft(std::size_t more) const {
  if (session_.to_read_again(sequence_) > kMostReadAgain) return 0;
  const auto room = static_cast<std::size_t>(session_.context() - length_ - 1);
  return std::min(room, std::max<std::size_t>(more, 1) - 1);
}

void Window::stepped(Clock::time_point start, StepsSoFar before) {
  const bool usual = session_.programs() == before.programs && session_.read_again() == before.read_again;
  options_.speculation->stepped(seconds_since(start), usual ? Speculation::Step::Usual : Speculation::Step::Longer);
}

std::span<const float> Window::compute(Token token, std::size_t more) {
  if (computed(token)) {
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
  ++shifts_.times;
  shifts_.tokens += dropped();
  session_.rewind(sequence_, *options_.keep);
  const auto logits = read_text(session_, sequence_, std::span(held_).subspan(static_cast<std::size_t>(*options_.keep)),
                                [&](std::int64_t) { return !options_.go_on || options_.go_on(); });
  length_ = session_.length(sequence_);
  if (options_.speculation != nullptr) options_.speculation->shifted(held_);
  return logits;
}

std::span<const float> Window::step(Token token, std::size_t more) {
  ahead_.push_back(token);
  came_ = 1;
  if (options_.speculation == nullptr) {
    rows_ = eval(ahead_);
  } else {
    const auto planned = std::exchange(planned_, std::nullopt);
    const auto draft = planned ? *planned : options_.speculation->draft(longest_draft(more));
    ahead_.insert(ahead_.end(), draft.begin(), draft.end());
    const StepsSoFar before = steps_so_far();
    const auto start = Clock::now();
    rows_ = eval(ahead_);
    stepped(start, before);
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
