// Blocks of 256 elements in groups with whole multiples of one half as scales: Q3_K, Q6_K, IQ4_XS.
#pragma once

#include "quantize/kernels/fit_scale.h"

namespace llm::quantizers::LLM_ISA {

/// The scales of the blocks of a tile: whole numbers kLow .. kHigh, and the half that they multiply.
struct ScaleMultiples {
  PerGroup scale;    ///< whole numbers
  PerGroup d;        ///< the same for all groups of a block
  PerGroup error;    ///< of each group
  Half half[kTile];  ///< d, by block
};

template <int kGroups, int N>
void set_unit(const Tile<N>& t, int b, float d, ScaleMultiples& m) {
  m.half[b] = stored_half(d, t.unit.v[b * kGroups]);
  for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) m.d.v[g] = loaded_half(m.half[b], t.factor.v[g]);
}

/// What rounding the scales to multiples of d costs with the levels that they were found with.
template <int kLow, int kHigh>
float rounding_cost(const float* scale, const float* qq, int groups, float d) {
  const float inverse = 1.0f / d;
  float cost = 0;
  for (int g = 0; g < groups; ++g) {
    const float clamped = scale[g] * inverse < kLow ? kLow : scale[g] * inverse > kHigh ? kHigh : scale[g] * inverse;
    const float left = scale[g] - d * ((clamped + 0x1.8p23f) - 0x1.8p23f);
    cost += qq[g] * left * left;
  }
  return cost;
}

/// Of the d that bring the extreme scale to one end of the whole numbers, or a little inside it, the one that rounds
/// best.
template <int kLow, int kHigh, int kGroups, int N>
void first_unit(const Tile<N>& t, const PerGroup& scale, const PerGroup& qq, ScaleMultiples& m) {
  for (int b = 0; b < kTile / kGroups; ++b) {
    const float* s = scale.v + b * kGroups;
    float extreme = 0;
    for (int g = 0; g < kGroups; ++g) extreme = s[g] * s[g] > extreme * extreme ? s[g] : extreme;
    float best = 0, best_cost = 3e38f;
    for (int k = 0; k < 8 && extreme != 0; ++k) {
      for (const int end : {kLow, kHigh}) {
        const float d = extreme / (static_cast<float>(end) * (1.0f - 0.015f * static_cast<float>(k)));
        const float cost = rounding_cost<kLow, kHigh>(s, qq.v + b * kGroups, kGroups, d);
        best = cost < best_cost ? d : best;
        best_cost = cost < best_cost ? cost : best_cost;
      }
    }
    set_unit<kGroups>(t, b, best, m);
  }
}

/// The whole numbers around scale / d that leave the least error.
template <class Levels, int kLow, int kHigh, int N>
void choose_scale_multiples(const Tile<N>& t, const PerGroup& scale, ScaleMultiples& m) {
  for (int c = 0; c < kTile; c += kLanes) {
    const Floats d = load(m.d.v + c);
    const Floats near = round(clamp(ratio(load(scale.v + c), d), kLow, kHigh));
    Floats best = near, best_error = all(3e38f);
    for (const float step : {0.0f, -1.0f, 1.0f}) {
      const Floats whole = clamp(near + step, kLow, kHigh);
      const Floats e = scale_error<Levels>(t, c, d * whole);
      best = e < best_error ? whole : best;
      best_error = lesser(e, best_error);
    }
    store(m.scale.v + c, best);
    store(m.error.v + c, best_error);
  }
}

/// The half that suits the whole numbers and their levels best: least squares over all elements of a block.
template <class Levels, int kGroups, int N>
void improve_unit(const Tile<N>& t, ScaleMultiples& m) {
  PerGroup xq, qq;
  for (int c = 0; c < kTile; c += kLanes) {
    const Fit f = fit_levels<Levels>(t, c, ratio(all(1.0f), load(m.d.v + c) * load(m.scale.v + c)));
    store(xq.v + c, f.xq);
    store(qq.v + c, f.qq);
  }
  for (int b = 0; b < kTile / kGroups; ++b) {
    float xs = 0, ss = 0;
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) {
      xs += m.scale.v[g] * xq.v[g];
      ss += m.scale.v[g] * m.scale.v[g] * qq.v[g];
    }
    if (ss > 0) set_unit<kGroups>(t, b, xs / ss, m);
  }
}

template <int kGroups>
void keep_better(const ScaleMultiples& next, ScaleMultiples& best) {
  for (int b = 0; b < kTile / kGroups; ++b) {
    float gain = 0;
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) gain += best.error.v[g] - next.error.v[g];
    if (!(gain > 0)) continue;
    best.half[b] = next.half[b];
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) {
      best.scale.v[g] = next.scale.v[g];
      best.d.v[g] = next.d.v[g];
      best.error.v[g] = next.error.v[g];
    }
  }
}

template <class Levels, int kLow, int kHigh, int kGroups, int N, int kTargets>
void fit_scale_groups(const Tile<N>& t, const float (&targets)[kTargets], ScaleMultiples& best) {
  PerGroup scale, qq;
  fit_scales<Levels, 2>(t, targets, scale, qq);
  first_unit<kLow, kHigh, kGroups>(t, scale, qq, best);
  choose_scale_multiples<Levels, kLow, kHigh>(t, scale, best);
  ScaleMultiples next = best;
  for (int round = 0; round < 2; ++round) {
    improve_unit<Levels, kGroups>(t, next);
    choose_scale_multiples<Levels, kLow, kHigh>(t, scale, next);
    keep_better<kGroups>(next, best);
  }
}

}  // namespace llm::quantizers::LLM_ISA
