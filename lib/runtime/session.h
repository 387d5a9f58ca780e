// Sequences of tokens over one paged cache: append, rewind, fork, and the logits of what was appended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/model.h"
#include "runtime/session_memory.h"
#include "runtime/work.h"

namespace llm {

/// That a prompt does not fit, in words: "prompt 21 tokens, context 20".
std::string problem_of_length(std::int64_t tokens, std::int64_t context);

class Session {
 public:
  /// Throws ErrorKind::Memory with the byte figures if an explicit context does not fit.
  Session(Model&, SessionOptions);
  ~Session();

  /// Most positions of one sequence.
  std::int64_t context() const;
  SequenceId create();
  /// A new sequence with the first `length` positions of another: shares its full blocks.
  SequenceId fork(SequenceId, std::int64_t length);
  void remove(SequenceId);
  std::int64_t length(SequenceId) const;
  /// Forgets all positions from `length` on. Layers with a recurrent state may have to see some of the tokens before it
  /// again, as after fork(): that happens where the sequence goes on next (read_again()).
  void rewind(SequenceId, std::int64_t length);

  /// Runs the tokens through the model, in as many steps as they need; a sequence may occur once in `work`. Rows of
  /// logits [n][vocab] of the wanted tokens in the order of `work`; they stay valid until the next call. Throws
  /// ErrorKind::Context if a sequence would outgrow the context (before anything is computed), ErrorKind::Numeric for
  /// NaN or infinite logits; every sequence then has the length it had before. Where `go_on` says no, no further step
  /// begins, and there are no rows: what was computed stays in the sequences.
  std::span<const float> eval(std::span<const Append> work, const GoOn& go_on = {});

  /// Whether the backend draws tokens itself: then logits stay where they are, and a step can begin before the caller
  /// has seen what the one before it drew.
  bool draws() const;
  /// Begins a step, of at most batch_tokens() tokens and with a rule at least; rows are numbered in the order of `work`
  /// over those with a rule. Two steps can be begun at once, the second of sequences without tokens to_read_again().
  /// Throws ErrorKind::Context as eval() does. Whatever rewinds a sequence, removes it or gives its blocks to others
  /// may be called while steps run; eval() may not.
  void begin(std::span<const Drawing> work);
  /// The tokens that the rows of the oldest step begun drew, once it has ended; valid until the next call. Nothing if
  /// its logits were not finite: every step begun is taken back then, and eval() of the same tokens says why.
  std::optional<std::span<const Token>> collect();
  int begun() const;  ///< and not collected
  /// Waits for the steps begun and forgets what they drew; what they appended stays.
  void abandon();

  const CacheFormat& cache_format() const;

  /// Why a sequence of `tokens` cannot be: ErrorKind::Context, "prompt 5,120 tokens, context 4,096".
  void require_context(std::int64_t tokens) const;

  /// Most tokens of one step.
  int batch_tokens() const;
  /// Of the steps in which eval() computes so many tokens; at most batch_tokens().
  int step_tokens(std::int64_t all) const;
  /// Of one eval(), so many steps may be on their way; where it is more than one, tokens gain by being in one eval().
  int steps_at_once() const;
  /// Positions of the cache that no sequence holds, and those that appending `n` tokens to one would take: both are
  /// whole blocks. Work that needs more than is free must not be given to eval().
  std::int64_t free_positions() const;
  std::int64_t positions_needed(SequenceId, std::int64_t n) const;

  /// What the cache holds of a sequence, in blocks of kBlockPositions positions, each cache_block_bytes() long; the
  /// last may be partly filled.
  std::size_t cache_block_bytes() const;
  void read_block(SequenceId, std::size_t index, std::span<std::byte> dst) const;
  /// What recurrent layers remember of a sequence, bytes_per_state() of it (0 of models without such layers) at each of
  /// these lengths.
  std::size_t bytes_per_state() const;
  bool recurrent() const { return bytes_per_state() > 0; }
  std::vector<std::int64_t> remembered(SequenceId) const;
  void read_state(SequenceId, std::size_t index, std::span<std::byte> dst) const;
  /// What another session of the same model, backend and CacheFormat held of a sequence.
  struct Restored {
    std::span<const Token> tokens;                                 ///< its first ones, of which the blocks are
    std::function<std::span<const std::byte>(std::size_t)> block;  ///< what read_block() gave
    std::span<const std::int64_t> remembered = {};                 ///< ascending; those beyond the tokens are no use
    std::function<std::span<const std::byte>(std::size_t)> state = {};  ///< what read_state() gave
  };
  /// Fills an empty sequence. Throws ErrorKind::Context if the cache has no room.
  void restore(SequenceId, const Restored&);
  /// Tokens that were computed once more for the sake of recurrent layers.
  std::int64_t read_again() const;
  /// Those of a sequence that are still to be, where it goes on next: then no step of it begins behind another.
  std::int64_t to_read_again(SequenceId) const;

  /// Compiled so far: a step that compiles one takes longer than others.
  std::size_t programs() const;
  std::uint64_t cache_bytes_in_use() const;
  std::uint64_t cache_bytes_per_position() const;
  /// Who is told what the model's head read of every token that is computed from here on, if the model predicts().
  void tell_hidden(OnHidden);
  Observer* observer = nullptr;  ///< given to the programs of every step
  std::string describe() const;  ///< the context and the programs compiled so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llm
