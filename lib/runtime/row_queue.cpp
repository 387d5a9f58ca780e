#include "runtime/row_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "runtime/dry_run_cache.h"
#include "runtime/prefix_order.h"
#include "runtime/session.h"

namespace llm {

template <class Book>
RowQueue<Book>::RowQueue(Book& book, std::vector<PlannedRow> plan, int parallel)
    : book_(book),
      plan_(std::move(plan)),
      parallel_(static_cast<std::size_t>(parallel)),
      rows_(plan_.size(), running_.end()) {
  check(parallel >= 1, "a batch of no rows at once");
  for (const PlannedRow& row : plan_) check(row.prompt > 0, "a row without a prompt token");
}

template <class Book>
RowQueue<Book>::~RowQueue() {
  for (const QueuedRow& r : running_) book_.remove(r.sequence);
  drop_donor();
}

template <class Book>
void RowQueue<Book>::begin(bool new_rows) {
  while (can_go_on()) {
    running_.splice(running_.end(), preempted_, preempted_.begin());
    running_.back().sequence = book_.create();
  }
  if (!new_rows) return;
  while (const std::optional<Beginning> next = next_beginning()) begin(*next);
}

/// Free positions of the cache that a row of so many tokens, `shared` of them had from another, needs to begin beside
/// those that run: every row keeps a block to grow into.
template <class Book>
bool RowQueue<Book>::has_room(std::int64_t tokens, std::int64_t shared) const {
  const std::int64_t own = tokens - shared / kBlockPositions * kBlockPositions;
  return own + (std::ssize(running_) + 2) * kBlockPositions <= book_.free_positions();
}

template <class Book>
bool RowQueue<Book>::can_go_on() const {
  if (!has_place() || preempted_.empty()) return false;
  return running_.empty() || has_room(preempted_.front().known, 0);
}

/// Nothing if no row is left, or the next one has to wait: for a place, for those that were preempted, for memory, or
/// for the row before it to read what they have in common.
template <class Book>
auto RowQueue<Book>::next_beginning() const -> std::optional<Beginning> {
  if (!has_place() || !preempted_.empty() || all_begun()) return std::nullopt;
  const PlannedRow& row = plan_[next_];
  if (row.prompt > book_.context()) return Beginning{.donor = {}, .shared = 0, .fits = false};  // it takes no memory
  Beginning next{.donor = donor_of_next(), .shared = 0};
  if (next.donor) {
    const std::int64_t has = book_.length(*next.donor);
    const bool reads = next.donor != donor_;
    if (reads && has < row.shared) return std::nullopt;
    next.shared = std::min(row.shared, has);
    if (next.shared < static_cast<std::int64_t>(kLeastShared)) next.shared = 0;
  }
  if (!running_.empty() && !has_room(row.prompt, next.shared)) return std::nullopt;
  return next;
}

template <class Book>
std::optional<SequenceId> RowQueue<Book>::donor_of_next() const {
  const bool runs = next_ > 0 && is_here(next_ - 1);
  return runs ? std::optional(rows_[next_ - 1]->sequence) : donor_;
}

template <class Book>
void RowQueue<Book>::begin(const Beginning& b) {
  const std::int64_t prompt = plan_[next_].prompt;
  running_.push_back({.place = next_,
                      .sequence = b.shared > 0 ? book_.fork(*b.donor, b.shared) : book_.create(),
                      .prompt = prompt,
                      .shared = b.shared,
                      .known = b.fits ? prompt : 0});
  rows_[next_++] = std::prev(running_.end());
  counts_.shared += b.shared;
  drop_donor();  // the new row is the one before the next
}

template <class Book>
std::vector<RowTokens> RowQueue<Book>::step(std::int64_t room) {
  std::vector<RowTokens> work = compose(room);
  while (!fits(work)) {
    if (donor_) {  // it waits for a row to come, which can do without
      drop_donor();
      continue;
    }
    check(running_.size() > 1, "a session whose cache cannot hold one context");
    preempt_last();
    work = compose(room);
  }
  return work;
}

/// A token of every row whose next one is known, and with what is left of so many tokens as much of the prompts as they
/// take. Nothing of a row of which a step on its way takes all that is known.
template <class Book>
std::vector<RowTokens> RowQueue<Book>::compose(std::int64_t room) const {
  std::vector<RowTokens> work;
  const auto add = [&](const QueuedRow& r, std::int64_t left) {
    const std::int64_t n = std::min({left, room, before_shared_end(r)});
    if (n == 0) return;
    work.push_back({.place = r.place,
                    .sequence = r.sequence,
                    .first = r.known - left,
                    .n = n,
                    .last = n == left,
                    .prompt = !r.generates()});
    room -= n;
  };
  for (const QueuedRow& r : running_) {
    if (pending(r) == 1) add(r, 1);
  }
  for (const QueuedRow& r : running_) {
    if (const std::int64_t left = pending(r); left > 1) add(r, left);
  }
  return work;
}

/// Tokens of a row up to where one of the next rows parts from it, if its step is to end there: a recurrent state can
/// be had of a place where a step ended.
template <class Book>
std::int64_t RowQueue<Book>::before_shared_end(const QueuedRow& r) const {
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  if (!book_.recurrent()) return before;
  const std::size_t end = std::min(plan_.size(), r.place + 1 + parallel_);
  std::int64_t shared = r.known;
  for (std::size_t place = r.place + 1; place < end; ++place) {
    shared = std::min(shared, plan_[place].shared);
    if (shared == 0) break;
    const std::int64_t left = shared - book_.length(r.sequence);
    if (left > 0) before = std::min(before, left);
  }
  return before;
}

template <class Book>
bool RowQueue<Book>::fits(std::span<const RowTokens> work) const {
  std::int64_t needed = 0;
  for (const RowTokens& w : work) needed += book_.positions_needed(w.sequence, w.n);
  return needed <= book_.free_positions();
}

/// Until a row ends the memory that is free only gets less, and all prompts are read: whoever cannot begin now cannot
/// in between.
template <class Book>
std::int64_t RowQueue<Book>::steps_alike(std::span<const RowTokens> step, std::int64_t most) const {
  const bool all_generate = step.size() == running_.size() && std::ranges::all_of(step, [](const RowTokens& w) {
                              return w.n == 1 && w.last && !w.prompt;
                            });
  if (!all_generate || can_go_on() || next_beginning()) return 1;
  std::vector<RowTokens> steps(step.begin(), step.end());
  for (; most > 1; most /= 2) {
    for (RowTokens& w : steps) w.n = most;
    if (fits(steps)) return most;
  }
  return 1;
}

template <class Book>
void RowQueue<Book>::preempt_last() {
  QueuedRow& last = running_.back();
  if (!last.generates()) {  // it reads all of its prompt again
    counts_.read_in_vain += book_.length(last.sequence) - last.shared;
    counts_.shared -= last.shared;
  }
  last.shared = 0;
  book_.remove(std::exchange(last.sequence, -1));
  preempted_.splice(preempted_.begin(), running_, std::prev(running_.end()));
  ++counts_.preempted;
}

template <class Book>
void RowQueue<Book>::end(std::size_t place) {
  const auto row = std::exchange(rows_[place], running_.end());
  if (row->sequence < 0) {
    preempted_.erase(row);
    return;
  }
  release(*row);
  running_.erase(row);
}

/// The row that is next in the plan may need the beginning of this one.
template <class Book>
void RowQueue<Book>::release(const QueuedRow& r) {
  const std::int64_t needed = r.place + 1 == next_ && !all_begun() ? plan_[next_].shared : 0;
  if (needed == 0) {
    book_.remove(r.sequence);
    return;
  }
  book_.rewind(r.sequence, std::min(book_.length(r.sequence), needed));
  donor_ = r.sequence;
}

template <class Book>
void RowQueue<Book>::drop_donor() {
  if (donor_) book_.remove(*donor_);
  donor_.reset();
}

template class RowQueue<Session>;
template class RowQueue<DryRunCache>;

}  // namespace llm
