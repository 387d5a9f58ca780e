// Which tokens may come at a state of a grammar, whatever called its rule: found once per state and kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "constrain/grammar.h"
#include "constrain/stacks.h"
#include "constrain/token_tree.h"

namespace llm {

/// Safe to use from several threads.
class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const Grammar>, std::shared_ptr<const TokenTree>);

  /// Tokens of which the last bytes, and these only, come after the rule that the first ones complete.
  struct Remainder {
    std::string_view bytes;
    std::uint32_t tokens_begin, tokens_end;  ///< of AtState::left
  };
  struct AtState {
    TokenBits bits;                     ///< allowed whatever comes after the rule; empty if `listed` serves
    std::vector<Token> listed;          ///< the same, where few are
    std::vector<Remainder> remainders;  ///< in the order of their bytes
    std::vector<Token> left;
    void add_remainder(std::string_view bytes, Token);
    std::size_t memory() const;
  };
  /// `count` matters in counted rules, and there only near the limits.
  std::shared_ptr<const AtState> at(StateId, std::uint32_t count);

  const Grammar& grammar() const { return *grammar_; }
  const TokenTree& tree() const { return *tree_; }
  std::size_t n_words() const { return (tree_->n_vocab() + 63) / 64; }

 private:
  struct Key {
    StateId state;
    std::uint32_t to_min, to_max;  ///< repetitions, as far as one token can tell
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    std::size_t operator()(const Key& k) const {
      return static_cast<std::size_t>(mix(mix(mix(0, k.state), k.to_min), k.to_max));
    }
  };
  using Row = std::array<Stacks::StandingId, 256>;
  /// What tokens do at a state of a counted rule that calls no others, were any number of repetitions allowed: the mask
  /// of each count follows from it, without another walk.
  struct Counted {
    static constexpr std::uint16_t kLeaves = 0xffff;
    struct Exit {
      std::string_view bytes;  ///< that come after the repetitions
      Token token;
      std::uint16_t completed;
    };
    std::vector<std::uint16_t> begun;  ///< [n_vocab] repetitions that a token goes into; kLeaves if not all of it does
    std::vector<Exit> exits;           ///< in the order of their bytes
  };

  Key key_of(StateId, std::uint32_t count) const;
  AtState find(StateId, std::uint32_t count, const Key&);
  const Counted* counted_at(StateId);
  std::unique_ptr<const Counted> count_repetitions(StateId) const;
  void add_exits(std::uint32_t node, const ByteSet& follow, std::uint16_t completed, Counted&) const;
  void take_within(const Counted&, const Key&, AtState&) const;
  void walk(Stacks::StandingId start, TokenBits& bits, std::vector<std::uint32_t>& exits);
  void collect_remainders(StateId, const TokenBits&, std::span<const std::uint32_t> exits, AtState&) const;
  Stacks::StandingId advance(Stacks::StandingId, std::uint8_t byte);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTree> tree_;
  std::mutex mutex_;
  Stacks stacks_;                           ///< of the walks
  std::vector<std::unique_ptr<Row>> rows_;  ///< [standing], steps that were taken before
  std::size_t n_rows_ = 0;
  std::unordered_map<Key, std::shared_ptr<const AtState>, HashOfKey> found_;
  std::unordered_map<StateId, std::unique_ptr<const Counted>> counted_;  ///< nullptr: not of this kind
  std::size_t memory_ = 0;
};

}  // namespace llm
