// The samplers as they are published, in double precision over whole lists that are sorted whole: what the fast ones
// are tested against. Nothing here is shared with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "runtime/sampler_options.h"

namespace llm::test {

struct Scored {
  Token token;
  double logit;
};
using Scores = std::vector<Scored>;

inline Scores scores_of(const std::vector<float>& logits) {
  Scores s;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isinf(logits[i])) s.push_back({static_cast<Token>(i), static_cast<double>(logits[i])});
  }
  return s;
}

inline void sort_best_first(Scores& s) {
  std::sort(s.begin(), s.end(), [](const Scored& a, const Scored& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
}

/// p_i = e^l_i / sum e^l_j
inline std::vector<double> probabilities(const Scores& s) {
  double most = s.front().logit, sum = 0;
  for (const Scored& x : s) most = std::max(most, x.logit);
  std::vector<double> p;
  for (const Scored& x : s) p.push_back(std::exp(x.logit - most));
  for (const double x : p) sum += x;
  for (double& x : p) x /= sum;
  return p;
}

inline double entropy_of(const std::vector<double>& p) {
  double h = 0;
  for (const double x : p) h -= x > 0 ? x * std::log(x) : 0;
  return h;
}

inline Scores define_top_k(Scores s, int k) {
  sort_best_first(s);
  if (k > 0 && s.size() > static_cast<std::size_t>(k)) s.resize(static_cast<std::size_t>(k));
  return s;
}

/// The smallest set of best tokens with sum p >= top_p.
inline Scores define_top_p(Scores s, double top_p, std::size_t min_keep) {
  sort_best_first(s);
  const auto p = probabilities(s);
  double sum = 0;
  std::size_t n = 0;
  while (n < s.size()) {
    sum += p[n++];
    if (sum >= top_p && n >= min_keep) break;
  }
  s.resize(n);
  return s;
}

/// p_i >= min_p max p
inline Scores define_min_p(Scores s, double min_p, std::size_t min_keep) {
  sort_best_first(s);
  const auto p = probabilities(s);
  std::size_t n = 1;
  while (n < s.size() && (p[n] >= min_p * p[0] || n < min_keep)) ++n;
  s.resize(n);
  return s;
}

/// l_i >= max l - n sigma, sigma the population's standard deviation
inline Scores define_top_n_sigma(Scores s, double n) {
  sort_best_first(s);
  double mean = 0, variance = 0;
  for (const Scored& x : s) mean += x.logit / static_cast<double>(s.size());
  for (const Scored& x : s) variance += (x.logit - mean) * (x.logit - mean) / static_cast<double>(s.size());
  const double least = s.front().logit - n * std::sqrt(variance);
  std::erase_if(s, [least](const Scored& x) { return x.logit < least; });
  return s;
}

/// The smallest set with sum p > typical_p in ascending order of |-log p_i - H|.
inline Scores define_typical(Scores s, double typical_p, std::size_t min_keep) {
  sort_best_first(s);
  const auto p = probabilities(s);
  const double h = entropy_of(p);
  std::vector<std::size_t> order(s.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(-std::log(p[a]) - h) < std::abs(-std::log(p[b]) - h);
  });
  Scores kept;
  double sum = 0;
  for (const std::size_t i : order) {
    kept.push_back(s[i]);
    sum += p[i];
    if (sum > typical_p && kept.size() >= min_keep) break;
  }
  return kept;
}

/// Of those with p >= threshold all but the last go.
inline Scores define_xtc(Scores s, double threshold, std::size_t min_keep) {
  sort_best_first(s);
  const auto p = probabilities(s);
  std::size_t tops = 0;
  while (tops < s.size() && p[tops] >= threshold) ++tops;
  if (tops >= 2 && s.size() - (tops - 1) >= min_keep) s.erase(s.begin(), s.begin() + static_cast<long>(tops - 1));
  return s;
}

/// T_min + (T_max - T_min) (H / log n)^exponent
inline Scores define_temperature(Scores s, double t, double range, double exponent) {
  if (t <= 0) return define_top_k(s, 1);
  if (range > 0 && s.size() > 1) {
    const double low = std::max(0.0, t - range), high = t + range;
    const double h = entropy_of(probabilities(s)) / std::log(static_cast<double>(s.size()));
    t = low + (high - low) * std::pow(std::max(h, 0.0), exponent);
  } else if (range > 0) {
    t = 1;
  }
  if (t <= 0) return define_top_k(s, 1);
  for (Scored& x : s) x.logit /= t;
  return s;
}

inline Scores define_penalties(Scores s, std::vector<Token> history, const SamplerOptions& o) {
  if (o.repeat_last_n >= 0 && history.size() > static_cast<std::size_t>(o.repeat_last_n)) {
    history.erase(history.begin(), history.end() - o.repeat_last_n);
  }
  for (Scored& x : s) {
    const auto count = static_cast<double>(std::count(history.begin(), history.end(), x.token));
    if (count == 0) continue;
    const auto r = static_cast<double>(o.repeat_penalty);
    x.logit = x.logit <= 0 ? x.logit * r : x.logit / r;
    x.logit -= count * static_cast<double>(o.frequency_penalty) + static_cast<double>(o.presence_penalty);
  }
  return s;
}

/// For every earlier place where a token follows what the history ends in (n tokens of it, back to the last breaker):
/// multiplier * base^(n - allowed), the largest n counts. A breaker is one token here.
inline Scores define_dry(Scores s, std::vector<Token> history, const SamplerOptions& o,
                         const std::vector<Token>& breakers) {
  if (o.dry_penalty_last_n >= 0 && history.size() > static_cast<std::size_t>(o.dry_penalty_last_n)) {
    history.erase(history.begin(), history.end() - o.dry_penalty_last_n);
  }
  const auto breaks = [&](Token t) { return std::find(breakers.begin(), breakers.end(), t) != breakers.end(); };
  for (Scored& x : s) {
    if (breaks(x.token)) continue;
    int longest = -1;
    for (std::size_t at = 1; at < history.size(); ++at) {
      if (history[at] != x.token) continue;
      int n = 0;
      for (; static_cast<std::size_t>(n) < at; ++n) {
        const Token end = history[history.size() - 1 - static_cast<std::size_t>(n)];
        if (breaks(end) || history[at - 1 - static_cast<std::size_t>(n)] != end) break;
      }
      longest = std::max(longest, n);
    }
    if (longest >= o.dry_allowed_length) {
      x.logit -= static_cast<double>(o.dry_multiplier) *
                 std::pow(static_cast<double>(o.dry_base), longest - o.dry_allowed_length);
    }
  }
  return s;
}

/// The whole chain, every sampler whether it is on or not; xtc by `exclude`.
inline Scores define_chain(const std::vector<float>& logits, const SamplerOptions& o, const std::vector<Token>& history,
                           const std::vector<Token>& breakers, bool exclude) {
  Scores s = scores_of(logits);
  const auto keep = static_cast<std::size_t>(o.min_keep);
  for (const SamplerKind kind : o.order) {
    if (kind == SamplerKind::Penalties) s = define_penalties(s, history, o);
    if (kind == SamplerKind::Dry) s = define_dry(s, history, o, breakers);
    if (kind == SamplerKind::TopNSigma && o.top_n_sigma > 0) {
      s = define_top_n_sigma(s, static_cast<double>(o.top_n_sigma));
    }
    if (kind == SamplerKind::TopK) s = define_top_k(s, o.top_k);
    if (kind == SamplerKind::Typical && o.typical_p < 1) s = define_typical(s, static_cast<double>(o.typical_p), keep);
    if (kind == SamplerKind::TopP && o.top_p < 1) s = define_top_p(s, static_cast<double>(o.top_p), keep);
    if (kind == SamplerKind::MinP && o.min_p > 0) s = define_min_p(s, static_cast<double>(o.min_p), keep);
    if (kind == SamplerKind::Xtc && exclude && o.xtc_threshold <= 0.5F) {
      s = define_xtc(s, static_cast<double>(o.xtc_threshold), keep);
    }
    if (kind == SamplerKind::Temperature) {
      s = define_temperature(s, static_cast<double>(o.temperature), static_cast<double>(o.dynatemp_range),
                             static_cast<double>(o.dynatemp_exponent));
    }
  }
  return s;
}

}  // namespace llm::test
