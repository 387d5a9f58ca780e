#include "runtime/evaluator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/fault.h"
#include "runtime/screening.h"

namespace llm {
namespace {

/// Where a text is cut so that a state stays behind that a next prompt can go on from: before its end, which a next one
/// often has in other words (of a chat, the beginning of the answer).
std::int64_t state_kept_before(std::int64_t end) {
  constexpr std::int64_t kOftenChanged = 16;
  return std::max<std::int64_t>(0, end - kOftenChanged) / kBlockPositions * kBlockPositions;
}

std::size_t rows_wanted(const Append& a) {
  if (a.tokens.empty() || a.logits == Logits::None) return 0;
  return a.logits == Logits::All ? a.tokens.size() : 1;
}

Binding bound(const Program& p, std::size_t output, float* rows, std::size_t n) {
  return {.value = p.graph.info(p.graph.outputs()[output]).name,
          .data = reinterpret_cast<std::byte*>(rows),
          .bytes = n * sizeof(float)};
}

}  // namespace

float* LogitRows::reserve(Backend& backend, std::size_t n) {
  if (n > capacity_) {
    memory_.reset();
    capacity_ = 0;
    memory_ = backend.host_memory(n * sizeof(float));
    capacity_ = n;
  }
  return reinterpret_cast<float*>(memory_->data());
}

Evaluator::Evaluator(Model& model, Sequences& sequences, Programs& programs, StateStore& store, int most_step_tokens)
    : model_(model),
      sequences_(sequences),
      programs_(programs),
      store_(store),
      most_step_tokens_(most_step_tokens),
      // Whoever is told of hidden rows runs programs of its own behind each step.
      steps_(model.predicts() ? 1 : static_cast<std::size_t>(model.backend().steps_at_once())) {}

int Evaluator::step_tokens(std::int64_t all) const {
  return std::min(most_step_tokens_, model_.backend().step_tokens(all));
}

std::span<const float> Evaluator::eval(std::span<const Append> work, const GoOn& go_on, Observer* observer) {
  std::size_t wanted = 0;
  for (const Append& a : work) wanted += rows_wanted(a) * vocab();
  // Spare rows serve steps that nobody wants logits of.
  float* const rows = logits_.reserve(model_.backend(), wanted + steps_.size() * vocab());
  const std::vector<Reading> all = readings(work);
  try {
    if (!compute(all, rows, rows + wanted, go_on, observer)) return {};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Numeric) fail_with_cause(work, all);
    throw;
  }
  return {rows, wanted};
}

/// A step of one token goes on in place of the recurrent state that it reads, and cannot be repeated to find where its
/// fault comes from. Behind it that state is to be made again: with the tokens before it this one is in a step that
/// can.
void Evaluator::fail_with_cause(std::span<const Append> work, std::span<const Reading> failed) {
  const std::vector<Reading> all = readings(work);
  std::size_t lost = 0, wanted = 0;
  for (std::size_t i = 0; i < all.size(); ++i) lost += all[i].again > failed[i].again ? 1 : 0;
  if (lost == 0) return;  // it was repeated
  std::vector<std::int64_t> lengths;
  for (const Append& a : work) {
    lengths.push_back(sequences_.length(a.sequence));
    wanted += rows_wanted(a) * vocab();
  }
  float* const rows = logits_.reserve(model_.backend(), wanted + steps_.size() * vocab());
  try {
    compute(all, rows, rows + wanted, {}, nullptr);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Numeric) throw;
    return;
  }
  for (std::size_t i = 0; i < work.size(); ++i) sequences_.rewind(work[i].sequence, lengths[i]);
}

void Evaluator::catch_up(std::span<const Append> work, Observer* observer) {
  std::vector<Reading> missed;
  for (const Append& a : work) {
    const std::span<const Token> again = sequences_.to_read_again(a.sequence);
    if (!again.empty()) missed.push_back({a.sequence, again, Logits::None, again.size()});
    read_again_ += std::ssize(again);
  }
  if (missed.empty()) return;
  float* const spare = logits_.reserve(model_.backend(), steps_.size() * vocab());
  compute(missed, spare, spare, {}, observer);
}

/// The work, with what recurrent states have to see again.
std::vector<Reading> Evaluator::readings(std::span<const Append> work) {
  std::vector<Reading> all;
  again_.resize(std::max(again_.size(), work.size()));
  for (const Append& a : work) {
    all.push_back({a.sequence, a.tokens, a.logits});
    const std::span<const Token> again = sequences_.to_read_again(a.sequence);
    if (again.empty() || a.tokens.empty()) continue;
    std::vector<Token>& tokens = again_[all.size() - 1];
    tokens.assign(again.begin(), again.end());
    tokens.insert(tokens.end(), a.tokens.begin(), a.tokens.end());
    all.back().tokens = tokens;
    all.back().again = again.size();
    read_again_ += std::ssize(again);
  }
  return all;
}

/// Runs it all, or leaves every sequence as it was; of one token the recurrent state may have to be made again. False:
/// `go_on` ended it.
bool Evaluator::compute(std::span<const Reading> work, float* rows, float* spare, const GoOn& go_on,
                        Observer* observer) {
  std::vector<Sequences::Place> before;
  for (const Reading& r : work) {
    before.push_back(sequences_.place(r.sequence));
    if (r.tokens.size() > 1) sequences_.hold(r.sequence, before.back().seen);
  }
  const auto release = [&] {
    for (const Reading& r : work) sequences_.release(r.sequence);
  };
  try {
    const bool all = run_all(work, rows, spare, go_on, observer);
    release();
    return all;
  } catch (...) {
    abandon_steps();
    for (std::size_t i = 0; i < work.size(); ++i) sequences_.go_back(work[i].sequence, before[i]);
    release();
    throw;
  }
}

/// False: `go_on` ended it.
bool Evaluator::run_all(std::span<const Reading> work, float* rows, float* spare, const GoOn& go_on,
                        Observer* observer) {
  std::int64_t asked = 0;
  std::int64_t all = 0, repeated = 0;
  for (const Reading& r : work) all += std::ssize(r.tokens), repeated += static_cast<std::int64_t>(r.again);
  const auto wanted = [&] {
    if (!go_on || computed_ == asked) return true;
    asked = computed_;
    return go_on(std::max<std::int64_t>(0, computed_ - repeated));
  };
  const auto flush = [&] {
    if (step().empty()) return true;
    // Every step gives at least one row: a NaN is found in the step that made it, not where it surfaces later.
    const std::size_t n = step().outputs();
    if (n == 0) step().want_last();
    submit_step(n == 0 ? spare + step_number_ % steps_.size() * vocab() : rows, observer);
    rows += n * vocab();
    next_step();
    return wanted();
  };
  const auto finish = [&] {
    while (!evaluating_.empty()) {
      finish_oldest();
      (void)wanted();
    }
  };
  step().clear();
  sequences_.next_step();
  submitted_ = computed_ = 0;
  step_tokens_ = step_tokens(all);
  for (const Reading& r : work) {
    for (std::size_t first = 0; first < r.tokens.size();) {
      const std::size_t room = std::min(room_in_step(r.logits), r.tokens.size() - first);
      const std::size_t n = tokens_before_cut(work, r, first, room);
      step().add(r, first, n, sequences_, store_, [this] { settle(); });
      first += n;
      if ((n == room && room_in_step(Logits::All) > 0) || flush() || submitted_ == all) continue;
      finish();
      return false;
    }
  }
  flush();
  finish();
  return true;
}

/// One whose memory no step on its way needs.
void Evaluator::next_step() {
  if (evaluating_.size() == steps_.size()) finish_oldest();
  ++step_number_;
  step().clear();
  sequences_.next_step();
}

/// Of the `n` tokens of a reading from `first` on, those up to where a state is to stay behind. Of a text that is read
/// alone: a batch's prompts have no next one. Nor has a text all of whose logits are wanted, a draft or a measurement.
std::size_t Evaluator::tokens_before_cut(std::span<const Reading> work, const Reading& r, std::size_t first,
                                         std::size_t n) const {
  if (!sequences_.recurrent() || work.size() > 1 || r.logits == Logits::All) return n;
  const std::int64_t begin = sequences_.place(r.sequence).seen,
                     end = begin + static_cast<std::int64_t>(r.tokens.size() - first);
  const std::int64_t before_cut = state_kept_before(end) - begin;
  return before_cut > 0 ? std::min(n, static_cast<std::size_t>(before_cut)) : n;
}

std::size_t Evaluator::room_in_step(Logits wanted) const {
  const std::size_t tokens = static_cast<std::size_t>(step_tokens_) - step().tokens();
  const std::size_t outputs = kMaxOutputs - step().outputs();
  return wanted == Logits::All ? std::min(tokens, outputs) : tokens;
}

void Evaluator::submit_step(float* rows, Observer* observer) {
  Program& p = programs_.of(static_cast<std::int64_t>(step().tokens()));
  submitted_ += static_cast<std::int64_t>(step().tokens());
  Evaluating next{.program = &p, .ticket = {}, .data = step().data(sequences_.cache()), .done = submitted_};
  next.out[0] = bound(p, 0, rows, step().outputs() * vocab());
  if (model_.predicts()) {
    const std::size_t n = step().tokens() * static_cast<std::size_t>(model_.dims().n_embd);
    next.out[next.n_out++] = bound(p, 1, hidden_.reserve(model_.backend(), n), n);
  }
  p.executable->observe(observer);
  next.ticket = p.executable->submit(next.data, {}, next.outputs());
  evaluating_.push_back(next);
}

void Evaluator::tell_hidden(const Evaluating& ended) const {
  const auto width = static_cast<std::size_t>(model_.dims().n_embd);
  for (const SequenceSpan& s : ended.data.sequences) {
    const auto first = static_cast<std::size_t>(s.first_token), n = static_cast<std::size_t>(s.n_tokens);
    on_hidden({.position = ended.data.positions[first],
               .tokens = ended.data.tokens.subspan(first, n),
               .rows = ended.rows(1).subspan(first * width, n * width)});
  }
}

void Evaluator::finish_oldest() {
  const Evaluating oldest = evaluating_.front();
  Executable& program = *oldest.program->executable;
  program.wait(oldest.ticket);
  evaluating_.pop_front();
  computed_ = oldest.done;
  if (program.may_be_non_finite()) {
    if (const auto bad = first_non_finite(oldest.rows(0))) fail_numeric(oldest, *bad / vocab());
  }
  if (on_hidden && oldest.n_out > 1) tell_hidden(oldest);
}

void Evaluator::fail_numeric(const Evaluating& failed, std::size_t row) {
  settle();
  const StepData& data = failed.data;
  auto token = static_cast<std::size_t>(data.out_rows[row]);
  // A recurrent state that the step, or one behind it, has gone on with is no longer what the step read: then eval()
  // makes it again.
  const bool repeatable =
      data.states.empty() ||
      (evaluating_.empty() && std::ranges::all_of(data.states, [](StateMove m) { return m.from != m.to; }));
  std::string cause;
  if (repeatable) {
    Executable& program = *failed.program->executable;
    FirstBadValue watcher;
    program.observe(&watcher);
    program.wait(program.submit(data, {}, failed.outputs()));  // writes the same rows to the same slots again
    program.observe(nullptr);
    cause = watcher.explain(failed.program->graph);
    // The row that is looked at may be another token's, which only sees the one with the fault.
    const auto first = watcher.row_of(std::ssize(data.positions));
    if (first) token = *first;
  }
  throw Error(ErrorKind::Numeric,
              ErrorParts{.file = model_.file().metadata().file(),
                         .problem = "non-finite logits at token " + std::to_string(data.positions[token]) +
                                    (cause.empty() ? "" : ": " + cause)});
}

/// What a failed evaluation has left on its way, which may fail as well.
void Evaluator::abandon_steps() noexcept {
  try {
    settle();
  } catch (...) {
  }
  evaluating_.clear();
}

void Evaluator::settle() const {
  for (const Evaluating& e : evaluating_) e.program->executable->wait(e.ticket);
}

}  // namespace llm
