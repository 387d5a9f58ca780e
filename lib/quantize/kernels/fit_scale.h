// x ~ scale * level: the best scale for a set of levels, where x and the weights are columns of a tile.
//
// For given levels q the best scale is sum(w x q) / sum(w q q), and what it leaves of sum(w x x) is less by
// sum(w x q)^2 / sum(w q q): its gain. So several scales are tried, each gives levels, the largest gain wins, and then
// levels and scale are improved in turn.
#pragma once

#include "quantize/kernels/tile.h"

namespace llm::quantizers::LLM_ISA {

/// Levels give the one nearest to an element in units of the scale, and the code that a block stores for it.
/// These are kLow .. kHigh, stored from kLow on, or from another number.
template <int kLow, int kHigh, int kFirst = kLow>
struct WholeLevels {
  static Floats nearest(Floats x) { return round(clamp(x, kLow, kHigh)); }
  static Ints code(Floats x) { return __builtin_convertvector(nearest(x), Ints) - kFirst; }
};

/// The value of the largest magnitude of each group, with its sign; 1 where all are 0.
template <int N>
Floats extremes(const Tile<N>& t, int c) {
  Floats extreme = {};
  for (int i = 0; i < N; ++i) {
    const Floats x = load(&t.x[i][c]);
    extreme = abs(x) > abs(extreme) ? x : extreme;
  }
  return extreme == Floats{} ? all(1.0f) : extreme;
}

struct Fit {
  Floats xq, qq;  ///< sum(w x q), sum(w q q)
  Floats scale() const { return ratio(xq, qq); }
  Floats gain() const { return ratio(xq * xq, qq); }
};

template <class Levels, int N>
Fit fit_levels(const Tile<N>& t, int c, Floats inverse) {
  Fit f = {};
  for (int i = 0; i < N; ++i) {
    const Floats x = load(&t.x[i][c]);
    const Floats q = Levels::nearest(x * inverse);
    const Floats wq = load(&t.w[i][c]) * q;
    f.xq += wq * x;
    f.qq += wq * q;
  }
  return f;
}

/// The weighted squared error of a given scale.
template <class Levels, int N>
Floats scale_error(const Tile<N>& t, int c, Floats scale) {
  const Floats inverse = ratio(all(1.0f), scale);
  Floats error = {};
  for (int i = 0; i < N; ++i) {
    const Floats x = load(&t.x[i][c]);
    const Floats left = x - scale * Levels::nearest(x * inverse);
    error += load(&t.w[i][c]) * left * left;
  }
  return error;
}

/// Tries the scales that bring the extreme to each of `targets`. Leaves the scale and sum(w q q).
template <class Levels, int kRounds, int N, int kTargets>
void fit_scales(const Tile<N>& t, const float (&targets)[kTargets], PerGroup& scale, PerGroup& qq) {
  for (int c = 0; c < kTile; c += kLanes) {
    const Floats per_extreme = 1.0f / extremes(t, c);
    Fit best = {};
    Floats best_gain = all(-1.0f);
    const auto try_inverse = [&](Floats inverse) {
      const Fit f = fit_levels<Levels>(t, c, inverse);
      const Floats gain = f.gain();
      const auto better = gain > best_gain;
      best_gain = better ? gain : best_gain;
      best.xq = better ? f.xq : best.xq;
      best.qq = better ? f.qq : best.qq;
    };
    for (int k = 0; k < kTargets; ++k) try_inverse(targets[k] * per_extreme);
    for (int k = 0; k < kRounds; ++k) try_inverse(ratio(best.qq, best.xq));
    store(scale.v + c, best.scale());
    store(qq.v + c, best.qq);
  }
}

/// The codes of all elements by group: q[group][element].
template <class Levels, int N>
void store_codes(const Tile<N>& t, const PerGroup& scale, std::uint8_t (*q)[N]) {
  for (int c = 0; c < kTile; c += kLanes) {
    const Floats inverse = ratio(all(1.0f), load(scale.v + c));
    for (int i = 0; i < N; ++i) {
      const Ints code = Levels::code(load(&t.x[i][c]) * inverse);
      for (int l = 0; l < kLanes; ++l) q[c + l][i] = static_cast<std::uint8_t>(code[l]);
    }
  }
}

}  // namespace llm::quantizers::LLM_ISA
