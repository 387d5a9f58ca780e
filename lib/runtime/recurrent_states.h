// Book-keeping of recurrent states: which slot holds what a sequence remembers after how many of its tokens. A state
// cannot be taken back by a token, so that some that have been are kept: the text goes on from the last one before the
// place that is wanted, and what follows it is read again. No data, no backend.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "runtime/kv_cache.h"

namespace llm {

/// Slots for so many sequences: of each the state that it is in, the one that a step makes of it, where steps run ahead
/// the one before them as well; and a few that were left behind prompts.
std::int32_t recurrent_slots(int sequences, bool steps_run_ahead);

class RecurrentStates {
 public:
  RecurrentStates(std::int32_t n_slots, int max_sequences);

  /// Of a sequence without tokens.
  void create(SequenceId);
  void remove(SequenceId);
  void fork(SequenceId from, SequenceId to, std::int64_t length);
  /// Forgets what was remembered beyond `length` tokens.
  void truncate(SequenceId, std::int64_t length);

  /// How many tokens the state has seen that the sequence goes on from: 0 of one that begins anew.
  std::int64_t seen(SequenceId) const;
  struct Kept {
    std::int64_t length = 0;
    std::int32_t slot = -1;
  };
  /// All that can be gone back to, by length.
  std::vector<Kept> kept(SequenceId) const;

  /// What follows belongs to another step: states that it reads and leaves are none that it overwrites.
  void next_step() { ++step_; }
  /// The step of `n` more tokens. Of steps of several tokens the states are kept as long as there are slots, but for
  /// the oldest. One token goes on in the slot of a state that was left by one and is only this sequence's, unless it
  /// is held or the sequence is one that steps back.
  StateMove advance(SequenceId, std::int64_t n);
  /// A slot for the state after `length` tokens, which is written by the caller.
  std::int32_t put(SequenceId, std::int64_t length);
  /// The last state of at most `length` tokens is kept until release(), and every one since then while there are slots,
  /// until hold() again.
  void hold(SequenceId, std::int64_t length);
  void release(SequenceId);

 private:
  struct Saved {
    std::int64_t length = 0;
    std::int32_t slot = -1;
    std::uint64_t used = 0;  ///< the step that read or left it last
    bool mark = false;       ///< left by several tokens
  };
  struct Sequence {
    std::vector<Saved> saved;  ///< by length
    std::int64_t held = -1;    ///< length of the one that is held
    bool steps_back = false;   ///< was taken back by its last token once
  };
  Sequence& at(SequenceId id) { return sequences_[static_cast<std::size_t>(id)]; }
  const Sequence& at(SequenceId id) const { return sequences_[static_cast<std::size_t>(id)]; }
  std::int32_t& references(std::int32_t slot) { return references_[static_cast<std::size_t>(slot)]; }
  std::int32_t references(std::int32_t slot) const { return references_[static_cast<std::size_t>(slot)]; }
  bool is_needed(const Sequence&, const Saved&) const;
  bool goes_on_in_place(const Sequence&) const;
  std::vector<std::uint64_t> worths() const;
  std::int32_t free_slot() const;
  bool evict_one();
  std::int32_t take(Sequence&);
  void drop(const Saved&);
  void prune(Sequence&);

  std::vector<std::int32_t> references_;  ///< per slot; 0: free
  std::vector<Sequence> sequences_;
  std::uint64_t step_ = 1;
};

}  // namespace llm
