// The tokens still in the running while one token is sampled, and their logits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/logit_scan.h"

namespace llm {

/// At first the whole vocabulary, of which a token with the logit -infinity is no part: a view of the logits, a copy
/// once they are changed. What narrows it makes it a list. It is never empty as long as one logit is finite.
class Candidates {
 public:
  /// The logits stay in use until the next reset.
  void reset(std::span<const float> logits);

  bool whole() const { return whole_; }
  std::span<const float> logits() const { return logits_; }  ///< of a whole set, by token id
  std::span<float> edit();                                   ///< the same, to be changed
  /// Lists them if they are not yet; the order is by id or as the stages before left it. Whoever changes logits says
  /// changed().
  std::vector<Candidate>& list();
  void changed() { ordered_ = 0; }
  std::span<const Candidate> listed() const { return list_; }  ///< nothing as long as the set is whole

  std::size_t size() const;
  Candidate best() const;
  /// Puts the n best at the front, in order. Lists them.
  void order_first(std::size_t n);

  void keep_best(std::size_t k);    ///< k >= 1; in order
  void keep_at_least(float logit);  ///< and the best at least
  void keep_only(Candidate);
  void keep_first(std::size_t n);  ///< of the list
  void replace(std::vector<Candidate>);

  /// Sums of e^(logit - most): what probabilities are made of.
  struct Weights {
    float most;
    ExpSums sums;
    double probability(float logit) const;
    double entropy() const;  ///< in nats
  };
  Weights weights() const;

 private:
  bool whole_ = true;
  std::span<const float> logits_;
  std::vector<float> own_;
  std::vector<Candidate> list_;
  std::size_t ordered_ = 0;  ///< this many at the front of the list are the best, in order
};

}  // namespace llm
