// The sampler chain. One order of candidates everywhere: higher logit first, of equal ones the lower id.
#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace llm {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

bool better(const Sampler::Candidate& a, const Sampler::Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/// Lowest id of the largest logit.
Token best_token(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float largest(std::span<const Sampler::Candidate> candidates) {
  float most = kForbidden;
  for (const auto& c : candidates) most = std::max(most, c.logit);
  return most;
}

double weight(float logit, float largest) {
  return std::exp(static_cast<double>(logit) - static_cast<double>(largest));
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr int kRounds = 10;
  constexpr std::uint64_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t p0 = kMultiply0 * counter[0], p1 = kMultiply1 * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double counter_uniform(std::uint64_t seed, std::uint64_t row, std::uint64_t index) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const auto words = philox4x32({low(row), high(row), low(index), high(index)}, {low(seed), high(seed)});
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32 | words[0]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

Sampler::Sampler(SamplerOptions options, std::uint64_t row) : options_(options), row_(row) {
  check(options.min_p <= 1 && options.top_p >= 0 && options.repeat_penalty > 0, "options of a sampler");
}

void Sampler::accept(Token token) { history_.push_back(token); }

void Sampler::rewind(std::size_t count) {
  check(count <= history_.size(), "a sampler rewound forward");
  history_.resize(count);
}

void Sampler::forbid(std::vector<Token> tokens) { forbidden_ = std::move(tokens); }

Token Sampler::sample(std::span<const float> logits, std::uint64_t index) {
  check(!logits.empty(), "no logits to sample from");
  if (options_.temperature <= 0) return best_token(prepare(logits));
  candidates(logits);
  return draw(index);
}

std::span<const Sampler::Candidate> Sampler::candidates(std::span<const float> logits) {
  const std::span<const float> adjusted = prepare(logits);
  const auto k = static_cast<std::size_t>(std::max(options_.top_k, 0));
  if (k == 0 || k >= adjusted.size()) {
    collect_all(adjusted);
  } else {
    collect_top_k(adjusted, k);
  }
  if (candidates_.empty()) candidates_.push_back({best_token(logits), 0});
  if (options_.top_p < 1) keep_top_p();
  if (options_.min_p > 0) keep_min_p();
  return candidates_;
}

/// The logits themselves if no penalty and no ban acts.
std::span<const float> Sampler::prepare(std::span<const float> logits) {
  const bool penalised = options_.repeat_penalty != 1 && options_.repeat_last_n != 0 && !history_.empty();
  if (!penalised && forbidden_.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  if (penalised) apply_penalties(adjusted_);
  for (const Token t : forbidden_) {
    if (t >= 0 && static_cast<std::size_t>(t) < adjusted_.size()) adjusted_[static_cast<std::size_t>(t)] = kForbidden;
  }
  return adjusted_;
}

void Sampler::apply_penalties(std::span<float> logits) const {
  const std::size_t window = options_.repeat_last_n < 0
                                 ? history_.size()
                                 : std::min(history_.size(), static_cast<std::size_t>(options_.repeat_last_n));
  std::vector<Token> recent(history_.end() - static_cast<std::ptrdiff_t>(window), history_.end());
  std::sort(recent.begin(), recent.end());
  recent.erase(std::unique(recent.begin(), recent.end()), recent.end());  // once per token, however often it occurs
  for (const Token t : recent) {
    if (t < 0 || static_cast<std::size_t>(t) >= logits.size()) continue;
    float& logit = logits[static_cast<std::size_t>(t)];
    logit = logit <= 0 ? logit * options_.repeat_penalty : logit / options_.repeat_penalty;
  }
}

void Sampler::collect_all(std::span<const float> logits) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kForbidden) candidates_.push_back({static_cast<Token>(i), logits[i]});
  }
  sorted_ = false;
}

/// One pass with a heap whose root is the worst of the best k: of 128k logits few pass the comparison with it.
void Sampler::collect_top_k(std::span<const float> logits, std::size_t k) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (candidates_.size() == k && !(logits[i] > candidates_.front().logit)) continue;  // an equal one has a higher id
    if (logits[i] == kForbidden) continue;
    if (candidates_.size() == k) {
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.pop_back();
    }
    candidates_.push_back({static_cast<Token>(i), logits[i]});
    std::push_heap(candidates_.begin(), candidates_.end(), better);
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), better);
  sorted_ = true;
}

/// The fewest best candidates whose probabilities reach top_p together. Sorts no more of them than it needs.
void Sampler::keep_top_p() {
  const float most = largest(candidates_);
  double total = 0;
  for (const Candidate& c : candidates_) total += weight(c.logit, most);
  const double wanted = static_cast<double>(options_.top_p) * total;
  std::size_t in_order = sorted_ ? candidates_.size() : 0;
  double sum = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (i == in_order) {
      constexpr std::size_t kFirst = 128, kGrowth = 8;
      const std::size_t end = std::min(candidates_.size(), std::max(kFirst, in_order * kGrowth));
      const auto at = [&](std::size_t n) { return candidates_.begin() + static_cast<std::ptrdiff_t>(n); };
      if (end < candidates_.size()) std::nth_element(at(in_order), at(end), candidates_.end(), better);
      std::sort(at(in_order), at(end), better);
      in_order = end;
    }
    sum += weight(candidates_[i].logit, most);
    if (sum >= wanted) {
      candidates_.resize(i + 1);
      break;
    }
  }
  sorted_ = true;
}

/// Those at least min_p times as likely as the best.
void Sampler::keep_min_p() {
  const float least = largest(candidates_) + std::log(options_.min_p);
  std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
}

Token Sampler::draw(std::uint64_t index) const {
  const float most = largest(candidates_);
  const auto probability = [&](const Candidate& c) {
    return std::exp((static_cast<double>(c.logit) - static_cast<double>(most)) /
                    static_cast<double>(options_.temperature));
  };
  double total = 0;
  for (const Candidate& c : candidates_) total += probability(c);
  const double target = counter_uniform(options_.seed, row_, index) * total;
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += probability(c);
    if (sum > target) return c.token;
  }
  return candidates_.back().token;
}

}  // namespace llm
