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
    memory_ = 0;
  }
  auto made = std::make_shared<const AtState>(find(state, count));
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

TokenMasks::AtState TokenMasks::find(StateId state, std::uint32_t count) {
  constexpr std::size_t kMostRows = 16384;  // of 1 KiB
  if (n_rows_ > kMostRows) {
    stacks_ = Stacks(*grammar_);
    rows_.clear();
    n_rows_ = 0;
  }
  AtState result;
  result.bits.resize(n_words());
  std::vector<std::uint32_t> exits;
  walk(stacks_.only_at(state, count), result.bits, exits);
  collect_remainders(state, result.bits, exits, result);

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
  for (const Candidate& c : candidates) {
    if (result.remainders.empty() || result.remainders.back().bytes != c.bytes) {
      const auto begin = static_cast<std::uint32_t>(result.left.size());
      result.remainders.push_back({c.bytes, begin, begin});
    }
    result.left.push_back(c.token);
    ++result.remainders.back().tokens_end;
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
