#include "runtime/scheduler.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <list>
#include <utility>

#include "base/clock.h"
#include "runtime/prefix_order.h"

namespace llm {
namespace {

struct RunningRow {
  std::size_t row;
  std::size_t place;  ///< in the order of the plan
  SequenceId sequence;
  std::vector<Token> input;  ///< the prompt and what was generated; the sequence holds the beginning of it
  Answer answer;
  std::int64_t shared = 0;
  Clock::time_point began = Clock::now();
  std::optional<Clock::time_point> first_token = {};
  std::optional<Error> error = {};

  void fail(const Error& why) {
    error = why;
    answer.end(StopReason::Cancelled);
  }
};

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::vector<std::span<const Token>> prompts_of(std::span<const BatchRow> rows) {
  std::vector<std::span<const Token>> prompts;
  for (const BatchRow& row : rows) prompts.emplace_back(row.prompt);
  return prompts;
}

class Scheduler {
 public:
  Scheduler(Model& model, Session& session, std::span<const BatchRow> rows, int parallel,
            const BatchCallbacks& callbacks)
      : model_(model),
        session_(session),
        rows_(rows),
        parallel_(static_cast<std::size_t>(parallel)),
        callbacks_(callbacks),
        plan_(prefix_order(prompts_of(rows))) {
    check(parallel >= 1, "a batch of no rows at once");
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler() {
    try {
      session_.abandon();
    } catch (...) {
      // A device that failed has told whoever waited for it before.
    }
    for (const RunningRow& r : running_) session_.remove(r.sequence);
    drop_donor();
  }

  void run();

 private:
  // Beginning rows.
  void resume_preempted();
  void begin_rows();
  bool begin_next();
  bool has_room(std::size_t tokens, std::size_t shared) const;
  std::optional<SequenceId> donor_of(std::size_t place) const;
  std::size_t usable(std::optional<SequenceId> donor, std::size_t shared) const;
  SequenceId make_sequence(std::optional<SequenceId> donor, std::size_t shared);
  // One step.
  void step();
  std::vector<Append> compose();
  void make_room(std::vector<Append>& work);
  void preempt_last();
  void eval(std::span<const Append> work);
  bool step_drawn();
  bool is_cut(std::span<const Append> work) const;
  bool begin_drawn(std::span<const Append> work);
  void begin_ahead();
  void take_drawn(RunningRow&, Token);
  void take_logits(std::span<const Append> work, std::span<const float> logits);
  void take_token(RunningRow&, std::span<const float> logits);
  void took_token(RunningRow&);
  // Ending rows.
  void end_late();
  void finish_ended();
  void finish(RunningRow&);
  void release(const RunningRow&);
  void drop_donor();
  BatchControl report();

  std::size_t pending(const RunningRow& r) const {
    return r.input.size() - static_cast<std::size_t>(session_.length(r.sequence));
  }
  RunningRow& running(SequenceId id) {
    return *std::find_if(running_.begin(), running_.end(), [id](const RunningRow& r) { return r.sequence == id; });
  }

  Model& model_;
  Session& session_;
  std::span<const BatchRow> rows_;
  std::size_t parallel_;
  const BatchCallbacks& callbacks_;
  std::vector<PrefixStep> plan_;
  std::size_t next_ = 0;             ///< place in the plan
  std::list<RunningRow> running_;    ///< in the order in which they were begun
  std::list<RunningRow> preempted_;  ///< without a sequence; the one to go on first is in front
  /// What the row at place next_ - 1 left for the next one when it ended before that could begin.
  std::optional<SequenceId> donor_;
  /// Of each step begun whose tokens the backend draws: the places of its rows.
  std::deque<std::vector<std::size_t>> drawing_;
  BatchProgress progress_;
};

void Scheduler::run() {
  for (;;) {
    const BatchControl control = report();
    if (control == BatchControl::Stop) {
      for (RunningRow& r : running_) r.answer.end(StopReason::Cancelled);
      finish_ended();
      return;
    }
    end_late();
    resume_preempted();
    if (control == BatchControl::Continue) begin_rows();
    if (!running_.empty()) {
      step();
    } else if (control == BatchControl::Drain || next_ == plan_.size()) {
      return;  // rows may also end as they begin, while others wait
    }
  }
}

BatchControl Scheduler::report() {
  progress_.rows_running = running_.size();
  progress_.rows_waiting = plan_.size() - next_ + preempted_.size();
  return callbacks_.progress ? callbacks_.progress(progress_) : BatchControl::Continue;
}

void Scheduler::resume_preempted() {
  while (running_.size() < parallel_ && !preempted_.empty()) {
    if (!running_.empty() && !has_room(preempted_.front().input.size(), 0)) return;
    running_.splice(running_.end(), preempted_, preempted_.begin());
    running_.back().sequence = session_.create();
  }
}

void Scheduler::begin_rows() {
  if (!preempted_.empty()) return;  // they were first
  while (running_.size() < parallel_ && next_ < plan_.size() && begin_next()) {
  }
  finish_ended();
}

/// Whether a row of so many tokens, `shared` of them in the cache, leaves every row a block to grow into.
bool Scheduler::has_room(std::size_t tokens, std::size_t shared) const {
  const std::size_t own = tokens - shared / kBlockPositions * kBlockPositions;
  const std::size_t growth = (running_.size() + 2) * kBlockPositions;
  return static_cast<std::int64_t>(own + growth) <= session_.free_positions();
}

std::optional<SequenceId> Scheduler::donor_of(std::size_t place) const {
  const auto before =
      std::find_if(running_.begin(), running_.end(), [place](const RunningRow& r) { return r.place + 1 == place; });
  return before == running_.end() ? donor_ : std::optional(before->sequence);
}

/// How much of `shared` tokens can be had of the donor, now or when it has read its prompt.
std::size_t Scheduler::usable(std::optional<SequenceId> donor, std::size_t shared) const {
  if (!donor) return 0;
  if (donor == donor_) shared = std::min(shared, static_cast<std::size_t>(session_.length(*donor)));
  return shared < kLeastShared ? 0 : shared;
}

/// False if the row has to wait: for memory, or for the row before it to read what they have in common.
bool Scheduler::begin_next() {
  const PrefixStep& step = plan_[next_];
  const BatchRow& row = rows_[step.prompt];
  check(!row.prompt.empty(), "a row without a prompt token");
  const std::optional<SequenceId> donor = donor_of(next_);
  const std::size_t shared = usable(donor, std::min(step.shared, row.prompt.size() - 1));  // the last gives the logits
  if (shared > 0 && session_.length(*donor) < static_cast<std::int64_t>(shared)) return false;
  const bool fits = static_cast<std::int64_t>(row.prompt.size()) <= session_.context();  // else it takes no room
  if (fits && !running_.empty() && !has_room(row.prompt.size(), shared)) return false;

  Answer answer(model_, row.answer, row.prompt);  // before there is a sequence that would be lost if it throws
  RunningRow r{.row = step.prompt,
               .place = next_++,
               .sequence = make_sequence(donor, shared),
               .input = row.prompt,
               .answer = std::move(answer),
               .shared = static_cast<std::int64_t>(shared)};
  progress_.shared_tokens += r.shared;
  running_.push_back(std::move(r));
  try {
    session_.require_context(static_cast<std::int64_t>(row.prompt.size()));
  } catch (const Error& error) {
    running_.back().fail(error);
  }
  return true;
}

SequenceId Scheduler::make_sequence(std::optional<SequenceId> donor, std::size_t shared) {
  const SequenceId made = shared > 0 ? session_.fork(*donor, static_cast<std::int64_t>(shared)) : session_.create();
  drop_donor();  // the new row is the one before the next
  return made;
}

void Scheduler::step() {
  if (session_.draws() && step_drawn()) return finish_ended();
  std::vector<Append> work = compose();
  make_room(work);
  eval(work);
  finish_ended();
}

/// A token of every row that generates, and with what is left of the step as much of the prompts as it takes.
std::vector<Append> Scheduler::compose() {
  std::vector<Append> work;
  auto room = static_cast<std::size_t>(session_.batch_tokens());
  const auto add = [&](const RunningRow& r) {
    const std::size_t left = pending(r), n = std::min(left, room);
    if (n == 0) return;
    const auto first = static_cast<std::size_t>(session_.length(r.sequence));
    work.push_back({r.sequence, std::span(r.input).subspan(first, n), n == left ? Logits::Last : Logits::None});
    room -= n;
  };
  for (const RunningRow& r : running_) {
    if (pending(r) == 1) add(r);
  }
  for (const RunningRow& r : running_) {
    if (pending(r) > 1) add(r);
  }
  return work;
}

/// Gives back memory until the step fits: first what waits for a row to come, then the youngest rows.
void Scheduler::make_room(std::vector<Append>& work) {
  const auto fits = [&] {
    std::int64_t needed = 0;
    for (const Append& a : work) {
      needed += session_.positions_needed(a.sequence, static_cast<std::int64_t>(a.tokens.size()));
    }
    return needed <= session_.free_positions();
  };
  while (!fits()) {
    if (donor_) {
      drop_donor();
      continue;
    }
    check(running_.size() > 1, "a session whose cache cannot hold one context");
    preempt_last();
    work = compose();
  }
}

void Scheduler::preempt_last() {
  session_.remove(running_.back().sequence);
  preempted_.splice(preempted_.begin(), running_, std::prev(running_.end()));
  ++progress_.preempted;
}

/// A numeric fault ends the row that has it and no other: the rows of a failed step are computed one by one.
void Scheduler::eval(std::span<const Append> work) {
  try {
    take_logits(work, session_.eval(work));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Numeric) throw;
    if (work.size() > 1) {
      for (const Append& a : work) eval({&a, 1});
      return;
    }
    running(work.front().sequence).fail(error);
  }
}

/// Whether several steps at once compute this sooner than one.
bool Scheduler::is_cut(std::span<const Append> work) const {
  std::int64_t all = 0;
  for (const Append& a : work) all += std::ssize(a.tokens);
  return all > session_.step_tokens(all);
}

/// Tokens of a step that the backend draws. False, and none begun, where a row takes its logits, or where some are not
/// finite: then those of each row are looked at.
bool Scheduler::step_drawn() {
  if (drawing_.empty()) {
    std::vector<Append> work = compose();
    make_room(work);
    if (is_cut(work) || !begin_drawn(work)) return false;
  }
  begin_ahead();
  const auto tokens = session_.collect();
  if (!tokens) {
    drawing_.clear();
    return false;
  }
  const std::vector<std::size_t> places = std::move(drawing_.front());
  drawing_.pop_front();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto r =
        std::find_if(running_.begin(), running_.end(), [&](const RunningRow& o) { return o.place == places[i]; });
    if (r != running_.end()) take_drawn(*r, (*tokens)[i]);  // else it ended while this step ran ahead
  }
  return true;
}

bool Scheduler::begin_drawn(std::span<const Append> work) {
  std::vector<Drawing> drawings;
  std::vector<std::size_t> places;
  for (const Append& a : work) {
    drawings.push_back({a.sequence, a.tokens, std::nullopt});
    if (a.logits == Logits::None) continue;
    RunningRow& r = running(a.sequence);
    drawings.back().rule = r.answer.rule(0);
    if (!drawings.back().rule) return false;
    places.push_back(r.place);
  }
  if (places.empty()) return false;
  session_.begin(drawings);
  drawing_.push_back(std::move(places));
  for (const Append& a : work) {
    if (!running(a.sequence).first_token) progress_.prompt_tokens += static_cast<std::int64_t>(a.tokens.size());
  }
  return true;
}

/// The next token of every row that the step on its way draws one for, as long as no other row could join them.
void Scheduler::begin_ahead() {
  const std::vector<std::size_t>& places = drawing_.front();
  const bool others = next_ < plan_.size() && running_.size() < parallel_;
  if (drawing_.size() != 1 || others || !preempted_.empty()) return;
  std::vector<Token> tokens;
  tokens.reserve(running_.size());
  std::vector<Drawing> drawings;
  std::vector<std::size_t> ahead;
  std::int64_t needed = 0;
  for (RunningRow& r : running_) {
    const auto found = std::find(places.begin(), places.end(), r.place);
    if (found == places.end()) return;  // it reads its prompt
    if (r.answer.tokens_left() < 2 || session_.length(r.sequence) == session_.context()) continue;
    auto rule = r.answer.rule(1);
    if (!rule) return;
    const auto row = static_cast<std::int32_t>(found - places.begin());
    if (rule->penalises()) rule->newest = row;
    drawings.push_back({r.sequence, {&tokens.emplace_back(drawn_by(row)), 1}, rule});
    ahead.push_back(r.place);
    needed += session_.positions_needed(r.sequence, 1);
  }
  if (drawings.empty() || needed > session_.free_positions()) return;
  session_.begin(drawings);
  drawing_.push_back(std::move(ahead));
}

void Scheduler::take_drawn(RunningRow& r, Token token) {
  r.answer.take(token);
  took_token(r);
}

void Scheduler::take_logits(std::span<const Append> work, std::span<const float> logits) {
  const auto vocab = static_cast<std::size_t>(model_.dims().vocab);
  for (const Append& a : work) {
    RunningRow& r = running(a.sequence);
    const bool generating = r.first_token.has_value();
    if (!generating) progress_.prompt_tokens += static_cast<std::int64_t>(a.tokens.size());
    if (a.logits == Logits::None) continue;
    take_token(r, logits.first(vocab));
    logits = logits.subspan(vocab);
  }
}

void Scheduler::take_token(RunningRow& r, std::span<const float> logits) {
  try {
    r.answer.sample(logits);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Runtime) throw;
    return r.fail(error);  // a constraint that cannot be met is the row's own
  }
  took_token(r);
}

void Scheduler::took_token(RunningRow& r) {
  if (!r.first_token) r.first_token = Clock::now();
  // The last token may be the one that ended it by its number.
  const std::size_t generated = r.answer.tokens().size(), known = r.input.size() - rows_[r.row].prompt.size();
  if (generated > known) {
    r.input.push_back(r.answer.tokens().back());
    ++progress_.generated_tokens;
  }
  // A step that runs ahead has taken the token into the sequence already.
  const bool full = session_.length(r.sequence) == session_.context() && pending(r) > 0;
  if (!r.answer.ended() && full) r.answer.end(StopReason::ContextFull);
}

void Scheduler::end_late() {
  const Clock::time_point now = Clock::now();
  for (RunningRow& r : running_) {
    const std::optional<double>& most = rows_[r.row].max_seconds;
    if (most && seconds(r.began, now) >= *most) r.answer.end(StopReason::TimeUp);
  }
  finish_ended();
}

/// A row leaves before it is told of: whoever hears of it may throw.
void Scheduler::finish_ended() {
  for (auto r = running_.begin(); r != running_.end();) {
    std::list<RunningRow> ended;
    if (r->answer.ended()) {
      ended.splice(ended.end(), running_, r++);
      finish(ended.front());
    } else {
      ++r;
    }
  }
}

void Scheduler::finish(RunningRow& r) {
  release(r);
  ++progress_.rows_done;
  const Clock::time_point now = Clock::now(), first = r.first_token.value_or(now);
  AnswerText last = r.answer.take_text();
  callbacks_.finished({.row = r.row,
                       .reason = r.answer.reason(),
                       .error = std::move(r.error),
                       .tokens = {r.answer.tokens().begin(), r.answer.tokens().end()},
                       .logprobs = {r.answer.token_logprobs().begin(), r.answer.token_logprobs().end()},
                       .text = std::move(last.text),
                       .thinking = std::move(last.thinking),
                       .thinking_tokens = r.answer.thinking_tokens(),
                       .shared_tokens = r.shared,
                       .prompt_seconds = seconds(r.began, first),
                       .generate_seconds = seconds(first, now)});
}

/// The row that is next in the plan may need the beginning of this one.
void Scheduler::release(const RunningRow& r) {
  const bool next_needs_it = r.place + 1 == next_ && next_ < plan_.size() && plan_[next_].shared >= kLeastShared;
  if (!next_needs_it) {
    session_.remove(r.sequence);
    return;
  }
  session_.rewind(r.sequence, std::min(session_.length(r.sequence), static_cast<std::int64_t>(plan_[next_].shared)));
  donor_ = r.sequence;
}

void Scheduler::drop_donor() {
  if (donor_) session_.remove(*donor_);
  donor_.reset();
}

}  // namespace

void run_batch(Model& model, Session& session, std::span<const BatchRow> rows, int parallel,
               const BatchCallbacks& callbacks) {
  Scheduler(model, session, rows, parallel, callbacks).run();
}

}  // namespace llm
