// Types whose scales are small floats: MXFP4, a power of two per 32 elements, and NVFP4, 3 bits of mantissa per 16. The
// scales are few enough to try all that could be the best.
#include "quantize/kernels/fit_scale.h"
#include "quantize/kernels/quantizers.h"
#include "quantize/kernels/value_levels.h"
#include "tensor/blocks.h"
#include "tensor/pack.h"

namespace llm::quantizers::LLM_ISA {
namespace {

constexpr float kTop = 12;  ///< the largest of kValuesE2M1

/// The code of a scale, 0 .. kLast, from `below` under the smallest that reaches the extreme to one above it, that
/// leaves the least error. scale_of(code) grows with the code.
template <int kBelow, int kLast, int N, class ScaleOf>
void best_codes(const Tile<N>& t, const ScaleOf& scale_of, PerGroup& scale, std::uint8_t* codes) {
  PerGroup extreme, best_error;
  int first[kTile];
  for (int c = 0; c < kTile; c += kLanes) store(extreme.v + c, abs(extremes(t, c)));
  for (int g = 0; g < kTile; ++g) {
    const float reach = extreme.v[g] * t.unit.v[g] * (1.0f / kTop);
    int low = 0, high = kLast;  // the smallest code that reaches it, or the last
    while (low < high) {
      const int middle = (low + high) / 2;
      if (scale_of(middle) >= reach) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    first[g] = low - kBelow < 0 ? 0 : low - kBelow;
    best_error.v[g] = 3e38f;
  }
  for (int k = 0; k < kBelow + 2; ++k) {
    PerGroup tried, error;
    for (int g = 0; g < kTile; ++g) {
      const int code = first[g] + k > kLast ? kLast : first[g] + k;
      tried.v[g] = scale_of(code) * t.factor.v[g];
    }
    for (int c = 0; c < kTile; c += kLanes) {
      store(error.v + c, scale_error<LevelsE2M1>(t, c, load(tried.v + c)));
    }
    for (int g = 0; g < kTile; ++g) {
      if (!(error.v[g] < best_error.v[g])) continue;
      best_error.v[g] = error.v[g];
      scale.v[g] = tried.v[g];
      codes[g] = static_cast<std::uint8_t>(first[g] + k > kLast ? kLast : first[g] + k);
    }
  }
}

}  // namespace

void quantize_mxfp4(const Source& s, std::byte* dst) {
  for_tiles<BlockMXFP4, 1, 32>(s, dst, [](const Tile<32>& t, int count, std::byte* out) {
    PerGroup scale;
    std::uint8_t codes[kTile], q[kTile][32];
    // 252: of larger scales the largest value would be infinite.
    best_codes<2, 252>(
        t, [](int code) { return e8m0_half(static_cast<std::uint8_t>(code)); }, scale, codes);
    store_codes<LevelsE2M1>(t, scale, q);
    for (int g = 0; g < count; ++g) {
      BlockMXFP4 b;
      b.e = codes[g];
      pack_nibbles(q[g], b.qs);
      put(out, g, b);
    }
  });
}

void quantize_nvfp4(const Source& s, std::byte* dst) {
  for_tiles<BlockNVFP4, 4, 16>(s, dst, [](const Tile<16>& t, int count, std::byte* out) {
    PerGroup scale;
    std::uint8_t codes[kTile], q[kTile][16];
    best_codes<6, 0x7e>(
        t, [](int code) { return ue4m3_half(static_cast<std::uint8_t>(code)); }, scale, codes);
    store_codes<LevelsE2M1>(t, scale, q);
    for (int b = 0; b < count; ++b) {
      BlockNVFP4 block;
      for (int g = 0; g < 4; ++g) {
        block.d[g] = codes[4 * b + g];
        for (int i = 0; i < 8; ++i) {
          const std::uint8_t* of = q[4 * b + g];
          block.qs[8 * g + i] = static_cast<std::uint8_t>(of[i] | (of[8 + i] << 4));
        }
      }
      put(out, b, block);
    }
  });
}

}  // namespace llm::quantizers::LLM_ISA
