// What the rows of a batch may come to: tokens, positions of the cache, and while they run the time that is left.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "runtime/scheduler.h"

namespace llm {

/// Tokens that the row may generate in such a context; 0 where it cannot begin.
std::int64_t most_tokens(const BatchRow&, std::int64_t context);
/// Positions of the cache that rows at once come to hold where those that may hold most run together and share nothing.
std::int64_t most_positions(std::span<const BatchRow>, int parallel, std::int64_t context);

/// How long a batch still takes, by the tokens that are done and those that are to come. A row may end before it has
/// all that it may generate; how likely that is at a token is learnt from all tokens so far, also of rows that still
/// run: the first to end are short ones.
class BatchOutlook {
 public:
  BatchOutlook(std::span<const BatchRow>, std::int64_t context);

  void ended(const BatchResult&);
  /// Rows that have not begun never will.
  void drain() { rows_begin_ = false; }
  /// After so many seconds; nothing before there is a token to tell by.
  std::optional<double> seconds_left(const BatchProgress&, double seconds) const;
  /// Whether rows have ended: until then they are taken to generate all that they may.
  bool has_ended_rows() const { return ended_ > 0; }

 private:
  std::span<const BatchRow> rows_;
  std::int64_t context_;
  double prompts_ = 0, most_ = 0;                          ///< tokens: of prompts, and that rows not ended may generate
  double ended_ = 0, ended_early_ = 0, ended_tokens_ = 0;  ///< rows, those before they had all, and what they generated
  bool rows_begin_ = true;
};

}  // namespace llm
