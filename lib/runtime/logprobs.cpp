#include "runtime/logprobs.h"

#include <cmath>

#include "base/error.h"
#include "runtime/logit_scan.h"

namespace llm {

Logprobs logprobs(std::span<const float> logits, Token chosen, std::size_t n) {
  check(chosen >= 0 && static_cast<std::size_t>(chosen) < logits.size(), "log probability of a token without a logit");
  const float most = largest(logits);
  const double log_total = std::log(exp_sums(logits, most).total);
  // The difference first: near the best it is exact, where the logits themselves may be large.
  const auto of = [&](float logit) { return static_cast<double>(logit) - static_cast<double>(most) - log_total; };
  Logprobs result{{chosen, of(logits[static_cast<std::size_t>(chosen)])}, {}};
  std::vector<Candidate> best;
  gather_best(logits, n, best);
  for (const Candidate& c : best) result.best.push_back({c.token, of(c.logit)});
  return result;
}

}  // namespace llm
