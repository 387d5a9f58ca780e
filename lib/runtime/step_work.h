// A step while it is put together: the tokens of several sequences, with where each one's rows are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "runtime/sequences.h"
#include "runtime/work.h"

namespace llm {

/// Tokens that a sequence goes on with: in front those that its recurrent state has to see again.
struct Reading {
  SequenceId sequence;
  std::span<const Token> tokens;
  Logits logits;
  std::size_t again = 0;  ///< of the tokens
};

/// The vectors keep their memory from step to step.
class StepWork {
 public:
  void clear();
  bool empty() const { return tokens_.empty(); }
  std::size_t tokens() const { return tokens_.size(); }
  std::size_t outputs() const { return out_rows_.size(); }

  /// Adds tokens [first, first + n) of a reading, and their rows of logits as it wants them; a sequence once at most.
  /// Blocks that it shares with other sequences and writes are copied in the store first, behind the steps on their
  /// way: `settle` waits for these.
  void add(const Reading&, std::size_t first, std::size_t n, Sequences&, StateStore&,
           const std::function<void()>& settle);
  /// The logits of the last token added.
  void want_last();
  /// Valid until the step is another.
  StepData data(const KvCache&);

 private:
  std::vector<Token> tokens_;
  std::vector<std::int32_t> positions_, slots_, out_rows_, table_;
  std::vector<SequenceSpan> spans_;
  std::vector<StateMove> moves_;  ///< per span, of recurrent states
  std::vector<SequenceId> ids_;   ///< per span
  std::vector<KvCache::BlockCopy> copies_;
  StateGroup group_;
};

}  // namespace llm
