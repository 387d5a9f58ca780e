#include "constrain/token_masks.h"

#include <algorithm>
#include <bit>

namespace llm {
namespace {

constexpr Stacks::StandingId kUnknown = ~Stacks::StandingId{0};

void set_bit(TokenBits& bits, Token token) {
  const auto t = static_cast<std::size_t>(token);
  bits[t / 64] |= std::uint64_t{1} << (t % 64);
}

bool has_bit(const TokenBits& bits, Token token) {
  const auto t = static_cast<std::size_t>(token);
  return (bits[t / 64] >> (t % 64) & 1) != 0;
}

}  // namespace

TokenMasks::TokenMasks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTree> tree)
    : grammar_(std::move(grammar)), tree_(std::move(tree)), stacks_(*grammar_) {}

std::size_t TokenMasks::AtState::memory() const {
  return sizeof *this + bits.size() * sizeof bits[0] + (listed.size() + left.size()) * sizeof(Token) +
         remainders.size() * sizeof(Remainder);
}

std::shared_ptr<const TokenMasks::AtState> TokenMasks::at(StateId state, std::uint32_t count) {
  const std::scoped_lock lock(mutex_);
  const Key key = key_of(state, count);
  if (const auto found = found_.find(key); found != found_.end()) return found->second;
  constexpr std::size_t kMostMemory = std::size_t{256} << 20;
  if (memory_ > kMostMemory) {
    found_.clear();
    counted_.clear();
    memory_ = 0;
  }
  auto made = std::make_shared<const AtState>(find(state, count, key));
  memory_ += made->memory();
  found_.emplace(key, made);
  return made;
}

/// A token of n bytes completes at most n repetitions: what lies further off makes no difference.
TokenMasks::Key TokenMasks::key_of(StateId state, std::uint32_t count) const {
  const Grammar::Rule& rule = grammar_->rule(grammar_->state(state).rule);
  if (!rule.counted) return {state, 0, 0};
  const auto far = static_cast<std::uint32_t>(tree_->longest() + 1);
  const std::uint32_t to_min = count < rule.min ? std::min(rule.min - count, far) : 0;
  const std::uint32_t to_max = rule.max == Grammar::kNoLimit ? far : std::min(rule.max - count, far);
  return {state, to_min, to_max};
}

TokenMasks::AtState TokenMasks::find(StateId state, std::uint32_t count, const Key& key) {
  constexpr std::size_t kMostRows = 16384;  // of 1 KiB
  if (n_rows_ > kMostRows) {
    stacks_ = Stacks(*grammar_);
    rows_.clear();
    n_rows_ = 0;
  }
  AtState result;
  result.bits.resize(n_words());
  if (const Counted* counted = counted_at(state)) {
    take_within(*counted, key, result);
  } else {
    std::vector<std::uint32_t> exits;
    walk(stacks_.only_at(state, count), result.bits, exits);
    collect_remainders(state, result.bits, exits, result);
  }

  std::size_t n = 0;
  for (const std::uint64_t word : result.bits) n += static_cast<std::size_t>(std::popcount(word));
  if (n <= result.bits.size()) {
    for (std::size_t w = 0; w < result.bits.size(); ++w) {
      for (std::uint64_t word = result.bits[w]; word != 0; word &= word - 1) {
        result.listed.push_back(static_cast<Token>(w * 64 + static_cast<std::size_t>(std::countr_zero(word))));
      }
    }
    result.bits = {};
  }
  return result;
}

/// Sets the bits of tokens that the rule can take whole; `exits` gets the nodes with whose byte the rule can be
/// complete.
void TokenMasks::walk(Stacks::StandingId start, TokenBits& bits, std::vector<std::uint32_t>& exits) {
  std::vector<Stacks::StandingId> path(tree_->longest() + 1);
  path[0] = start;
  const std::span<const TokenTree::Node> nodes = tree_->nodes();
  for (std::uint32_t i = 0; i < nodes.size();) {
    const TokenTree::Node& node = nodes[i];
    const Stacks::StandingId here = advance(path[node.depth], node.byte);
    if (here == Stacks::kNowhere) {
      i = node.end;
      continue;
    }
    path[node.depth + 1u] = here;
    for (std::uint32_t t = node.tokens_begin; t < node.tokens_middle; ++t) set_bit(bits, tree_->tokens()[t]);
    const Stacks::Standing& standing = stacks_.standing(here);
    if (standing.complete && node.end > i + 1) exits.push_back(i);
    i = standing.tops.empty() ? node.end : i + 1;
  }
}

void TokenMasks::collect_remainders(StateId state, const TokenBits& bits, std::span<const std::uint32_t> exits,
                                    AtState& result) const {
  struct Candidate {
    std::string_view bytes;
    Token token;
  };
  const ByteSet& follow = grammar_->rule(grammar_->state(state).rule).follow;
  std::vector<Candidate> candidates;
  for (const std::uint32_t exit : exits) {
    const TokenTree::Node& node = tree_->nodes()[exit];
    for (std::uint32_t child = exit + 1; child < node.end; child = tree_->nodes()[child].end) {
      const TokenTree::Node& next = tree_->nodes()[child];
      if (!follow[next.byte]) continue;
      for (std::uint32_t t = next.tokens_begin; t < next.tokens_end; ++t) {
        const Token token = tree_->tokens()[t];
        if (!has_bit(bits, token)) candidates.push_back({tree_->bytes(t).substr(node.depth + 1u), token});
      }
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.bytes < b.bytes || (a.bytes == b.bytes && a.token < b.token);
  });
  for (const Candidate& c : candidates) result.add_remainder(c.bytes, c.token);
}

void TokenMasks::AtState::add_remainder(std::string_view bytes, Token token) {
  if (remainders.empty() || remainders.back().bytes != bytes) {
    const auto begin = static_cast<std::uint32_t>(left.size());
    remainders.push_back({bytes, begin, begin});
  }
  left.push_back(token);
  ++remainders.back().tokens_end;
}

const TokenMasks::Counted* TokenMasks::counted_at(StateId state) {
  const auto [found, is_new] = counted_.try_emplace(state);
  if (is_new) {
    found->second = count_repetitions(state);
    if (found->second) {
      memory_ += found->second->begun.size() * sizeof found->second->begun[0] +
                 found->second->exits.size() * sizeof(Counted::Exit);
    }
  }
  return found->second.get();
}

std::unique_ptr<const TokenMasks::Counted> TokenMasks::count_repetitions(StateId state) const {
  constexpr std::size_t kMostExits = 200'000;
  const RuleId r = grammar_->state(state).rule;
  const Grammar::Rule& rule = grammar_->rule(r);
  if (!rule.counted) return nullptr;
  constexpr StateId kNone = ~StateId{0};
  std::vector<std::array<StateId, 256>> next;  // of the rule's states, which lie together from its start on
  for (StateId s = rule.start; s < grammar_->states().size() && grammar_->state(s).rule == r; ++s) {
    if (!grammar_->calls(grammar_->state(s)).empty()) return nullptr;
    next.emplace_back().fill(kNone);
    for (const auto& e : grammar_->bytes(grammar_->state(s)))
      std::fill(&next.back()[e.first], &next.back()[e.last] + 1, e.target);
  }
  auto result = std::make_unique<Counted>();
  result->begun.resize(tree_->n_vocab(), Counted::kLeaves);
  struct Place {
    StateId state;
    std::uint16_t completed;
  };
  std::vector<Place> path(tree_->longest() + 1);
  path[0] = {state, 0};
  const std::span<const TokenTree::Node> nodes = tree_->nodes();
  for (std::uint32_t i = 0; i < nodes.size();) {
    const TokenTree::Node& node = nodes[i];
    Place at = path[node.depth];
    at.state = next[at.state - rule.start][node.byte];
    if (at.state == kNone) {
      i = node.end;
      continue;
    }
    if (grammar_->state(at.state).accepting) {  // and has no edges: no word begins another one
      at = {rule.start, static_cast<std::uint16_t>(at.completed + 1)};
      add_exits(i, rule.follow, at.completed, *result);
      if (result->exits.size() > kMostExits) return nullptr;
    }
    path[node.depth + 1u] = at;
    for (std::uint32_t t = node.tokens_begin; t < node.tokens_middle; ++t) {
      result->begun[static_cast<std::size_t>(tree_->tokens()[t])] =
          static_cast<std::uint16_t>(at.completed + (at.state == rule.start ? 0 : 1));
    }
    ++i;
  }
  std::sort(result->exits.begin(), result->exits.end(), [](const Counted::Exit& a, const Counted::Exit& b) {
    return a.bytes < b.bytes || (a.bytes == b.bytes && a.token < b.token);
  });
  return result;
}

/// Longer tokens than this node, if the byte behind it can follow the rule.
void TokenMasks::add_exits(std::uint32_t node, const ByteSet& follow, std::uint16_t completed, Counted& result) const {
  const std::span<const TokenTree::Node> nodes = tree_->nodes();
  for (std::uint32_t child = node + 1; child < nodes[node].end; child = nodes[child].end) {
    if (!follow[nodes[child].byte]) continue;
    for (std::uint32_t t = nodes[child].tokens_begin; t < nodes[child].tokens_end; ++t) {
      result.exits.push_back({tree_->bytes(t).substr(nodes[node].depth + 1u), tree_->tokens()[t], completed});
    }
  }
}

void TokenMasks::take_within(const Counted& counted, const Key& key, AtState& result) const {
  const auto most = static_cast<std::uint16_t>(std::min<std::uint32_t>(key.to_max, Counted::kLeaves - 1u));
  const std::vector<std::uint16_t>& begun = counted.begun;
  for (std::size_t w = 0; w < result.bits.size(); ++w) {
    const std::size_t n = std::min<std::size_t>(begun.size() - w * 64, 64);
    std::uint64_t word = 0;
    for (std::size_t b = 0; b < n; ++b) word |= std::uint64_t{begun[w * 64 + b] <= most} << b;
    result.bits[w] = word;
  }
  for (const Counted::Exit& exit : counted.exits) {
    const bool may_leave = key.to_min <= exit.completed && exit.completed <= key.to_max;
    if (may_leave && !has_bit(result.bits, exit.token)) result.add_remainder(exit.bytes, exit.token);
  }
}

Stacks::StandingId TokenMasks::advance(Stacks::StandingId from, std::uint8_t byte) {
  if (from >= rows_.size()) rows_.resize(from + 1u);
  if (!rows_[from]) {
    rows_[from] = std::make_unique<Row>();
    rows_[from]->fill(kUnknown);
    ++n_rows_;
  }
  Stacks::StandingId& next = (*rows_[from])[byte];
  if (next == kUnknown) next = stacks_.step(from, byte);
  return next;
}

}  // namespace llm
