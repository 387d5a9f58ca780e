// What a generator holds: the grammar, a place in it, and which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "constrain/token_masks.h"

namespace llm {

/// The state of one text. Copies are cheap and independent of each other, but share memory: use them in one thread.
class Constraint {
 public:
  explicit Constraint(std::shared_ptr<TokenMasks>);

  /// One bit per token of the vocabulary; those of end tokens are set where the text may end. Valid until the next call
  /// of allowed() on this or a copy. Throws ErrorKind::Notation if the vocabulary has no token that could come.
  std::span<const std::uint64_t> allowed();
  /// False, and nothing changes, if the token may not come here. End tokens and others without text never may.
  bool accept(Token);
  /// Forgets the last `n` accepted tokens.
  void rewind(std::size_t n);

  std::size_t accepted() const { return history_.size() - 1; }
  /// The text so far is whole.
  bool can_end() const;
  /// ... and nothing can be added to it.
  bool must_end() const;
  /// Whether another text, from its first byte on, is whole.
  bool is_whole(std::string_view text) const;

 private:
  struct Shared;
  Stacks::StandingId now() const { return history_.back(); }

  std::shared_ptr<Shared> shared_;
  std::vector<Stacks::StandingId> history_;  ///< before and after each accepted token
};

}  // namespace llm
