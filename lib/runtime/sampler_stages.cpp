#include "runtime/sampler_stages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace llm {
namespace {

double weight(float logit, float most) { return std::exp(static_cast<double>(logit) - static_cast<double>(most)); }

/// Of a whole vocabulary, the best within a band below the best one that weigh enough, if a band does: what is far
/// below need not be looked at.
void narrow_to(Candidates& candidates, const Candidates::Weights& weights, double wanted) {
  std::vector<Candidate> near;
  for (const float band : {4.0F, 8.0F, 16.0F}) {
    const float least = weights.most - band;
    if (count_at_least(candidates.logits(), least) > candidates.logits().size() / 8) return;
    gather_at_least(candidates.logits(), least, near);
    double sum = 0;
    for (const Candidate& c : near) sum += weight(c.logit, weights.most);
    if (sum >= wanted) return candidates.replace(std::move(near));
  }
}

/// Candidates by a key, lowest first: how many and how heavy those of each stretch of the key are.
struct Histogram {
  static constexpr double kPerUnit = 16;
  static constexpr std::size_t kBins = 1024;
  std::vector<double> mass = std::vector<double>(kBins, 0);
  std::vector<std::size_t> count = std::vector<std::size_t>(kBins, 0);

  static std::size_t bin(double key) {
    return static_cast<std::size_t>(std::min(key * kPerUnit, static_cast<double>(kBins - 1)));
  }
};

template <class Key>
Histogram histogram_of(std::span<const Candidate> list, float most, Key key) {
  constexpr std::size_t kChunk = 256;
  float logits[kChunk], e[kChunk];
  Histogram h;
  for (std::size_t from = 0; from < list.size(); from += kChunk) {
    const std::size_t n = std::min(kChunk, list.size() - from);
    for (std::size_t i = 0; i < n; ++i) logits[i] = list[from + i].logit;
    exps({logits, n}, most, e);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t bin = Histogram::bin(key(logits[i]));
      h.mass[bin] += static_cast<double>(e[i]);
      ++h.count[bin];
    }
  }
  return h;
}

/// Keeps candidates in ascending order of key(logit) >= 0 until enough(sum of their weights, how many), and all if it
/// never is enough. A long list is not sorted: only the stretch of the key is in which it becomes enough.
template <class Key, class Enough>
void keep_until(Candidates& candidates, float most, Key key, Enough enough) {
  constexpr std::size_t kShort = 1024;
  std::vector<Candidate>& list = candidates.list();
  const auto before = [&](const Candidate& a, const Candidate& b) {
    const double ka = key(a.logit), kb = key(b.logit);
    return ka != kb ? ka < kb : better(a, b);
  };
  std::size_t bin = 0, count = 0;
  double sum = 0;
  const bool is_long = list.size() > kShort;
  if (is_long) {
    const Histogram h = histogram_of(list, most, key);
    while (bin < Histogram::kBins && !enough(sum + h.mass[bin], count + h.count[bin])) {
      sum += h.mass[bin];
      count += h.count[bin];
      ++bin;
    }
    if (bin == Histogram::kBins) return;
  }
  std::vector<Candidate> edge;  // where it becomes enough
  for (const Candidate& c : list) {
    if (!is_long || Histogram::bin(key(c.logit)) == bin) edge.push_back(c);
  }
  std::sort(edge.begin(), edge.end(), before);
  std::size_t kept = 0;
  while (kept < edge.size()) {
    sum += weight(edge[kept++].logit, most);
    if (enough(sum, ++count)) break;
  }
  if (!is_long) {
    edge.resize(kept);
    return candidates.replace(std::move(edge));
  }
  const Candidate last = edge[kept - 1];
  candidates.changed();
  std::erase_if(list, [&](const Candidate& c) { return before(last, c); });
}

}  // namespace

void keep_top_p(Candidates& candidates, double p, std::size_t min_keep) {
  const Candidates::Weights w = candidates.weights();
  const double wanted = p * w.sums.total;
  if (candidates.whole() && min_keep <= 1) narrow_to(candidates, w, wanted);
  keep_until(
      candidates, w.most, [&w](float logit) { return static_cast<double>(w.most) - static_cast<double>(logit); },
      [=](double sum, std::size_t count) { return sum >= wanted && count >= min_keep; });
}

void keep_min_p(Candidates& candidates, double p, std::size_t min_keep) {
  const float least = candidates.best().logit + static_cast<float>(std::log(p));
  if (min_keep > 1) {
    candidates.order_first(min_keep);
    const std::vector<Candidate>& list = candidates.list();
    const std::size_t n = std::min(min_keep, list.size());
    if (list[n - 1].logit < least) return candidates.keep_first(n);
  }
  candidates.keep_at_least(least);
}

void keep_top_n_sigma(Candidates& candidates, double n) {
  Moments m;
  if (candidates.whole()) {
    m = moments(candidates.logits());
  } else {
    std::vector<float> logits;
    for (const Candidate& c : candidates.list()) logits.push_back(c.logit);
    m = moments(logits);
  }
  const double least = static_cast<double>(candidates.best().logit) - n * m.deviation;
  candidates.keep_at_least(static_cast<float>(least));
}

void keep_typical(Candidates& candidates, double p, std::size_t min_keep) {
  const Candidates::Weights w = candidates.weights();
  // -log p - H = typical - logit: where the logit is whose information is the entropy.
  const double typical = static_cast<double>(w.most) + w.sums.moment / w.sums.total;
  const double wanted = p * w.sums.total;
  keep_until(
      candidates, w.most, [typical](float logit) { return std::abs(static_cast<double>(logit) - typical); },
      [=](double sum, std::size_t count) { return sum > wanted && count >= min_keep; });
}

void exclude_top(Candidates& candidates, double threshold, std::size_t min_keep) {
  const Candidates::Weights w = candidates.weights();
  std::vector<Candidate>& list = candidates.list();
  // The first comparison spares most of a vocabulary the exponential.
  const double near = static_cast<double>(w.most) + std::log(threshold * w.sums.total) - 1e-3;
  const auto is_top = [&](const Candidate& c) {
    return static_cast<double>(c.logit) >= near && w.probability(c.logit) >= threshold;
  };
  std::size_t tops = 0;
  Candidate last{-1, std::numeric_limits<float>::infinity()};
  for (const Candidate& c : list) {
    if (!is_top(c)) continue;
    ++tops;
    if (tops == 1 || better(last, c)) last = c;
  }
  if (tops < 2 || list.size() - (tops - 1) < min_keep) return;
  candidates.changed();
  std::erase_if(list, [&](const Candidate& c) { return c.token != last.token && is_top(c); });
}

void scale_by_temperature(Candidates& candidates, double temperature) {
  if (temperature == 1) return;
  const Candidate best = candidates.best();
  if (temperature <= 0) return candidates.keep_only(best);
  // Only differences count, so the best becomes 0 where its quotient would not fit a float.
  const auto divisor = static_cast<float>(temperature);
  const float from = std::abs(best.logit) > std::numeric_limits<float>::max() * divisor ? best.logit : 0;
  if (candidates.whole()) {
    for (float& l : candidates.edit()) l = (l - from) / divisor;
  } else {
    for (Candidate& c : candidates.list()) c.logit = (c.logit - from) / divisor;
  }
}

double dynamic_temperature(const Candidates& candidates, double temperature, double range, double exponent) {
  const std::size_t n = candidates.size();
  if (n <= 1) return 1;
  const double low = std::max(0.0, temperature - range), high = temperature + range;
  const double relative = candidates.weights().entropy() / std::log(static_cast<double>(n));
  return low + (high - low) * std::pow(std::max(relative, 0.0), exponent);
}

void keep_mirostat_1(Candidates& candidates, double mu, std::size_t n_vocab) {
  constexpr std::size_t kLooked = 100;  // m of the paper
  std::vector<Candidate> list;
  if (candidates.whole()) {
    gather_best(candidates.logits(), kLooked, list);
  } else {
    candidates.order_first(kLooked);
    const std::span<const Candidate> all = candidates.listed();
    list.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(kLooked, all.size())));
  }
  if (list.size() < 2) return candidates.keep_best(1);
  double products = 0, squares = 0;
  for (std::size_t i = 0; i + 1 < list.size(); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (static_cast<double>(list[i].logit) - static_cast<double>(list[i + 1].logit));
    squares += t * t;
  }
  const double s = products / squares, epsilon = s - 1;
  const auto n = static_cast<double>(n_vocab);
  const double scale = epsilon == 0 ? 1 / std::log(n) : epsilon / (1 - std::pow(n, -epsilon));  // its limit at 0
  const double k = std::pow(scale * std::exp2(mu), 1 / s);
  candidates.keep_best(static_cast<std::size_t>(std::clamp(k, 1.0, n)));
}

void keep_mirostat_2(Candidates& candidates, double mu) {
  const Candidates::Weights w = candidates.weights();
  const double least = static_cast<double>(w.most) + std::log(w.sums.total) - mu * std::numbers::ln2;
  candidates.keep_at_least(static_cast<float>(least));
}

Token draw(const Candidates& candidates, double uniform) {
  if (candidates.whole()) return draw_from(candidates.logits(), uniform);
  const Candidates::Weights w = candidates.weights();
  const double target = uniform * w.sums.total;
  double sum = 0;
  Token last = candidates.best().token;  // where roundings leave the target beyond the sum
  for (const Candidate& c : candidates.listed()) {
    const double e = weight(c.logit, w.most);
    sum += e;
    if (e > 0) last = c.token;
    if (sum > target) break;
  }
  return last;
}

}  // namespace llm
