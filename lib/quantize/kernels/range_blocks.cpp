// Types with scales and minimums: Q4_1, Q5_1, and Q2_K, Q4_K, Q5_K, whose groups have whole multiples of a block's two
// halves.
#include "quantize/kernels/fit_range.h"
#include "quantize/kernels/quantizers.h"
#include "quantize/kernels/shrinking.h"
#include "tensor/blocks.h"
#include "tensor/pack.h"

namespace llm::quantizers::LLM_ISA {
namespace {

/// q by group: q[group][element].
template <int kTop, int N>
void range_levels(const Tile<N>& t, const PerGroup& scale, const PerGroup& min, std::uint8_t (*q)[N]) {
  for (int c = 0; c < kTile; c += kLanes) {
    const Floats inverse = ratio(all(1.0f), load(scale.v + c)), from = load(min.v + c);
    for (int i = 0; i < N; ++i) {
      const Ints level = __builtin_convertvector(nearest_whole<kTop>((load(&t.x[i][c]) - from) * inverse), Ints);
      for (int l = 0; l < kLanes; ++l) q[c + l][i] = static_cast<std::uint8_t>(level[l]);
    }
  }
}

// --- a scale and a minimum per block ---

/// The best scale for a minimum that is what it is after rounding: from the scale before, and from the element that is
/// farthest from the minimum, which is all there is to go by where rounding moved it more than the elements differ.
template <int kTop, int N>
void refit_scales(const Tile<N>& t, const PerGroup& min, PerGroup& scale) {
  for (int c = 0; c < kTile; c += kLanes) {
    const Floats from = load(min.v + c);
    Floats farthest = {};
    for (int i = 0; i < N; ++i) {
      const Floats x = load(&t.x[i][c]) - from;
      farthest = abs(x) > abs(farthest) ? x : farthest;
    }
    Floats best_scale = load(scale.v + c), best_gain = all(-1.0f);
    for (const Floats start : {best_scale, farthest * (1.0f / kTop)}) {
      const Floats inverse = ratio(all(1.0f), start);
      Floats xq = {}, qq = {};
      for (int i = 0; i < N; ++i) {
        const Floats x = load(&t.x[i][c]) - from;
        const Floats q = nearest_whole<kTop>(x * inverse);
        const Floats wq = load(&t.w[i][c]) * q;
        xq += wq * x;
        qq += wq * q;
      }
      const Floats gain = ratio(xq * xq, qq);
      best_scale = gain > best_gain ? ratio(xq, qq) : best_scale;
      best_gain = greater(gain, best_gain);
    }
    store(scale.v + c, best_scale);
  }
}

template <class Block, int kTop, int kClips, class Pack>
void quantize_range_blocks(const Source& s, std::byte* dst, const Clip (&clips)[kClips], const Pack& pack) {
  for_tiles<Block, 1, 32>(s, dst, [&](const Tile<32>& t, int count, std::byte* out) {
    PerGroup scale, min;
    fit_ranges<kTop, AnyMin, 1>(t, clips, scale, min);
    Block blocks[kTile];
    for (int g = 0; g < kTile; ++g) {
      blocks[g].m = stored_half(min.v[g], t.unit.v[g]);
      min.v[g] = loaded_half(blocks[g].m, t.factor.v[g]);
    }
    refit_scales<kTop>(t, min, scale);
    for (int g = 0; g < kTile; ++g) {
      blocks[g].d = stored_half(scale.v[g], t.unit.v[g]);
      scale.v[g] = loaded_half(blocks[g].d, t.factor.v[g]);
    }
    std::uint8_t q[kTile][32];
    range_levels<kTop>(t, scale, min, q);
    for (int g = 0; g < count; ++g) {
      pack(q[g], blocks[g]);
      put(out, g, blocks[g]);
    }
  });
}

// --- K types ---

/// Scales and minimums of the blocks of a tile, kGroups groups each: whole numbers, and the halves that they multiply.
struct Multiples {
  PerGroup scale, min;                   ///< whole numbers 0 .. the type's top
  PerGroup d, dmin;                      ///< the same for all groups of a block
  float error[kTile];                    ///< of each block
  Half half_d[kTile], half_dmin[kTile];  ///< by block
};

/// Rounds d and dmin of block b to halves.
template <int kGroups, int N>
void set_units(const Tile<N>& t, int b, float d, float dmin, Multiples& m) {
  const int first = b * kGroups;
  m.half_d[b] = stored_half(d, t.unit.v[first]);
  m.half_dmin[b] = stored_half(dmin, t.unit.v[first]);
  for (int g = first; g < first + kGroups; ++g) {
    m.d.v[g] = loaded_half(m.half_d[b], t.factor.v[g]);
    m.dmin.v[g] = loaded_half(m.half_dmin[b], t.factor.v[g]);
  }
}

/// The whole numbers around scale / d and min / dmin that leave the least error.
template <int kTop, int kMultiple, int kGroups, int N>
void choose_multiples(const Tile<N>& t, const PerGroup& scale, const PerGroup& min, Multiples& m) {
  PerGroup error;
  for (int c = 0; c < kTile; c += kLanes) {
    const Floats d = load(m.d.v + c), dmin = load(m.dmin.v + c);
    const Floats near_scale = round(clamp(ratio(load(scale.v + c), d), 0, kMultiple));
    const Floats near_min = round(clamp(ratio(load(min.v + c), dmin), 0, kMultiple));
    Floats best_scale = near_scale, best_min = near_min, best_error = all(3e38f);
    for (int i = -1; i <= 1; ++i) {
      const Floats whole_scale = clamp(near_scale + static_cast<float>(i), 0, kMultiple);
      for (int j = -1; j <= 1; ++j) {
        const Floats whole_min = clamp(near_min + static_cast<float>(j), 0, kMultiple);
        const Floats e = range_error<kTop>(t, c, d * whole_scale, -(dmin * whole_min));
        best_scale = e < best_error ? whole_scale : best_scale;
        best_min = e < best_error ? whole_min : best_min;
        best_error = lesser(e, best_error);
      }
    }
    store(m.scale.v + c, best_scale);
    store(m.min.v + c, best_min);
    store(error.v + c, best_error);
  }
  for (int b = 0; b < kTile / kGroups; ++b) {
    m.error[b] = 0;
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) m.error[b] += error.v[g];
  }
}

/// The halves that suit the whole numbers and their levels best: least squares over all elements of a block.
template <int kTop, int kGroups, int N>
void improve_units(const Tile<N>& t, Multiples& m) {
  PerGroup q, qq, xq, w, wx;
  for (int c = 0; c < kTile; c += kLanes) {
    const RangeSums s =
        range_sums<kTop>(t, c, load(m.d.v + c) * load(m.scale.v + c), -(load(m.dmin.v + c) * load(m.min.v + c)));
    store(q.v + c, s.q);
    store(qq.v + c, s.qq);
    store(xq.v + c, s.xq);
    Floats sum_w = {}, sum_wx = {};
    for (int i = 0; i < N; ++i) {
      sum_w += load(&t.w[i][c]);
      sum_wx += load(&t.w[i][c]) * load(&t.x[i][c]);
    }
    store(w.v + c, sum_w);
    store(wx.v + c, sum_wx);
  }
  for (int b = 0; b < kTile / kGroups; ++b) {
    // x ~ d * (scale q) - dmin * min
    float ss = 0, sm = 0, mm = 0, xs = 0, xm = 0;
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) {
      const float scale = m.scale.v[g], min = m.min.v[g];
      ss += scale * scale * qq.v[g];
      sm += scale * min * q.v[g];
      mm += min * min * w.v[g];
      xs += scale * xq.v[g];
      xm += min * wx.v[g];
    }
    const float determinant = ss * mm - sm * sm;
    if (determinant > 1e-6f * ss * mm) {
      const float d = (xs * mm - xm * sm) / determinant, dmin = (xs * sm - xm * ss) / determinant;
      if (d > 0 && dmin >= 0) set_units<kGroups>(t, b, d, dmin, m);
    } else if (mm == 0 && ss > 0) {
      set_units<kGroups>(t, b, xs / ss, 0, m);
    }
  }
}

template <int kMultiple, int kGroups, int N>
void first_units(const Tile<N>& t, const PerGroup& scale, const PerGroup& min, Multiples& m) {
  for (int b = 0; b < kTile / kGroups; ++b) {
    float d = 0, dmin = 0;
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) {
      d = d > scale.v[g] ? d : scale.v[g];
      dmin = dmin > min.v[g] ? dmin : min.v[g];
    }
    set_units<kGroups>(t, b, d / kMultiple, dmin / kMultiple, m);
  }
}

template <int kGroups>
void keep_better(const Multiples& next, Multiples& best) {
  for (int b = 0; b < kTile / kGroups; ++b) {
    if (!(next.error[b] < best.error[b])) continue;
    best.half_d[b] = next.half_d[b];
    best.half_dmin[b] = next.half_dmin[b];
    best.error[b] = next.error[b];
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) {
      best.scale.v[g] = next.scale.v[g];
      best.min.v[g] = next.min.v[g];
      best.d.v[g] = next.d.v[g];
      best.dmin.v[g] = next.dmin.v[g];
    }
  }
}

template <int kTop, int kMultiple, int kGroups, int N, int kClips>
void fit_multiples(const Tile<N>& t, const Clip (&clips)[kClips], Multiples& best) {
  PerGroup scale, min;
  fit_ranges<kTop, MinBelowZero, 2>(t, clips, scale, min);
  for (float& m : min.v) m = 0.0f - m;  // what is subtracted
  first_units<kMultiple, kGroups>(t, scale, min, best);
  choose_multiples<kTop, kMultiple, kGroups>(t, scale, min, best);
  Multiples next = best;
  for (int round = 0; round < 2; ++round) {
    improve_units<kTop, kGroups>(t, next);
    choose_multiples<kTop, kMultiple, kGroups>(t, scale, min, next);
    keep_better<kGroups>(next, best);
  }
}

/// Makes both halves of each block larger, so that its elements are nearer to as large as they were (shrinking.h).
template <int kGroups, int N>
void undo_shrinking(const Tile<N>& t, Multiples& m) {
  PerGroup of_group;
  energies(t, of_group);
  for (int b = 0; b < kTile / kGroups; ++b) {
    float energy = 0;
    for (int g = b * kGroups; g < (b + 1) * kGroups; ++g) energy += of_group.v[g];
    const float by = growth(m.error[b], energy);
    set_units<kGroups>(t, b, m.d.v[b * kGroups] * by, m.dmin.v[b * kGroups] * by, m);
  }
}

/// pack(scales, mins, q, block) stores the whole numbers of the groups and the quants of a block.
template <class Block, int kTop, int kMultiple, int kGroups, int kClips, class Pack>
void quantize_k_range(const Source& s, std::byte* dst, const Clip (&clips)[kClips], const Pack& pack) {
  constexpr int N = 256 / kGroups;
  for_tiles<Block, kGroups, N>(s, dst, [&](const Tile<N>& t, int count, std::byte* out) {
    Multiples m;
    fit_multiples<kTop, kMultiple, kGroups>(t, clips, m);
    PerGroup scale, min;
    std::uint8_t q[kTile][N], scales[kTile], mins[kTile];
    for (int g = 0; g < kTile; ++g) {
      scale.v[g] = m.d.v[g] * m.scale.v[g];
      min.v[g] = 0.0f - m.dmin.v[g] * m.min.v[g];
      scales[g] = static_cast<std::uint8_t>(m.scale.v[g]);
      mins[g] = static_cast<std::uint8_t>(m.min.v[g]);
    }
    range_levels<kTop>(t, scale, min, q);
    if constexpr (kTop == 3) undo_shrinking<kGroups>(t, m);
    for (int b = 0; b < count; ++b) {
      Block block;
      block.d = m.half_d[b];
      block.dmin = m.half_dmin[b];
      pack(scales + b * kGroups, mins + b * kGroups, q[b * kGroups], block);
      put(out, b, block);
    }
  });
}

// Ranges to try, chosen greedily among a dense grid on Gaussian and Laplace data, half of it with log-normal weights:
// they come within 0.5 % of the grid's error. First come the whole range, and the ranges of data that were quantised
// before to half as many steps, or in which one end is not taken: such data are found exactly.
constexpr Clip kClips15[] = {{0, 0},    {0, -15 / 14.f}, {0.2f, 0.2f},  {-0.4f, 0.4f}, {0.4f, -0.2f},
                             {-1, 0},   {0, 0.4f},       {-1, -1},      {1, 0.2f},     {0, -0.2f},
                             {0.4f, 1}, {0.6f, 0.4f},    {-1.2f, 0.2f}, {0.2f, 1.4f},  {-0.8f, -0.2f}};
constexpr Clip kClips31[] = {{0, 0},      {0, -31 / 30.f}, {0, -31 / 28.f}, {0.25f, -0.75f}, {-1, -1},
                             {0, 0.5f},   {0.5f, 0},       {-1.5f, -0.5f},  {-0.5f, 0},      {-0.75f, -1.5f},
                             {-1.5f, -1}, {0.5f, 0.5f},    {-1.25f, 0.25f}, {1.25f, 0},      {0, 1}};
constexpr Clip kClips3[] = {{0, 0},        {0.3f, 0.3f}, {0, 0.5f},    {0.5f, 0}, {1, 0},       {-0.4f, -0.2f},
                            {-0.6f, 0.3f}, {0.5f, 0.8f}, {0.4f, 0.2f}, {0.2f, 1}, {0.9f, 0.3f}, {0.2f, 0.4f}};

}  // namespace

void quantize_q4_1(const Source& s, std::byte* dst) {
  quantize_range_blocks<BlockQ4_1, 15>(s, dst, kClips15,
                                       [](const std::uint8_t* q, BlockQ4_1& b) { pack_nibbles(q, b.qs); });
}

void quantize_q5_1(const Source& s, std::byte* dst) {
  quantize_range_blocks<BlockQ5_1, 31>(s, dst, kClips31, [](const std::uint8_t* q, BlockQ5_1& b) {
    pack_nibbles(q, b.qs);
    pack_fifth_bits(q, b.qh);
  });
}

void quantize_q2_k(const Source& s, std::byte* dst) {
  quantize_k_range<BlockQ2_K, 3, 15, 16>(
      s, dst, kClips3, [](const std::uint8_t* scale, const std::uint8_t* min, const std::uint8_t* q, BlockQ2_K& b) {
        for (int g = 0; g < 16; ++g) b.scales[g] = static_cast<std::uint8_t>(scale[g] | (min[g] << 4));
        pack_pairs_of_bits(q, b.qs);
      });
}

void quantize_q4_k(const Source& s, std::byte* dst) {
  quantize_k_range<BlockQ4_K, 15, 63, 8>(
      s, dst, kClips15, [](const std::uint8_t* scale, const std::uint8_t* min, const std::uint8_t* q, BlockQ4_K& b) {
        pack_scales_q4_k(scale, min, b.scales);
        pack_nibbles_q4_k(q, b.qs);
      });
}

void quantize_q5_k(const Source& s, std::byte* dst) {
  quantize_k_range<BlockQ5_K, 31, 63, 8>(
      s, dst, kClips31, [](const std::uint8_t* scale, const std::uint8_t* min, const std::uint8_t* q, BlockQ5_K& b) {
        pack_scales_q4_k(scale, min, b.scales);
        pack_nibbles_q4_k(q, b.qs);
        pack_high_bit(q, 4, b.qh);
      });
}

}  // namespace llm::quantizers::LLM_ISA
