// Which rows of a batch run, and which of their tokens a step takes. Rows wait for a place among those at once, for
// memory, and for the row before them to read what both begin with; the youngest give their memory back where the
// others need it. It knows numbers of tokens and no tokens, and whose sequences it keeps: a session's, or those of a
// dry run, in which a forecast so takes the same steps as a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kv_cache.h"

namespace llm {

/// A row, in the order in which rows begin; tokens.
struct PlannedRow {
  std::int64_t prompt = 0;
  std::int64_t shared = 0;  ///< with the row before, as PrefixStep says
};

/// One that has begun and not ended.
struct QueuedRow {
  std::size_t place;    ///< in the order in which rows begin
  SequenceId sequence;  ///< -1 while the row is preempted
  std::int64_t prompt;  ///< tokens
  std::int64_t shared;  ///< of them had from another row's sequence
  std::int64_t known;   ///< the prompt's and those generated; the sequence holds the first ones

  bool generates() const { return known > prompt; }
};

/// Tokens of a row that a step takes.
struct RowTokens {
  std::size_t place;
  SequenceId sequence;
  std::int64_t first, n;
  bool last;    ///< there are no others: the next one is chosen behind them
  bool prompt;  ///< of a prompt that is read for the first time
};

/// What has become of prompts so far.
struct QueueCounts {
  std::int64_t shared = 0;        ///< tokens that were had from another row
  std::int64_t read_in_vain = 0;  ///< tokens of rows that gave them back before their prompt was read
  std::int64_t preempted = 0;     ///< times that a row gave its memory back
};

/// `Book` keeps sequences as Session does, of which it needs few functions: see DryRunCache.
template <class Book>
class RowQueue {
 public:
  /// At most `parallel` rows at once; the book has one more free sequences than that.
  RowQueue(Book&, std::vector<PlannedRow>, int parallel);
  RowQueue(const RowQueue&) = delete;
  RowQueue& operator=(const RowQueue&) = delete;
  /// Its sequences are free again.
  ~RowQueue();

  const std::list<QueuedRow>& running() const { return running_; }      ///< in the order in which they were begun
  const std::list<QueuedRow>& preempted() const { return preempted_; }  ///< the one to go on first is in front
  /// The row at a place, if it has begun and not ended.
  const QueuedRow* find(std::size_t place) const { return is_here(place) ? &*rows_[place] : nullptr; }
  std::size_t next() const { return next_; }  ///< place of the row that begins next
  bool all_begun() const { return next_ == plan_.size(); }
  std::size_t waiting() const { return plan_.size() - next_ + preempted_.size(); }
  const QueueCounts& counts() const { return counts_; }

  /// Lets rows go on and, if new ones may begin, those that can; one whose prompt is longer than the context has no
  /// tokens.
  void begin(bool new_rows);
  /// Of at most `room` tokens, for which the cache has room: rows are preempted until it has. There is a row that runs.
  std::vector<RowTokens> step(std::int64_t room);
  /// The same as it is, whether the cache has room or not.
  std::vector<RowTokens> compose(std::int64_t room) const;
  bool fits(std::span<const RowTokens>) const;
  /// How many steps like this one, of at most so many, may be taken as one since they give each row that runs a token
  /// and let no other begin.
  std::int64_t steps_alike(std::span<const RowTokens> step, std::int64_t most) const;

  /// So many tokens of a row became known.
  void add(std::size_t place, std::int64_t tokens) { rows_[place]->known += tokens; }
  /// The row, which runs or is preempted, leaves.
  void end(std::size_t place);

 private:
  struct Beginning {
    std::optional<SequenceId> donor;
    std::int64_t shared = 0;
    bool fits = true;  ///< into the context
  };
  using Rows = std::list<QueuedRow>;
  bool is_here(std::size_t place) const { return rows_[place] != Rows::const_iterator(running_.end()); }
  bool has_place() const { return running_.size() < parallel_; }
  bool has_room(std::int64_t tokens, std::int64_t shared) const;
  bool can_go_on() const;
  std::optional<Beginning> next_beginning() const;
  void begin(const Beginning&);
  std::optional<SequenceId> donor_of_next() const;
  std::int64_t pending(const QueuedRow& r) const { return r.known - book_.length(r.sequence); }
  std::int64_t before_shared_end(const QueuedRow&) const;
  void preempt_last();
  void release(const QueuedRow&);
  void drop_donor();

  Book& book_;
  std::vector<PlannedRow> plan_;
  std::size_t parallel_;
  std::size_t next_ = 0;
  Rows running_, preempted_;
  std::vector<Rows::iterator> rows_;  ///< by place; running_.end(): not here
  /// What the row at place next_ - 1 left for the next one when it ended before that could begin.
  std::optional<SequenceId> donor_;
  QueueCounts counts_;
};

}  // namespace llm
