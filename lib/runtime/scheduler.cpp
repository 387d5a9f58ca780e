#include "runtime/scheduler.h"

#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "runtime/batch_steps.h"
#include "runtime/row_queue.h"

namespace llm {
namespace {

struct RunningRow {
  std::size_t row;
  RowText text;
  std::int64_t shared = 0;  ///< of its prompt, when it had its first token
  Clock::time_point began = Clock::now();
  std::optional<Clock::time_point> first_token = {};
  std::optional<Error> error = {};

  void fail(const Error& why) {
    error = why;
    text.answer.end(StopReason::Cancelled);
  }
};

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::vector<PrefixStep> order_of(std::span<const BatchRow> rows, RowOrder order) {
  std::vector<std::span<const Token>> prompts;
  for (const BatchRow& row : rows) prompts.emplace_back(*row.prompt);
  return prefix_order(prompts, order);
}

std::vector<PlannedRow> planned(std::span<const PrefixStep> order, std::span<const BatchRow> rows) {
  std::vector<PlannedRow> plan;
  for (const PrefixStep& step : order) {
    plan.push_back({.prompt = std::ssize(*rows[step.prompt].prompt), .shared = static_cast<std::int64_t>(step.shared)});
  }
  return plan;
}

/// Gives the rows of a queue their answers.
class Scheduler {
 public:
  Scheduler(Model& model, Session& session, std::span<const BatchRow> rows, int parallel,
            const BatchCallbacks& callbacks, RowOrder order)
      : model_(model),
        session_(session),
        rows_(rows),
        callbacks_(callbacks),
        order_(order_of(rows, order)),
        queue_(session, planned(order_, rows), parallel),
        steps_(model, session, [this](std::size_t place) -> RowText& { return running_.at(place).text; }) {}

  void run();

 private:
  BatchControl report();
  void begin_rows(bool new_ones);
  void begin(std::size_t place);
  void step();
  void take(const RowTokens&, const StepResult&);
  void took_token(RunningRow&, std::size_t place);
  void end_late();
  void finish_ended();
  std::optional<std::size_t> first_ended() const;
  void tell(RunningRow&);

  Model& model_;
  Session& session_;
  std::span<const BatchRow> rows_;
  const BatchCallbacks& callbacks_;
  std::vector<PrefixStep> order_;
  RowQueue<Session> queue_;
  std::unordered_map<std::size_t, RunningRow> running_;  ///< rows that are in the queue, by place
  BatchSteps steps_;
  BatchProgress progress_;  ///< prompt tokens: those read in vain, too
};

void Scheduler::run() {
  for (;;) {
    const BatchControl control = report();
    if (control == BatchControl::Stop) {
      for (auto& [place, r] : running_) r.text.answer.end(StopReason::Cancelled);
      return finish_ended();
    }
    end_late();
    begin_rows(control == BatchControl::Continue);
    if (!queue_.running().empty()) {
      step();
    } else if (control == BatchControl::Drain || queue_.all_begun()) {
      return;  // rows may also end as they begin, while others wait
    }
  }
}

BatchControl Scheduler::report() {
  const QueueCounts& counts = queue_.counts();
  BatchProgress now = progress_;
  now.rows_running = queue_.running().size();
  now.rows_waiting = queue_.waiting();
  now.prompt_tokens -= counts.read_in_vain;
  now.shared_tokens = counts.shared;
  now.preempted = counts.preempted;
  return callbacks_.progress ? callbacks_.progress(now) : BatchControl::Continue;
}

void Scheduler::begin_rows(bool new_ones) {
  const std::size_t first = queue_.next();
  queue_.begin(new_ones);
  for (std::size_t place = first; place < queue_.next(); ++place) begin(place);
  finish_ended();
}

void Scheduler::begin(std::size_t place) {
  const BatchRow& row = rows_[order_[place].prompt];
  const auto known = static_cast<std::size_t>(queue_.find(place)->known);  // nothing of a prompt that is too long
  const std::span<const Token> read = std::span(*row.prompt).first(known);
  RowText text{.answer = Answer(model_, row.options(), read), .tokens = {read.begin(), read.end()}};
  RunningRow& r = running_.emplace(place, RunningRow{order_[place].prompt, std::move(text)}).first->second;
  try {
    session_.require_context(std::ssize(*row.prompt));
  } catch (const Error& error) {
    r.fail(error);
  }
}

void Scheduler::step() {
  if (steps_.on_their_way() == 0) steps_.begin(queue_.step(session_.batch_tokens()));
  steps_.run_ahead(queue_);
  steps_.collect([this](const RowTokens& w, const StepResult& result) { take(w, result); });
  finish_ended();
}

void Scheduler::take(const RowTokens& w, const StepResult& result) {
  const auto found = running_.find(w.place);
  const Error* const error = std::get_if<Error>(&result);
  if (w.prompt && error == nullptr) progress_.prompt_tokens += w.n;
  if (found == running_.end()) return;  // it ended while this step ran ahead
  RunningRow& r = found->second;
  if (error != nullptr) return r.fail(*error);
  if (!w.last) return;
  try {
    take_token(r.text.answer, result);
  } catch (const Error& unmet) {
    if (unmet.kind() != ErrorKind::Notation) throw;
    return r.fail(unmet);  // a constraint that cannot be met is the row's own
  }
  took_token(r, w.place);
}

void Scheduler::took_token(RunningRow& r, std::size_t place) {
  const QueuedRow& queued = *queue_.find(place);
  Answer& answer = r.text.answer;
  if (!r.first_token) {
    r.first_token = Clock::now();
    r.shared = queued.shared;
  }
  // The last token may be the one that ended it by its number.
  const std::size_t generated = answer.tokens().size(), known = r.text.tokens.size() - rows_[r.row].prompt->size();
  if (generated > known) {
    r.text.tokens.push_back(answer.tokens().back());
    queue_.add(place, 1);
    ++progress_.generated_tokens;
  }
  // A step that runs ahead has taken the token into the sequence already.
  const std::int64_t length = session_.length(queued.sequence);
  const bool full = length == session_.context() && queued.known > length;
  if (!answer.ended() && full) answer.end(StopReason::ContextFull);
}

void Scheduler::end_late() {
  const Clock::time_point now = Clock::now();
  for (auto& [place, r] : running_) {
    const std::optional<double>& most = rows_[r.row].max_seconds;
    if (most && seconds(r.began, now) >= *most) r.text.answer.end(StopReason::TimeUp);
  }
  finish_ended();
}

/// A row leaves before it is told of: whoever hears of it may throw.
void Scheduler::finish_ended() {
  while (const std::optional<std::size_t> place = first_ended()) {
    auto ended = running_.extract(*place);
    RunningRow& r = ended.mapped();
    if (!r.first_token) r.shared = queue_.find(*place)->shared;
    queue_.end(*place);
    tell(r);
  }
}

/// Of those that run in the order in which they were begun, then of those preempted.
std::optional<std::size_t> Scheduler::first_ended() const {
  for (const std::list<QueuedRow>* const rows : {&queue_.running(), &queue_.preempted()}) {
    for (const QueuedRow& r : *rows) {
      if (running_.at(r.place).text.answer.ended()) return r.place;
    }
  }
  return std::nullopt;
}

void Scheduler::tell(RunningRow& r) {
  ++progress_.rows_done;
  const Clock::time_point now = Clock::now(), first = r.first_token.value_or(now);
  Answer& answer = r.text.answer;
  AnswerText last = answer.take_text();
  callbacks_.finished({.row = r.row,
                       .reason = answer.reason(),
                       .error = std::move(r.error),
                       .tokens = {answer.tokens().begin(), answer.tokens().end()},
                       .text_tokens = answer.text_tokens(),
                       .logprobs = {answer.token_logprobs().begin(), answer.token_logprobs().end()},
                       .text_offsets = answer.text_offsets(),
                       .text = std::move(last.text),
                       .thinking = std::move(last.thinking),
                       .thinking_tokens = answer.thinking_tokens(),
                       .shared_tokens = r.shared,
                       .prompt_seconds = seconds(r.began, first),
                       .generate_seconds = seconds(first, now)});
}

}  // namespace

void run_batch(Model& model, Session& session, std::span<const BatchRow> rows, int parallel,
               const BatchCallbacks& callbacks, RowOrder order) {
  Scheduler(model, session, rows, parallel, callbacks, order).run();
}

}  // namespace llm
