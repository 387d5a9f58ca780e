#include "constrain/constraint.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace llm {
namespace {

void set_bits(std::span<std::uint64_t> bits, std::span<const Token> tokens) {
  for (const Token token : tokens) {
    const auto t = static_cast<std::size_t>(token);
    bits[t / 64] |= std::uint64_t{1} << (t % 64);
  }
}

/// A character that may come and begins with this byte; the byte alone if it is in the middle of one.
std::string character_from(const Grammar& grammar, Stacks& stacks, Stacks::StandingId at, std::uint8_t byte) {
  std::string text(1, static_cast<char>(byte));
  const std::size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
  while (text.size() < length) {
    at = stacks.step(at, static_cast<std::uint8_t>(text.back()));
    const auto& tops = stacks.standing(at).tops;
    if (tops.empty()) break;
    text += static_cast<char>(grammar.bytes(grammar.state(stacks.node(tops.front()).state)).front().first);
  }
  return text;
}

/// What the stacks can take, for a message: `"a"-"z", "\x0a"`.
std::string characters_in_words(const Grammar& grammar, Stacks& stacks, Stacks::StandingId at) {
  std::string words;
  const auto quoted = [&](std::uint8_t byte) {
    return "\"" + escaped(character_from(grammar, stacks, at, byte)) + "\"";
  };
  const std::vector<Stacks::NodeId> tops = stacks.standing(at).tops;  // a copy: characters are found by steps
  for (const Stacks::NodeId top : tops) {
    for (const auto& e : grammar.bytes(grammar.state(stacks.node(top).state))) {
      if (!words.empty()) words += ", ";
      words += quoted(e.first) + (e.first == e.last ? "" : "-" + quoted(e.last));
      if (words.size() > 100) return words + ", ...";
    }
  }
  return words;
}

}  // namespace

struct Constraint::Shared {
  explicit Shared(std::shared_ptr<TokenMasks> m) : masks(std::move(m)), stacks(masks->grammar()) {}

  const TokenBits& bits_at(Stacks::StandingId standing) {
    for (const Kept& kept : recent) {
      if (kept.standing == standing) return kept.bits;
    }
    Kept& kept = recent[next];
    next = (next + 1) % recent.size();
    kept.standing = kUnused;  // should an exception leave it half done
    kept.bits.assign(masks->n_words(), 0);
    find(standing, kept.bits);
    kept.standing = standing;
    return kept.bits;
  }

  void find(Stacks::StandingId standing, TokenBits& bits) {
    // A copy: stepping through remainders adds standings, nodes and sets.
    const Stacks::Standing here = stacks.standing(standing);
    for (const Stacks::NodeId top : here.tops) {
      const Stacks::Node node = stacks.node(top);
      const auto at = masks->at(node.state, node.count);
      for (std::size_t w = 0; w < at->bits.size(); ++w) bits[w] |= at->bits[w];
      set_bits(bits, at->listed);
      if (!at->remainders.empty()) add_remainders(*at, stacks.resume(node.parents), bits);
    }
    if (here.complete) set_bits(bits, masks->tree().end_tokens());
    if (std::all_of(bits.begin(), bits.end(), [](std::uint64_t w) { return w == 0; })) refuse(standing);
  }

  /// Remainders are in order, so that what two neighbours begin with is tried once.
  void add_remainders(const TokenMasks::AtState& at, Stacks::StandingId start, TokenBits& bits) {
    if (stacks.standing(start).tops.empty()) return;
    path.assign(1, start);
    std::string_view before;
    for (const TokenMasks::Remainder& r : at.remainders) {
      const auto [a, b] = std::mismatch(before.begin(), before.end(), r.bytes.begin(), r.bytes.end());
      std::size_t depth = std::min(static_cast<std::size_t>(a - before.begin()), path.size() - 1);
      path.resize(depth + 1);
      while (depth < r.bytes.size() && path.back() != Stacks::kNowhere) {
        path.push_back(stacks.step(path.back(), static_cast<std::uint8_t>(r.bytes[depth++])));
      }
      if (path.back() != Stacks::kNowhere) {
        set_bits(bits, std::span(at.left).subspan(r.tokens_begin, r.tokens_end - r.tokens_begin));
      }
      before = r.bytes;
    }
  }

  [[noreturn]] void refuse(Stacks::StandingId standing) {
    std::string problem = "this model's vocabulary cannot write it: ";
    problem += stacks.standing(standing).complete ? "the text is complete, and the model has no token that ends it"
                                                  : "no token begins with what must come next (" +
                                                        characters_in_words(masks->grammar(), stacks, standing) + ")";
    throw Error(ErrorKind::Notation,
                ErrorParts{.file = {}, .subject = "the form of the answer", .problem = std::move(problem)});
  }

  static constexpr Stacks::StandingId kUnused = ~Stacks::StandingId{0};
  struct Kept {
    Stacks::StandingId standing = kUnused;
    TokenBits bits;
  };

  std::shared_ptr<TokenMasks> masks;
  Stacks stacks;
  std::array<Kept, 8> recent;
  std::size_t next = 0;
  std::vector<Stacks::StandingId> path;
};

Constraint::Constraint(std::shared_ptr<TokenMasks> masks)
    : shared_(std::make_shared<Shared>(std::move(masks))), history_{shared_->stacks.begin()} {}

std::span<const std::uint64_t> Constraint::allowed() { return shared_->bits_at(now()); }

bool Constraint::accept(Token token) {
  if (token < 0 || static_cast<std::size_t>(token) >= shared_->masks->tree().n_vocab()) return false;
  const std::string_view bytes = shared_->masks->tree().piece(token);
  Stacks::StandingId at = bytes.empty() ? Stacks::kNowhere : now();
  for (const char c : bytes) {
    if (at == Stacks::kNowhere) break;
    at = shared_->stacks.step(at, static_cast<std::uint8_t>(c));
  }
  if (at == Stacks::kNowhere) return false;
  history_.push_back(at);
  return true;
}

void Constraint::rewind(std::size_t n) {
  check(n <= accepted(), "a constraint rewound before its beginning");
  history_.resize(history_.size() - n);
}

bool Constraint::can_end() const { return shared_->stacks.standing(now()).complete; }

bool Constraint::must_end() const {
  const Stacks::Standing& here = shared_->stacks.standing(now());
  return here.complete && here.tops.empty();
}

bool Constraint::is_whole(std::string_view text) const {
  Stacks::StandingId at = history_.front();
  for (const char c : text) {
    if (at == Stacks::kNowhere) return false;
    at = shared_->stacks.step(at, static_cast<std::uint8_t>(c));
  }
  return at != Stacks::kNowhere && shared_->stacks.standing(at).complete;
}

}  // namespace llm
