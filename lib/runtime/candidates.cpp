#include "runtime/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace llm {

void Candidates::reset(std::span<const float> logits) {
  whole_ = true;
  logits_ = logits;
  list_.clear();
  ordered_ = 0;
}

std::span<float> Candidates::edit() {
  if (logits_.data() != own_.data()) {
    own_.assign(logits_.begin(), logits_.end());
    logits_ = own_;
  }
  return own_;
}

std::vector<Candidate>& Candidates::list() {
  if (whole_) {
    gather_at_least(logits_, std::numeric_limits<float>::lowest(), list_);
    whole_ = false;
    ordered_ = 0;
  }
  return list_;
}

std::size_t Candidates::size() const {
  if (!whole_) return list_.size();
  return moments(logits_).count;
}

Candidate Candidates::best() const {
  if (whole_) return best_of(logits_);
  if (ordered_ > 0) return list_.front();
  return *std::min_element(list_.begin(), list_.end(), better);
}

void Candidates::order_first(std::size_t n) {
  list();
  n = std::min(n, list_.size());
  if (n <= ordered_) return;
  const auto at = [&](std::size_t i) { return list_.begin() + static_cast<std::ptrdiff_t>(i); };
  if (n < list_.size()) std::nth_element(at(ordered_), at(n), list_.end(), better);
  std::sort(at(ordered_), at(n), better);
  ordered_ = n;
}

void Candidates::keep_best(std::size_t k) {
  if (whole_) {
    gather_best(logits_, k, list_);
    whole_ = false;
    ordered_ = list_.size();
  } else {
    order_first(k);
    keep_first(std::min(k, list_.size()));
  }
}

void Candidates::keep_at_least(float logit) {
  const Candidate first = best();
  if (first.logit < logit) return keep_only(first);
  if (whole_) {
    gather_at_least(logits_, logit, list_);
    whole_ = false;
  } else {
    std::erase_if(list_, [logit](const Candidate& c) { return c.logit < logit; });  // keeps the order
    ordered_ = std::min(ordered_, list_.size());
  }
}

void Candidates::keep_only(Candidate candidate) { replace({candidate}); }

void Candidates::keep_first(std::size_t n) {
  list().resize(n);
  ordered_ = std::min(ordered_, n);
}

void Candidates::replace(std::vector<Candidate> candidates) {
  list_ = std::move(candidates);
  whole_ = false;
  ordered_ = 0;
}

Candidates::Weights Candidates::weights() const {
  if (whole_) {
    const float most = largest(logits_);
    return {most, exp_sums(logits_, most)};
  }
  Weights w{best().logit, {}};
  for (const Candidate& c : list_) {
    const double d = static_cast<double>(c.logit) - static_cast<double>(w.most);
    const double e = std::exp(d);
    w.sums.total += e;
    if (e > 0) w.sums.moment += d * e;
  }
  return w;
}

double Candidates::Weights::probability(float logit) const {
  return std::exp(static_cast<double>(logit) - static_cast<double>(most)) / sums.total;
}

double Candidates::Weights::entropy() const { return std::log(sums.total) - sums.moment / sums.total; }

}  // namespace llm
