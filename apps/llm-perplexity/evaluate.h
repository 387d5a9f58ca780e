// Runs windows through a model and scores the logits as they come.
#pragma once

#include "npy.h"
#include "runtime/session.h"
#include "score.h"
#include "windows.h"

namespace llm::perplexity {

struct Totals {
  Mean nll;
  // Beside a base:
  Mean kl;
  double kl_max = 0, max_logit_diff = 0;
  std::uint64_t same_top = 0;
};

struct Streams {
  NpyReader* base = nullptr;
  NpyWriter* save = nullptr;
};

/// Rows of logits are read from `base` and written to `save` in the order of the scored positions: window by window,
/// ascending.
Totals evaluate(Model&, const Windows&, const Streams&, CacheFormat, int threads);

}  // namespace llm::perplexity
