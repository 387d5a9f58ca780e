// Types with one scale for a block: Q4_0, Q5_0, Q8_0.
#include "quantize/kernels/fit_scale.h"
#include "quantize/kernels/quantizers.h"
#include "tensor/blocks.h"
#include "tensor/pack.h"

namespace llm::quantizers::LLM_ISA {
namespace {

/// Scales of a tile of blocks of one group as halves, and what they stand for.
struct HalfScales {
  Half half[kTile];
  PerGroup value;
};

template <int N>
HalfScales half_scales(const Tile<N>& t, const PerGroup& scale) {
  HalfScales s;
  for (int g = 0; g < kTile; ++g) {
    s.half[g] = stored_half(scale.v[g], t.unit.v[g]);
    s.value.v[g] = loaded_half(s.half[g], t.factor.v[g]);
  }
  return s;
}

}  // namespace

void quantize_q4_0(const Source& s, std::byte* dst) {
  using Levels = WholeLevels<-8, 7>;
  static constexpr float kTargets[] = {-8, -8.2f, -9.1f, -7.15f, -7.75f, -9.85f, 8.95f, -8.65f, -6.1f, 8.2f, -6.7f, 7};
  for_tiles<BlockQ4_0, 1, 32>(s, dst, [](const Tile<32>& t, int count, std::byte* out) {
    PerGroup scale, qq;
    fit_scales<Levels, 2>(t, kTargets, scale, qq);
    const HalfScales d = half_scales(t, scale);
    std::uint8_t q[kTile][32];
    levels<Levels>(t, d.value, 8, q);
    for (int g = 0; g < count; ++g) {
      BlockQ4_0 b;
      b.d = d.half[g];
      pack_nibbles(q[g], b.qs);
      put(out, g, b);
    }
  });
}

void quantize_q5_0(const Source& s, std::byte* dst) {
  using Levels = WholeLevels<-16, 15>;
  static constexpr float kTargets[] = {-16,    -16.2f, -15.2f, -17,    -14,    -15.8f, -12.8f,
                                       -17.8f, -14.8f, -12,    -16.6f, -13.4f, 15};
  for_tiles<BlockQ5_0, 1, 32>(s, dst, [](const Tile<32>& t, int count, std::byte* out) {
    PerGroup scale, qq;
    fit_scales<Levels, 2>(t, kTargets, scale, qq);
    const HalfScales d = half_scales(t, scale);
    std::uint8_t q[kTile][32];
    levels<Levels>(t, d.value, 16, q);
    for (int g = 0; g < count; ++g) {
      BlockQ5_0 b;
      b.d = d.half[g];
      pack_nibbles(q[g], b.qs);
      pack_fifth_bits(q[g], b.qh);
      put(out, g, b);
    }
  });
}

void quantize_q8_0(const Source& s, std::byte* dst) {
  using Levels = WholeLevels<-127, 127>;  // not -128, which products of bytes in pairs have no room for
  static constexpr float kTargets[] = {127, 126.75f, 127.25f, 126.5f, 126.25f, 126};
  for_tiles<BlockQ8_0, 1, 32>(s, dst, [](const Tile<32>& t, int count, std::byte* out) {
    PerGroup scale;
    for (int c = 0; c < kTile; c += kLanes) {
      const Floats extreme = extremes(t, c);
      Floats best = {}, best_error = all(3e38f);
      for (const float target : kTargets) {
        // Gains of so many levels differ less than rounding: errors are compared instead.
        const Fit f = fit_levels<Levels>(t, c, target / extreme);
        const Floats e = scale_error<Levels>(t, c, f.scale());
        best = e < best_error ? f.scale() : best;
        best_error = min(e, best_error);
      }
      store(scale.v + c, best);
    }
    const HalfScales d = half_scales(t, scale);
    std::uint8_t q[kTile][32];
    levels<Levels>(t, d.value, 0, q);
    for (int g = 0; g < count; ++g) {
      BlockQ8_0 b;
      b.d = d.half[g];
      __builtin_memcpy(b.qs, q[g], sizeof b.qs);
      put(out, g, b);
    }
  });
}

}  // namespace llm::quantizers::LLM_ISA
