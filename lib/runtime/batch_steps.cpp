#include "runtime/batch_steps.h"

#include <algorithm>
#include <utility>

namespace llm {
namespace {

/// Rows of a step whose next token it gives.
std::size_t rows_drawn(std::span<const RowTokens> work) {
  return static_cast<std::size_t>(std::ranges::count_if(work, &RowTokens::last));
}

}  // namespace

int groups_of_rows(const Model& model, std::size_t rows) {
  constexpr std::size_t kLeastRows = 16;
  return model.devices() > 1 && !model.has_host_part() && rows >= kLeastRows ? 2 : 1;
}

void take_token(Answer& answer, const StepResult& result) {
  if (const Error* const error = std::get_if<Error>(&result)) throw Error(*error);
  if (const Token* const drawn = std::get_if<Token>(&result)) return answer.take(*drawn);
  answer.sample(std::get<std::span<const float>>(result));
}

void BatchSteps::Draft::keep_first(std::size_t n) {
  work.erase(work.begin() + static_cast<std::ptrdiff_t>(n), work.end());
  drawings.erase(drawings.begin() + static_cast<std::ptrdiff_t>(n), drawings.end());
}

BatchSteps::BatchSteps(const Model& model, Session& session, std::function<RowText&(std::size_t)> text)
    : model_(model), session_(session), text_(std::move(text)) {}

void BatchSteps::abandon() noexcept {
  drawing_.clear();
  logits_.clear();
  try {
    session_.abandon();
  } catch (...) {
    // A device that failed has told whoever waited for it before.
  }
}

void BatchSteps::begin(std::vector<RowTokens> work) {
  check(on_their_way() == 0, "a step that begins alone");
  const bool draws = session_.draws() && !std::exchange(not_finite_, false);
  if (!draws || !draw_first(work)) logits_ = std::move(work);
}

void BatchSteps::begin_whole(std::vector<RowTokens> work) {
  together_ = true;
  begin(std::move(work));
}

void BatchSteps::run_ahead(const RowQueue<Session>& queue) {
  if (drawing_.size() == 1 && !draw_second(queue)) together_ = grouped_;
}

bool BatchSteps::collect(const TakeResult& take) {
  check(std::ssize(drawing_) == session_.begun(), "steps on their way that the session knows");
  if (!logits_.empty()) {
    eval(std::exchange(logits_, {}), take);
    return true;
  }
  const auto tokens = session_.collect();
  if (!tokens) {
    drawing_.clear();
    not_finite_ = true;
    return false;
  }
  const std::vector<RowTokens> work = std::move(drawing_.front());
  drawing_.pop_front();
  auto token = tokens->begin();
  for (const RowTokens& w : work) take(w, w.last ? StepResult(*token++) : StepResult());
  return true;
}

std::span<const Token> BatchSteps::tokens(const RowTokens& w) const {
  return std::span(text_(w.place).tokens).subspan(static_cast<std::size_t>(w.first), static_cast<std::size_t>(w.n));
}

/// Whether recurrent layers have to see tokens again first: steps for logits have them do so, and tell which row has a
/// fault.
bool BatchSteps::lags(std::span<const RowTokens> work) const {
  return std::ranges::any_of(work, [&](const RowTokens& w) { return session_.to_read_again(w.sequence) > 0; });
}

/// Whether several steps at once compute this sooner than one: those are for logits.
bool BatchSteps::is_cut(std::span<const RowTokens> work) const {
  std::int64_t all = 0;
  for (const RowTokens& w : work) all += w.n;
  return all > session_.step_tokens(all);
}

bool BatchSteps::draw_first(std::span<const RowTokens> work) {
  Draft step;
  if (lags(work) || !add_known(work, step) || is_cut(work)) return false;
  grouped_ = !std::exchange(together_, false) && groups_of_rows(model_, rows_drawn(work)) > 1;
  if (grouped_) step.keep_first((work.size() + 1) / 2);
  if (rows_drawn(step.work) == 0) return false;
  begin(step);
  return true;
}

/// False where the step after this one is rather one of all rows: groups pay now, or no more; a row takes its logits or
/// has a recurrent state that lags; several steps compute the tokens sooner; groups have become uneven; the cache has
/// to make room.
bool BatchSteps::draw_second(const RowQueue<Session>& queue) {
  const bool in_groups = groups_of_rows(model_, queue.running().size()) > 1;
  if (grouped_ != in_groups) return false;
  Draft next;
  if (!grouped_ && !add_next_drawn(queue, next)) return false;
  const std::vector<RowTokens> known = queue.compose(session_.batch_tokens() - std::ssize(next.work));
  if (lags(known) || !add_known(known, next) || is_cut(next.work) || !queue.fits(next.work)) return false;
  const std::size_t one = rows_drawn(drawing_.front()), other = rows_drawn(next.work);
  if (other == 0 || (grouped_ && std::max(one, other) > 2 * std::min(one, other))) return false;
  begin(next);
  return true;
}

/// False where a row takes its logits.
bool BatchSteps::add_known(std::span<const RowTokens> work, Draft& step) {
  for (const RowTokens& w : work) {
    step.work.push_back(w);
    step.drawings.push_back({w.sequence, tokens(w), std::nullopt});
    if (!w.last) continue;
    step.drawings.back().rule = text_(w.place).answer.rule(0);
    if (!step.drawings.back().rule) return false;
  }
  return true;
}

/// The token after the one that the step on its way draws, for every row of it. False where a row takes its logits.
bool BatchSteps::add_next_drawn(const RowQueue<Session>& queue, Draft& step) {
  std::vector<std::size_t> places;  // in the order of rows that drawn_by() counts
  for (const RowTokens& w : drawing_.front()) {
    if (w.last) places.push_back(w.place);
  }
  step.drawn.reserve(places.size());
  for (const QueuedRow& r : queue.running()) {
    const auto found = std::ranges::find(places, r.place);
    if (found == places.end()) continue;
    Answer& answer = text_(r.place).answer;
    const std::int64_t length = session_.length(r.sequence);
    if (answer.tokens_left() < 2 || length == session_.context()) continue;
    auto rule = answer.rule(1);
    if (!rule) return false;
    const auto row = static_cast<std::int32_t>(found - places.begin());
    if (rule->penalises()) rule->newest = row;
    step.work.push_back(
        {.place = r.place, .sequence = r.sequence, .first = length, .n = 1, .last = true, .prompt = false});
    step.drawings.push_back({r.sequence, {&step.drawn.emplace_back(drawn_by(row)), 1}, rule});
  }
  return true;
}

void BatchSteps::begin(Draft& step) {
  session_.begin(step.drawings);
  drawing_.push_back(std::move(step.work));
}

void BatchSteps::eval(std::span<const RowTokens> work, const TakeResult& take) {
  std::vector<Append> appends;
  for (const RowTokens& w : work) appends.push_back({w.sequence, tokens(w), w.last ? Logits::Last : Logits::None});
  std::span<const float> logits;
  try {
    logits = session_.eval(appends);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Numeric) throw;
    if (work.size() == 1) return take(work.front(), error);
    for (const RowTokens& w : work) eval({&w, 1}, take);
    return;
  }
  const auto vocab = static_cast<std::size_t>(model_.dims().vocab);
  for (const RowTokens& w : work) {
    take(w, w.last ? StepResult(logits.first(vocab)) : StepResult());
    if (w.last) logits = logits.subspan(vocab);
  }
}

}  // namespace llm
