// Q3_K, Q6_K, IQ4_XS.
#include "quantize/kernels/scale_groups.h"

#include "quantize/kernels/quantizers.h"
#include "quantize/kernels/shrinking.h"
#include "quantize/kernels/value_levels.h"
#include "tensor/blocks.h"
#include "tensor/pack.h"

namespace llm::quantizers::LLM_ISA {
namespace {

/// Makes the half of a block larger, so that its elements are nearer to as large as they were (shrinking.h).
void undo_shrinking(const Tile<16>& t, ScaleMultiples& m) {
  PerGroup of_group;
  energies(t, of_group);
  float energy = 0, error = 0;
  for (int g = 0; g < kTile; ++g) {
    energy += of_group.v[g];
    error += m.error.v[g];
  }
  set_unit<16>(t, 0, m.d.v[0] * growth(error, energy), m);
}

/// pack(scales, q, block) gets the whole scales of the groups, -kMultiples .. kMultiples - 1, and q from 0.
template <class Block, int kHalf, int kMultiples, int kTargets, class Pack>
void quantize_k_scale(const Source& s, std::byte* dst, const float (&targets)[kTargets], const Pack& pack) {
  using Levels = WholeLevels<-kHalf, kHalf - 1>;
  for_tiles<Block, 16, 16>(s, dst, [&](const Tile<16>& t, int, std::byte* out) {
    ScaleMultiples m;
    fit_scale_groups<Levels, -kMultiples, kMultiples - 1, 16>(t, targets, m);
    PerGroup scale;
    std::int8_t scales[16];
    for (int g = 0; g < 16; ++g) {
      scale.v[g] = m.d.v[g] * m.scale.v[g];
      scales[g] = static_cast<std::int8_t>(m.scale.v[g]);
    }
    std::uint8_t q[16][16];
    store_codes<Levels>(t, scale, q);
    if constexpr (kHalf == 4) undo_shrinking(t, m);
    Block b;
    b.d = m.half[0];
    pack(scales, q[0], b);
    put(out, 0, b);
  });
}

}  // namespace

// Targets: as in scale_blocks.cpp.

void quantize_q3_k(const Source& s, std::byte* dst) {
  static constexpr float kTargets[] = {-4, -4.3f, -3.4f, -5.3f, -3.8f, 4.4f, -2.9f, -4.6f, -5.4f, 3.8f, 3};
  quantize_k_scale<BlockQ3_K, 4, 32>(s, dst, kTargets,
                                     [](const std::int8_t* scales, const std::uint8_t* q, BlockQ3_K& b) {
                                       pack_scales_q3_k(scales, b.scales);
                                       pack_pairs_of_bits(q, b.qs);
                                       pack_high_bit(q, 2, b.hmask);
                                     });
}

void quantize_q6_k(const Source& s, std::byte* dst) {
  static constexpr float kTargets[] = {-32, -30, -31, -28.25f, -27, -29, -24.75f, -32.75f, -26, -23.5f, -22, -23, 31};
  quantize_k_scale<BlockQ6_K, 32, 128>(s, dst, kTargets,
                                       [](const std::int8_t* scales, const std::uint8_t* q, BlockQ6_K& b) {
                                         for (int g = 0; g < 16; ++g) b.scales[g] = scales[g];
                                         pack_q6_k(q, b.ql, b.qh);
                                       });
}

void quantize_iq4_xs(const Source& s, std::byte* dst) {
  static constexpr float kTargets[] = {-127, -130, 115, -112.5f, -142.5f, -122.5f, 127.5f, 90, -105, 113};
  for_tiles<BlockIQ4_XS, 8, 32>(s, dst, [](const Tile<32>& t, int count, std::byte* out) {
    ScaleMultiples m;
    fit_scale_groups<LevelsIQ4, -32, 31, 8>(t, kTargets, m);
    PerGroup scale;
    for (int g = 0; g < kTile; ++g) scale.v[g] = m.d.v[g] * m.scale.v[g];
    std::uint8_t q[kTile][32];
    store_codes<LevelsIQ4>(t, scale, q);
    for (int k = 0; k < count; ++k) {
      BlockIQ4_XS b;
      b.d = m.half[k];
      std::int8_t scales[8];
      for (int g = 0; g < 8; ++g) {
        scales[g] = static_cast<std::int8_t>(m.scale.v[8 * k + g]);
        pack_nibbles(q[8 * k + g], b.qs + 16 * g);
      }
      pack_iq4_xs_scales(scales, b);
      put(out, k, b);
    }
  });
}

}  // namespace llm::quantizers::LLM_ISA
