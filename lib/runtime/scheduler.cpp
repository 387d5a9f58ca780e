#include "runtime/scheduler.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <limits>
#include <list>
#include <utility>

#include "base/clock.h"

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

/// A step whose tokens the backend draws.
struct StepToDraw {
  StepToDraw() = default;
  StepToDraw(const StepToDraw&) = delete;  // `work` has tokens of `drawn`
  StepToDraw& operator=(const StepToDraw&) = delete;

  std::vector<Drawing> work;
  std::vector<std::size_t> places;  ///< of the rows that it draws a token for
  std::vector<Token> drawn;         ///< memory of tokens in `work` that the step before draws

  void keep_first(std::size_t n) {
    work.erase(work.begin() + static_cast<std::ptrdiff_t>(n), work.end());
    const auto draws = std::count_if(work.begin(), work.end(), [](const Drawing& d) { return d.rule.has_value(); });
    places.resize(static_cast<std::size_t>(draws));
  }
};

/// Such a step on its way.
struct StepDrawing {
  std::vector<std::size_t> places;
  std::int64_t prompt_tokens;
};

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::vector<std::span<const Token>> prompts_of(std::span<const BatchRow> rows) {
  std::vector<std::span<const Token>> prompts;
  for (const BatchRow& row : rows) prompts.emplace_back(*row.prompt);
  return prompts;
}

class Scheduler {
 public:
  Scheduler(Model& model, Session& session, std::span<const BatchRow> rows, int parallel,
            const BatchCallbacks& callbacks, RowOrder order)
      : model_(model),
        session_(session),
        rows_(rows),
        parallel_(static_cast<std::size_t>(parallel)),
        callbacks_(callbacks),
        plan_(prefix_order(prompts_of(rows), order)) {
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
  std::vector<Append> compose(std::int64_t room);
  std::int64_t before_shared_end(const RunningRow&) const;
  void make_room(std::vector<Append>& work);
  void preempt_last();
  void eval(std::span<const Append> work);
  bool step_drawn();
  bool begin_first();
  bool begin_second();
  bool in_groups() const;
  bool is_cut(const StepToDraw&) const;
  bool add_known(std::span<const Append> work, StepToDraw&);
  bool add_next_drawn(StepToDraw&);
  void begin(StepToDraw&);
  void take_drawn(RunningRow&, Token);
  void take_logits(std::span<const Append> work, std::span<const float> logits);
  void take_token(RunningRow&, std::span<const float> logits);
  void took_token(RunningRow&);
  // Ending rows.
  void end_late();
  void finish_ended();
  static std::optional<std::list<RunningRow>> take_ended(std::list<RunningRow>&);
  void tell(RunningRow&);
  void release(const RunningRow&);
  void drop_donor();
  BatchControl report();

  /// Tokens that are known and in no step begun: 0 while a step draws the next, -1 while that one is in a step as well.
  std::int64_t pending(const RunningRow& r) const { return std::ssize(r.input) - session_.length(r.sequence); }
  /// Whether the blocks of the cache that are free suffice for a step.
  bool fits(const auto& work) const {
    std::int64_t needed = 0;
    for (const auto& w : work) needed += session_.positions_needed(w.sequence, std::ssize(w.tokens));
    return needed <= session_.free_positions();
  }
  /// Whether recurrent layers have to see tokens again first: eval() has them do so in the same steps, and tells which
  /// row has a fault.
  bool lags(const auto& work) const {
    return std::ranges::any_of(work, [&](const auto& w) { return session_.to_read_again(w.sequence) > 0; });
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
  std::deque<StepDrawing> drawing_;
  bool grouped_ = false;   ///< steps on their way have rows of their own; else the second has those of the first, too
  bool together_ = false;  ///< the next step that begins alone has all rows, since the last one's other half could not
  BatchProgress progress_;
};

void Scheduler::run() {
  for (;;) {
    const BatchControl control = report();
    if (control == BatchControl::Stop) {
      for (std::list<RunningRow>* const rows : {&running_, &preempted_}) {
        for (RunningRow& r : *rows) r.answer.end(StopReason::Cancelled);
      }
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

/// For a row of so many tokens, `shared` of them in the cache.
bool Scheduler::has_room(std::size_t tokens, std::size_t shared) const {
  return positions_to_begin(static_cast<std::int64_t>(tokens), static_cast<std::int64_t>(shared),
                            std::ssize(running_)) <= session_.free_positions();
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
  const std::span<const Token> prompt = *row.prompt;
  check(!prompt.empty(), "a row without a prompt token");
  const std::optional<SequenceId> donor = donor_of(next_);
  const bool fits = std::ssize(prompt) <= session_.context();
  // The last one gives the logits; a row that does not fit reads nothing.
  const std::size_t shared = fits ? usable(donor, std::min(step.shared, prompt.size() - 1)) : 0;
  if (shared > 0 && session_.length(*donor) < static_cast<std::int64_t>(shared)) return false;
  if (fits && !running_.empty() && !has_room(prompt.size(), shared)) return false;

  const std::span<const Token> read = prompt.first(fits ? prompt.size() : 0);  // one that is too long takes no memory
  Answer answer(model_, row.options(), read);  // before there is a sequence that would be lost if it throws
  RunningRow r{.row = step.prompt,
               .place = next_++,
               .sequence = make_sequence(donor, shared),
               .input = {read.begin(), read.end()},
               .answer = std::move(answer),
               .shared = static_cast<std::int64_t>(shared)};
  progress_.shared_tokens += r.shared;
  running_.push_back(std::move(r));
  try {
    session_.require_context(std::ssize(prompt));
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
  std::vector<Append> work = compose(session_.batch_tokens());
  make_room(work);
  eval(work);
  finish_ended();
}

/// A token of every row whose next one is known, and with what is left of so many tokens as much of the prompts as they
/// take.
std::vector<Append> Scheduler::compose(std::int64_t room) {
  std::vector<Append> work;
  const auto add = [&](const RunningRow& r) {
    const std::int64_t left = pending(r), n = std::min({left, room, before_shared_end(r)});
    if (n == 0) return;
    const std::span<const Token> input = std::span(r.input).last(static_cast<std::size_t>(left));
    work.push_back({r.sequence, input.first(static_cast<std::size_t>(n)), n == left ? Logits::Last : Logits::None});
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

/// Tokens of a row up to where one of the next rows parts from it, if its step is to end there: a recurrent state can
/// be had of a place where a step ended.
std::int64_t Scheduler::before_shared_end(const RunningRow& r) const {
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  if (session_.bytes_per_state() == 0) return before;
  const std::size_t end = std::min(plan_.size(), r.place + 1 + parallel_);
  std::size_t shared = r.input.size();
  for (std::size_t place = r.place + 1; place < end; ++place) {
    shared = std::min(shared, plan_[place].shared);
    if (shared < kLeastShared) break;
    const std::size_t taken = std::min(shared, rows_[plan_[place].prompt].prompt->size() - 1);  // as begin_next() does
    const std::int64_t left = static_cast<std::int64_t>(taken) - session_.length(r.sequence);
    if (left > 0) before = std::min(before, left);
  }
  return before;
}

/// Gives back memory until the step fits: first what waits for a row to come, then the youngest rows.
void Scheduler::make_room(std::vector<Append>& work) {
  while (!fits(work)) {
    if (donor_) {
      drop_donor();
      continue;
    }
    check(running_.size() > 1, "a session whose cache cannot hold one context");
    preempt_last();
    work = compose(session_.batch_tokens());
  }
}

void Scheduler::preempt_last() {
  RunningRow& last = running_.back();
  if (!last.first_token) {  // it reads all of its prompt again
    progress_.prompt_tokens -= session_.length(last.sequence) - last.shared;
    progress_.shared_tokens -= std::exchange(last.shared, 0);
  }
  session_.remove(last.sequence);
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

/// Tokens of a step that the backend draws. False, and no step on its way, where a row takes its logits, where one has
/// a recurrent state that lags, where several steps at once compute the tokens sooner, or where logits are not finite:
/// then those of each row are looked at.
bool Scheduler::step_drawn() {
  if (drawing_.empty() && !begin_first()) return false;
  if (drawing_.size() == 1 && !begin_second()) together_ = grouped_;
  check(std::ssize(drawing_) == session_.begun(), "steps on their way that the session knows");
  const auto tokens = session_.collect();
  if (!tokens) {
    drawing_.clear();
    return false;
  }
  const StepDrawing ended = std::move(drawing_.front());
  drawing_.pop_front();
  progress_.prompt_tokens += ended.prompt_tokens;
  for (std::size_t i = 0; i < ended.places.size(); ++i) {
    const auto r =
        std::find_if(running_.begin(), running_.end(), [&](const RunningRow& o) { return o.place == ended.places[i]; });
    if (r != running_.end()) take_drawn(*r, (*tokens)[i]);  // else it ended while this step ran ahead
  }
  return true;
}

/// Of all rows, or where groups pay, of half of them.
bool Scheduler::begin_first() {
  std::vector<Append> work = compose(session_.batch_tokens());
  make_room(work);
  StepToDraw step;
  if (lags(work) || !add_known(work, step) || is_cut(step)) return false;
  grouped_ = !std::exchange(together_, false) && groups_of_rows(model_, step.places.size()) > 1;
  if (grouped_) step.keep_first((work.size() + 1) / 2);
  if (step.places.empty()) return false;
  begin(step);
  return true;
}

/// While a step is on its way: the tokens after those that it draws, unless the rows are in groups, and whatever is
/// known of other rows. False where the step after this one is rather one of all rows: groups pay now, or no more; a
/// row takes its logits or has a recurrent state that lags; several steps compute the tokens sooner; groups have become
/// uneven; the cache has to make room.
bool Scheduler::begin_second() {
  if (grouped_ != in_groups()) return false;
  StepToDraw next;
  if (!grouped_ && !add_next_drawn(next)) return false;
  const std::vector<Append> known = compose(session_.batch_tokens() - std::ssize(next.work));
  if (lags(known) || !add_known(known, next) || next.places.empty() || is_cut(next) || !fits(next.work)) return false;
  const std::size_t one = drawing_.front().places.size(), other = next.places.size();
  if (grouped_ && std::max(one, other) > 2 * std::min(one, other)) return false;
  begin(next);
  return true;
}

bool Scheduler::in_groups() const { return groups_of_rows(model_, running_.size()) > 1; }

/// Whether several steps at once compute this sooner than one.
bool Scheduler::is_cut(const StepToDraw& step) const {
  std::int64_t all = 0;
  for (const Drawing& d : step.work) all += std::ssize(d.tokens);
  return all > session_.step_tokens(all);
}

/// False where a row takes its logits.
bool Scheduler::add_known(std::span<const Append> work, StepToDraw& step) {
  for (const Append& a : work) {
    RunningRow& r = running(a.sequence);
    step.work.push_back({a.sequence, a.tokens, std::nullopt});
    if (a.logits == Logits::None) continue;
    step.work.back().rule = r.answer.rule(0);
    if (!step.work.back().rule) return false;
    step.places.push_back(r.place);
  }
  return true;
}

/// The token after the one that the step on its way draws, for every row of it. False where a row takes its logits.
bool Scheduler::add_next_drawn(StepToDraw& step) {
  check(drawing_.size() == 1, "drawn_by() means rows of the step begun last");
  const std::vector<std::size_t>& places = drawing_.front().places;
  step.drawn.reserve(places.size());
  for (RunningRow& r : running_) {
    const auto found = std::find(places.begin(), places.end(), r.place);
    if (found == places.end() || r.answer.tokens_left() < 2 || session_.length(r.sequence) == session_.context())
      continue;
    auto rule = r.answer.rule(1);
    if (!rule) return false;
    const auto row = static_cast<std::int32_t>(found - places.begin());
    if (rule->penalises()) rule->newest = row;
    step.work.push_back({r.sequence, {&step.drawn.emplace_back(drawn_by(row)), 1}, rule});
    step.places.push_back(r.place);
  }
  return true;
}

void Scheduler::begin(StepToDraw& step) {
  session_.begin(step.work);
  std::int64_t prompt_tokens = 0;
  for (const Drawing& d : step.work) {
    const bool is_prompt = !running(d.sequence).first_token && d.tokens.front() >= 0;
    if (is_prompt) prompt_tokens += std::ssize(d.tokens);
  }
  drawing_.push_back({std::move(step.places), prompt_tokens});
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
    if (error.kind() != ErrorKind::Notation) throw;
    return r.fail(error);  // a constraint that cannot be met is the row's own
  }
  took_token(r);
}

void Scheduler::took_token(RunningRow& r) {
  if (!r.first_token) r.first_token = Clock::now();
  // The last token may be the one that ended it by its number.
  const std::size_t generated = r.answer.tokens().size(), known = r.input.size() - rows_[r.row].prompt->size();
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
  for (std::list<RunningRow>* const rows : {&running_, &preempted_}) {
    for (RunningRow& r : *rows) {
      const std::optional<double>& most = rows_[r.row].max_seconds;
      if (most && seconds(r.began, now) >= *most) r.answer.end(StopReason::TimeUp);
    }
  }
  finish_ended();
}

/// Preempted rows have no sequence that could be released.
void Scheduler::finish_ended() {
  while (std::optional<std::list<RunningRow>> ended = take_ended(running_)) {
    release(ended->front());
    tell(ended->front());
  }
  while (std::optional<std::list<RunningRow>> ended = take_ended(preempted_)) tell(ended->front());
}

/// A row leaves before it is told of: whoever hears of it may throw.
std::optional<std::list<RunningRow>> Scheduler::take_ended(std::list<RunningRow>& rows) {
  const auto found = std::ranges::find_if(rows, [](const RunningRow& r) { return r.answer.ended(); });
  if (found == rows.end()) return std::nullopt;
  std::list<RunningRow> ended;
  ended.splice(ended.end(), rows, found);
  return ended;
}

void Scheduler::tell(RunningRow& r) {
  ++progress_.rows_done;
  const Clock::time_point now = Clock::now(), first = r.first_token.value_or(now);
  AnswerText last = r.answer.take_text();
  callbacks_.finished({.row = r.row,
                       .reason = r.answer.reason(),
                       .error = std::move(r.error),
                       .tokens = {r.answer.tokens().begin(), r.answer.tokens().end()},
                       .text_tokens = r.answer.text_tokens(),
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

int groups_of_rows(const Model& model, std::size_t rows) {
  constexpr std::size_t kLeastRows = 16;
  return model.devices() > 1 && !model.has_host_part() && rows >= kLeastRows ? 2 : 1;
}

void run_batch(Model& model, Session& session, std::span<const BatchRow> rows, int parallel,
               const BatchCallbacks& callbacks, RowOrder order) {
  Scheduler(model, session, rows, parallel, callbacks, order).run();
}

}  // namespace llm
