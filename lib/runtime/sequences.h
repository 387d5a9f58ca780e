// Book-keeping of a session's sequences: the blocks of the cache that they hold and, of models with recurrent layers,
// the slots of their states and the tokens that a state has to see again when it was taken back. No data, no backend.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "runtime/kv_cache.h"
#include "runtime/recurrent_states.h"
#include "text/tokenizer.h"

namespace llm {

class Sequences {
 public:
  /// `n_slots` of recurrent states; 0 of models without such layers.
  Sequences(std::int32_t n_blocks, std::int32_t n_slots, int max_sequences);

  SequenceId create();
  SequenceId fork(SequenceId, std::int64_t length);
  void remove(SequenceId);
  void rewind(SequenceId, std::int64_t length);

  const KvCache& cache() const { return cache_; }
  std::int64_t length(SequenceId id) const { return cache_.length(id); }
  bool recurrent() const { return states_.has_value(); }
  std::vector<RecurrentStates::Kept> kept_states(SequenceId) const;

  /// Where a sequence is: its tokens, and those of them that its recurrent state has seen: all where there is none.
  struct Place {
    std::int64_t length = 0, seen = 0;
  };
  Place place(SequenceId) const;
  /// To one where it was before, at which hold() kept its state.
  void go_back(SequenceId, Place);
  /// The tokens that its state has to see again; valid until the sequence is another.
  std::span<const Token> to_read_again(SequenceId) const;

  /// What follows belongs to another step.
  void next_step();
  /// What a step needs to know of the next tokens of one sequence.
  struct Appended {
    std::int64_t position = 0;  ///< of the first one
    StateMove move;             ///< of its recurrent state
  };
  /// Gives a step a sequence's next tokens: first those to_read_again(), whose slots are -1, then new ones. Slots go to
  /// the end of `slots`, blocks that have to be copied before the step to that of `copies`. Throws ErrorKind::Internal
  /// if the cache has no room.
  Appended append(SequenceId, std::span<const Token> tokens, std::vector<std::int32_t>& slots,
                  std::vector<KvCache::BlockCopy>& copies);
  /// Gives an empty sequence its tokens without a step; false, changing nothing, if the cache has no room.
  bool put(SequenceId, std::span<const Token> tokens);
  /// A slot for its state after `length` tokens, which is written by the caller; in the order of lengths.
  std::int32_t put_state(SequenceId, std::int64_t length);
  /// Of a token that its step was to draw, as append() got it: what was drawn. Nothing if it was taken back meanwhile.
  void learn(SequenceId, std::size_t position, std::span<const Token> drawn);

  /// The state of `length` tokens, or the last one before, can be gone back to until release() or another hold().
  void hold(SequenceId, std::int64_t length);
  void release(SequenceId);

 private:
  std::vector<Token>& text(SequenceId id) { return texts_[static_cast<std::size_t>(id)]; }
  const std::vector<Token>& text(SequenceId id) const { return texts_[static_cast<std::size_t>(id)]; }

  KvCache cache_;
  std::optional<RecurrentStates> states_;
  std::vector<std::vector<Token>> texts_;  ///< per sequence, where there are states
};

}  // namespace llm
