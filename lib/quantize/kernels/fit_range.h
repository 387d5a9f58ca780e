// x ~ scale * q + min with q of 0 .. kTop: the best scale and minimum, where x and the weights are columns of a tile.
//
// For given q both are the solution of two linear equations. Several ranges are tried, some clipping the ends, each
// gives q, the best gain wins, and then q and the two are improved in turn. What x is less by before anything is
// summed, its base, keeps groups far from 0 from losing their spread in rounding.
#pragma once

#include "quantize/kernels/tile.h"

namespace llm::quantizers::LLM_ISA {

/// Both ends of a range, moved inwards by so many steps.
struct Clip {
  float low, high;
};

/// Q4_1, Q5_1: any minimum.
struct AnyMin {
  static Floats base(Floats lowest) { return lowest; }
  static Floats constrain(Floats min, Floats) { return min; }
};
/// K types subtract a minimum that is not negative.
struct MinBelowZero {
  static Floats base(Floats lowest) { return lesser(lowest, Floats{}); }
  static Floats constrain(Floats min, Floats base) { return lesser(min, -base); }
};

struct RangeSums {
  Floats q, qq, xq;  ///< sums of w q, w q q, w x q
};

/// Scale and minimum (from the base) and how much less than sum(w x x) they leave.
struct RangeFit {
  Floats scale, min, gain;
};

template <int kTop>
Floats nearest_whole(Floats x) {
  return round(clamp(x, 0, kTop));
}

template <class Min>
RangeFit solve_range(const RangeSums& s, Floats w, Floats wx, Floats base) {
  const Floats determinant = w * s.qq - s.q * s.q;  // 0 where all q are equal
  const auto spread = determinant > 1e-6f * w * s.qq;
  Floats scale = spread ? (w * s.xq - wx * s.q) / (spread ? determinant : all(1.0f)) : Floats{};
  Floats least = (wx - scale * s.q) / w;
  const Floats allowed = Min::constrain(least, base);
  scale = allowed < least ? ratio(s.xq - allowed * s.q, s.qq) : scale;
  least = allowed;
  const Floats gain =
      2.0f * (scale * s.xq + least * wx) - scale * scale * s.qq - 2.0f * scale * least * s.q - least * least * w;
  return {scale, least, gain};
}

/// Leaves scale and minimum of each group.
template <int kTop, class Min, int kRounds, int N, int kClips>
void fit_ranges(const Tile<N>& t, const Clip (&clips)[kClips], PerGroup& scale, PerGroup& min) {
  for (int c = 0; c < kTile; c += kLanes) {
    Floats lowest = load(&t.x[0][c]), highest = lowest;
    for (int i = 1; i < N; ++i) {
      lowest = lesser(lowest, load(&t.x[i][c]));
      highest = greater(highest, load(&t.x[i][c]));
    }
    const Floats base = Min::base(lowest);
    Floats w = {}, wx = {};
    for (int i = 0; i < N; ++i) {
      w += load(&t.w[i][c]);
      wx += load(&t.w[i][c]) * (load(&t.x[i][c]) - base);
    }
    RangeFit best = {Floats{}, Floats{}, all(-1.0f)};
    const auto try_range = [&](Floats inverse, Floats low) {
      RangeSums s = {};
      for (int i = 0; i < N; ++i) {
        const Floats x = load(&t.x[i][c]) - base;
        const Floats q = nearest_whole<kTop>((x - low) * inverse);
        const Floats wq = load(&t.w[i][c]) * q;
        s.q += wq;
        s.qq += wq * q;
        s.xq += wq * x;
      }
      const RangeFit f = solve_range<Min>(s, w, wx, base);
      // More than rounding: of equal ranges the first is kept, which are the ones that lose nothing when stored.
      const auto better = f.gain > best.gain + 0x1p-20f * abs(best.gain);
      best.scale = better ? f.scale : best.scale;
      best.min = better ? f.min : best.min;
      best.gain = better ? f.gain : best.gain;
    };
    const Floats range = highest - base, step = range * (1.0f / kTop);
    const Floats low = lowest - base;
    for (int k = 0; k < kClips; ++k) {
      const Floats from = low + clips[k].low * step;
      try_range(ratio(all(kTop), highest - base - clips[k].high * step - from), from);
    }
    for (int k = 0; k < kRounds; ++k) try_range(ratio(all(1.0f), best.scale), best.min);
    store(scale.v + c, best.scale);
    store(min.v + c, best.min + base);
  }
}

/// The weighted squared error of a given scale and minimum.
template <int kTop, int N>
Floats range_error(const Tile<N>& t, int c, Floats scale, Floats min) {
  const Floats inverse = ratio(all(1.0f), scale);
  Floats error = {};
  for (int i = 0; i < N; ++i) {
    const Floats x = load(&t.x[i][c]) - min;
    const Floats left = x - scale * nearest_whole<kTop>(x * inverse);
    error += load(&t.w[i][c]) * left * left;
  }
  return error;
}

/// The sums that the levels of a given scale and minimum give; x from 0 on.
template <int kTop, int N>
RangeSums range_sums(const Tile<N>& t, int c, Floats scale, Floats min) {
  const Floats inverse = ratio(all(1.0f), scale);
  RangeSums s = {};
  for (int i = 0; i < N; ++i) {
    const Floats x = load(&t.x[i][c]);
    const Floats q = nearest_whole<kTop>((x - min) * inverse);
    const Floats wq = load(&t.w[i][c]) * q;
    s.q += wq;
    s.qq += wq * q;
    s.xq += wq * x;
  }
  return s;
}

}  // namespace llm::quantizers::LLM_ISA
