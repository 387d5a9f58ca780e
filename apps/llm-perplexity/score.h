// What a row of logits says about the token that followed, and how it differs from a base. All in double precision.
#pragma once

#include <cstdint>
#include <span>

#include "text/tokenizer.h"

namespace llm::perplexity {

struct RowScore {
  double nll = 0;  ///< of the token that followed, in nats
  // Beside a base:
  double kl = 0;  ///< KL(base || this), in nats
  double max_logit_diff = 0;
  bool same_top = false;  ///< the likeliest token is the same; of equal logits the lowest id
  bool base_finite = true;
};

/// `base` is empty or as long as `logits`, which are finite.
RowScore score(std::span<const float> logits, Token followed_by, std::span<const float> base);

/// Mean and its standard error of numbers given one by one (Welford's recurrence).
class Mean {
 public:
  void add(double value);
  std::uint64_t count() const { return count_; }
  double mean() const { return mean_; }
  double sum() const { return mean_ * static_cast<double>(count_); }
  double standard_error() const;  ///< NaN below two numbers

 private:
  std::uint64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

}  // namespace llm::perplexity
