// Types with one half as the scale of a block: Q4_0, Q5_0, Q8_0, IQ4_NL, Q2_0, TQ1_0, TQ2_0, and Q1_0, which has signs
// only.
#include "quantize/kernels/fit_scale.h"
#include "quantize/kernels/quantizers.h"
#include "quantize/kernels/value_levels.h"
#include "tensor/blocks.h"
#include "tensor/pack.h"

namespace llm::quantizers::LLM_ISA {
namespace {

/// fit(tile, scale) finds the scales; pack(q, block) stores the codes of a block's N elements.
template <class Block, class Levels, int N, class FitScales, class Pack>
void quantize_scale_blocks(const Source& s, std::byte* dst, const FitScales& fit, const Pack& pack) {
  for_tiles<Block, 1, N>(s, dst, [&](const Tile<N>& t, int count, std::byte* out) {
    PerGroup scale;
    fit(t, scale);
    Block blocks[kTile];
    for (int g = 0; g < kTile; ++g) {
      blocks[g].d = stored_half(scale.v[g], t.unit.v[g]);
      scale.v[g] = loaded_half(blocks[g].d, t.factor.v[g]);
    }
    std::uint8_t q[kTile][N];
    store_codes<Levels>(t, scale, q);
    for (int g = 0; g < count; ++g) {
      pack(q[g], blocks[g]);
      put(out, g, blocks[g]);
    }
  });
}

template <class Block, class Levels, int N, int kTargets, class Pack>
void quantize_by_targets(const Source& s, std::byte* dst, const float (&targets)[kTargets], const Pack& pack) {
  quantize_scale_blocks<Block, Levels, N>(
      s, dst,
      [&](const Tile<N>& t, PerGroup& scale) {
        PerGroup qq;
        fit_scales<Levels, 2>(t, targets, scale, qq);
      },
      pack);
}

}  // namespace

// Targets of the extreme element: the ends of the levels, where data that were quantised before are found again, and
// others chosen greedily among a dense grid on Gaussian and Laplace data, half of it with log-normal weights.

void quantize_q4_0(const Source& s, std::byte* dst) {
  static constexpr float kTargets[] = {-8, -8.2f, -9.1f, -7.15f, -7.75f, -9.85f, 8.95f, -8.65f, -6.1f, 8.2f, -6.7f, 7};
  quantize_by_targets<BlockQ4_0, WholeLevels<-8, 7>, 32>(
      s, dst, kTargets, [](const std::uint8_t* q, BlockQ4_0& b) { pack_nibbles(q, b.qs); });
}

void quantize_q5_0(const Source& s, std::byte* dst) {
  static constexpr float kTargets[] = {-16,    -16.2f, -15.2f, -17,    -14,    -15.8f, -12.8f,
                                       -17.8f, -14.8f, -12,    -16.6f, -13.4f, 15};
  quantize_by_targets<BlockQ5_0, WholeLevels<-16, 15>, 32>(s, dst, kTargets, [](const std::uint8_t* q, BlockQ5_0& b) {
    pack_nibbles(q, b.qs);
    pack_fifth_bits(q, b.qh);
  });
}

void quantize_q8_0(const Source& s, std::byte* dst) {
  using Levels = WholeLevels<-127, 127, 0>;  // not -128, which products of bytes in pairs have no room for
  static constexpr float kTargets[] = {127, 126.75f, 127.25f, 126.5f, 126.25f, 126};
  quantize_scale_blocks<BlockQ8_0, Levels, 32>(
      s, dst,
      [](const Tile<32>& t, PerGroup& scale) {
        for (int c = 0; c < kTile; c += kLanes) {
          const Floats extreme = extremes(t, c);
          Floats best = {}, best_error = all(3e38f);
          for (const float target : kTargets) {
            // Gains of so many levels differ by less than their rounding: errors are compared instead.
            const Floats fitted = fit_levels<Levels>(t, c, target / extreme).scale();
            const Floats e = scale_error<Levels>(t, c, fitted);
            best = e < best_error ? fitted : best;
            best_error = lesser(e, best_error);
          }
          store(scale.v + c, best);
        }
      },
      [](const std::uint8_t* q, BlockQ8_0& b) { __builtin_memcpy(b.qs, q, sizeof b.qs); });
}

void quantize_iq4_nl(const Source& s, std::byte* dst) {
  static constexpr float kTargets[] = {-127, -130, 115, -112.5f, -142.5f, -122.5f, 127.5f, 90, -105, 113};
  quantize_by_targets<BlockIQ4_NL, LevelsIQ4, 32>(s, dst, kTargets,
                                                  [](const std::uint8_t* q, BlockIQ4_NL& b) { pack_nibbles(q, b.qs); });
}

void quantize_q2_0(const Source& s, std::byte* dst) {
  static constexpr float kTargets[] = {2, -2, 1, 2.8f, -2.8f, 4, 2.2f, -4.2f, -2.2f, 3.3f, -3.3f};
  quantize_by_targets<BlockQ2_0, WholeLevels<-1, 2>, 64>(
      s, dst, kTargets, [](const std::uint8_t* q, BlockQ2_0& b) { pack_fours(q, b.qs); });
}

namespace {

using Trits = WholeLevels<-1, 1>;
// Of the extreme element: 1 for data that are ternary, the others for bell-shaped ones.
constexpr float kTritTargets[] = {1, 3, 2.3f, 4.1f, 1.7f};

}  // namespace

void quantize_tq1_0(const Source& s, std::byte* dst) {
  quantize_by_targets<BlockTQ1_0, Trits, 256>(s, dst, kTritTargets,
                                              [](const std::uint8_t* q, BlockTQ1_0& b) { pack_trits(q, b.qs, b.qh); });
}

void quantize_tq2_0(const Source& s, std::byte* dst) {
  quantize_by_targets<BlockTQ2_0, Trits, 256>(
      s, dst, kTritTargets, [](const std::uint8_t* q, BlockTQ2_0& b) { pack_pairs_of_bits(q, b.qs); });
}

namespace {

/// 1 and -1, for zeros 1.
struct SignLevels {
  static Floats nearest(Floats x) { return x < Floats{} ? all(-1.0f) : all(1.0f); }
  static Ints code(Floats x) { return (x < Floats{}) + 1; }
};

}  // namespace

void quantize_q1_0(const Source& s, std::byte* dst) {
  quantize_scale_blocks<BlockQ1_0, SignLevels, 128>(
      s, dst,
      [](const Tile<128>& t, PerGroup& scale) {  // whatever the scale, the levels are the same: one fit is the best
        for (int c = 0; c < kTile; c += kLanes) store(scale.v + c, fit_levels<SignLevels>(t, c, all(1.0f)).scale());
      },
      [](const std::uint8_t* q, BlockQ1_0& b) { pack_bits(q, b.qs); });
}

}  // namespace llm::quantizers::LLM_ISA
