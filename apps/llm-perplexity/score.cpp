#include "score.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace llm::perplexity {
namespace {

std::size_t top(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// log of the sum of exp(logit), with the largest taken out
double log_sum_exp(std::span<const float> logits, float largest) {
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - largest);
  return largest + std::log(sum);
}

}  // namespace

RowScore score(std::span<const float> logits, Token followed_by, std::span<const float> base) {
  RowScore r;
  const std::size_t best = top(logits);
  const double norm = log_sum_exp(logits, logits[best]);
  r.nll = norm - logits[static_cast<std::size_t>(followed_by)];
  if (base.empty()) return r;

  r.base_finite = std::all_of(base.begin(), base.end(), [](float v) { return std::isfinite(v); });
  if (!r.base_finite) return r;
  const std::size_t base_best = top(base);
  const double base_norm = log_sum_exp(base, base[base_best]);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double difference = static_cast<double>(base[i]) - logits[i];
    const double log_p = base[i] - base_norm;
    r.kl += std::exp(log_p) * (difference - base_norm + norm);
    r.max_logit_diff = std::max(r.max_logit_diff, std::abs(difference));
  }
  r.same_top = best == base_best;
  return r;
}

void Mean::add(double value) {
  ++count_;
  const double difference = value - mean_;
  mean_ += difference / static_cast<double>(count_);
  squares_ += difference * (value - mean_);
}

double Mean::standard_error() const {
  if (count_ < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(count_);
  return std::sqrt(squares_ / n / (n - 1));
}

}  // namespace llm::perplexity
