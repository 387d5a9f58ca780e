#include "runtime/repetition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/logit_scan.h"

namespace llm {
namespace {

/// Overflow must not make infinities, which mean something else.
float finite(double logit) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -kMost, kMost));
}

/// Calls change(logit, value) for every candidate that has an entry in `values`.
template <class Value, class Change>
void change_some(Candidates& candidates, const std::unordered_map<Token, Value>& values, Change change) {
  if (values.empty()) return;
  if (candidates.whole()) {
    const std::span<float> logits = candidates.edit();
    for (const auto& [token, value] : values) {
      if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) continue;
      float& logit = logits[static_cast<std::size_t>(token)];
      if (logit != kNever) logit = change(logit, value);
    }
    return;
  }
  for (Candidate& c : candidates.list()) {
    const auto found = values.find(c.token);
    if (found != values.end()) c.logit = change(c.logit, found->second);
  }
  candidates.changed();
}

/// How many tokens back the last sequence breaker ends: a repetition may not be longer.
std::size_t longest_repetition(std::span<const Token> history, const SequenceBreakers& breakers) {
  for (std::size_t back = 0; back < history.size(); ++back) {
    const auto found = breakers.tails.find(history[history.size() - 1 - back]);
    if (found == breakers.tails.end()) continue;
    const std::span<const Token> after = history.last(back);
    std::size_t longest = 0;
    bool any = false;
    for (const std::vector<Token>& tail : found->second) {
      if (tail.size() > back || !std::equal(tail.begin(), tail.end(), after.begin())) continue;
      longest = std::max(longest, tail.size());
      any = true;
    }
    if (any) return back - longest;
  }
  return history.size();
}

/// For each k >= 1: how many tokens before the one that is k from the end equal those at the end (the Z function of the
/// reversed history; Gusfield: Algorithms on strings, 1997).
std::vector<std::size_t> common_ends(std::span<const Token> history) {
  const std::size_t n = history.size();
  const auto from_end = [&](std::size_t i) { return history[n - 1 - i]; };
  std::vector<std::size_t> z(n, 0);
  for (std::size_t k = 1, left = 0, right = 0; k < n; ++k) {  // [left, right) is the known match that ends furthest
    if (k < right) z[k] = std::min(right - k, z[k - left]);
    while (k + z[k] < n && from_end(z[k]) == from_end(k + z[k])) ++z[k];
    if (k + z[k] > right) {
      left = k;
      right = k + z[k];
    }
  }
  return z;
}

bool breaks_alone(const SequenceBreakers& breakers, Token token) {
  const auto found = breakers.tails.find(token);
  return found != breakers.tails.end() &&
         std::any_of(found->second.begin(), found->second.end(), [](const auto& tail) { return tail.empty(); });
}

void add_tail(std::vector<std::vector<Token>>& tails, std::vector<Token> tail) {
  if (std::find(tails.begin(), tails.end(), tail) == tails.end()) tails.push_back(std::move(tail));
}

}  // namespace

const Token* RecentTokens::beyond(std::span<const Token> history) const {
  if (window_ < 0 || history.size() <= static_cast<std::size_t>(window_)) return nullptr;
  return &history[history.size() - 1 - static_cast<std::size_t>(window_)];
}

void RecentTokens::add(Token token, int n) {
  if ((counts_[token] += n) == 0) counts_.erase(token);
}

void RecentTokens::entered(std::span<const Token> history) {
  if (window_ == 0) return;
  add(history.back(), 1);
  if (const Token* out = beyond(history)) add(*out, -1);
}

void RecentTokens::leaving(std::span<const Token> history) {
  if (window_ == 0) return;
  add(history.back(), -1);
  if (const Token* back = beyond(history)) add(*back, 1);
}

void penalise(Candidates& candidates, const std::unordered_map<Token, int>& counts, const Penalties& p) {
  change_some(candidates, counts, [&](float logit, int count) {
    const float repeated = logit <= 0 ? logit * p.repeat : logit / p.repeat;
    return finite(static_cast<double>(repeated - (static_cast<float>(count) * p.frequency + p.presence)));
  });
}

SequenceBreakers find_sequence_breakers(const Tokenizer& tokenizer, std::span<const std::string> strings) {
  constexpr std::size_t kLongestTail = 20;  // bounds the search at each token of a history
  SequenceBreakers breakers;
  for (Token t = 0; t < static_cast<Token>(tokenizer.n_vocab()); ++t) {
    const std::string piece = tokenizer.spelling(t);
    for (const std::string& text : strings) {
      if (text.empty()) continue;
      if (piece.find(text) != std::string::npos) {
        add_tail(breakers.tails[t], {});
        continue;
      }
      const std::size_t longest = std::min(piece.size(), text.size() - 1);
      for (std::size_t n = longest; n >= 1; --n) {
        if (!std::string_view(piece).ends_with(std::string_view(text).substr(0, n))) continue;
        auto tail = tokenizer.encode(text.substr(n), {.add_special = false, .parse_special = false});
        if (tail.size() > kLongestTail) tail.resize(kLongestTail);
        add_tail(breakers.tails[t], std::move(tail));
      }
    }
  }
  return breakers;
}

void discourage_repeats(Candidates& candidates, std::span<const Token> history, const Dry& dry,
                        const SequenceBreakers& breakers) {
  const auto allowed = static_cast<std::size_t>(dry.allowed_length);
  if (history.size() <= allowed) return;
  const std::size_t limit = longest_repetition(history, breakers);
  if (limit < allowed) return;
  const std::vector<std::size_t> equal = common_ends(history);
  std::unordered_map<Token, std::size_t> longest;  // by the token that would prolong it
  for (std::size_t k = 1; k < history.size(); ++k) {
    const std::size_t n = std::min(equal[k], limit);
    if (n < allowed) continue;
    const Token next = history[history.size() - k];
    if (breaks_alone(breakers, next)) continue;
    std::size_t& most = longest[next];
    most = std::max(most, n);
  }
  change_some(candidates, longest, [&](float logit, std::size_t n) {
    const double penalty =
        static_cast<double>(dry.multiplier) * std::pow(static_cast<double>(dry.base), static_cast<double>(n - allowed));
    return finite(static_cast<double>(logit) - penalty);
  });
}

}  // namespace llm
