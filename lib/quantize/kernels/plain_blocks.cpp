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

/// Levels, `offset` added, by group: q[group][element].
template <class Levels, int N>
void levels(const Tile<N>& t, const PerGroup& scale, int offset, std::uint8_t (*q)[N]) {
  for (int c = 0; c < kTile; c += kLanes) {
    const Floats inverse = ratio(all(1.0f), load(scale.v + c));
    for (int i = 0; i < N; ++i) {
      const Ints level = __builtin_convertvector(Levels::nearest(load(&t.x[i][c]) * inverse), Ints) + offset;
      for (int l = 0; l < kLanes; ++l) q[c + l][i] = static_cast<std::uint8_t>(level[l]);
    }
  }
}

}  // namespace

void quantize_q4_0(const Source& s, std::byte* dst) {
  using Levels = WholeLevels<-8, 7>;
  static constexpr float kTargets[] = {-9.2f, -8.6f, -8.1f, -7.7f, -7.3f, -6.9f, -6.5f, 7.2f, 6.8f};
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
  static constexpr float kTargets[] = {-17.2f, -16.6f, -16.1f, -15.7f, -15.3f, -14.9f, -14.5f, 15.2f, 14.8f};
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

}  // namespace llm::quantizers::LLM_ISA
