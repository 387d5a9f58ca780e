// Scores over quantised keys as dot products of integers.
//
// A score is, over the blocks b of 32 elements, ascending, from 0,
//   s = fma(float(sum of q * (code - offset)) * scale_k[b], scale_q[b] * scale, s)
//   s = fma(min_k[b], float(sum of q) * (scale_q[b] * scale), s)      where the type has minimums
// with the integers exact.
#include <bit>

#include "backend/cpu/kernels/attention_chunk.h"
#include "backend/cpu/kernels/cache_planes.h"
#include "backend/cpu/kernels/integer_dots.h"
#include "tensor/codebooks.h"

namespace llm::cpu::LLM_ISA {
namespace {

using u8 = std::uint8_t;

// --- keys ---

template <CacheElement K>
inline constexpr bool kHasFifth = code_format(K).fifth == Part::Present;
template <CacheElement K>
inline constexpr bool kHasMin = code_format(K).min == Part::Present;

/// 64 nibbles pairs to the codes of 8 elements of 16 keys: low halves, and high halves kKeyBlock * 4 bytes later.
inline void split_nibbles(const u8* q, u8* low, u8* high) {
  for (int i = 0; i < 64; ++i) {
    low[i] = q[i] & 15;
    high[i] = static_cast<u8>(q[i] >> 4);
  }
}

/// Adds bit 4: `fifth` has the 32 bits of 16 keys, of which those of elements 4 g to 4 g + 3 are meant.
inline void add_fifth_bits(const u8* fifth, int g, u8* codes) {
#if defined(LLM_ISA_portable)
  for (int i = 0; i < 64; ++i)
    codes[i] = static_cast<u8>(codes[i] | (fifth[i / 4 * 4 + g / 2] >> (g % 2 * 4 + i % 4) & 1) << 4);
#elif defined(LLM_ISA_neon)
  using namespace quant;
  const V bit = ints_4(0x08040201 << (g % 2 * 4)),
          byte = add8(splat8(g / 2), bytes_16(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  for (int i = 0; i < 64; i += 16)
    store(codes + i, add_where(load(codes + i), shuffle8(load(fifth + i), byte), bit, splat8(16)));
#else
  for (int i = 0; i < 64; i += 32) {
    auto* const to = reinterpret_cast<__m256i*>(codes + i);
    __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(fifth + i));
    bits = _mm256_and_si256(_mm256_srl_epi32(bits, _mm_cvtsi32_si128(4 * g)), _mm256_set1_epi32(15));
    bits = _mm256_mullo_epi32(bits, _mm256_set1_epi32(0x00204081));  // bit j goes to byte j
    bits = _mm256_and_si256(bits, _mm256_set1_epi32(0x01010101));
    _mm256_storeu_si256(to, _mm256_or_si256(_mm256_loadu_si256(to), _mm256_slli_epi32(bits, 4)));
  }
#endif
}

/// 64 codes of IQ4_NL become the values of its table, plus 128.
inline void look_up(u8* codes) {
#if defined(LLM_ISA_portable)
  for (int i = 0; i < 64; ++i) codes[i] = static_cast<u8>(kValuesIQ4[codes[i]] + 128);
#elif defined(LLM_ISA_neon)
  const quant::V values = quant::xor_(quant::load(kValuesIQ4), quant::splat8(-128));
  for (int i = 0; i < 64; i += 16) quant::store(codes + i, quant::shuffle8(values, quant::load(codes + i)));
#else
  const __m128i signed_values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kValuesIQ4));
  const __m128i values = _mm_xor_si128(signed_values, _mm_set1_epi8(static_cast<char>(-128)));
  for (int i = 0; i < 64; i += 16) {
    auto* const p = reinterpret_cast<__m128i*>(codes + i);
    _mm_storeu_si128(p, _mm_shuffle_epi8(values, _mm_loadu_si128(p)));
  }
#endif
}

/// The codes of a block's vectors of keys as unsigned bytes [head_dim / 4][position][4].
template <CacheElement K>
const u8* unpack_keys(const std::byte* block, std::int32_t head_dim, Vectors vectors, std::byte* buffer) {
  const u8* const packed = reinterpret_cast<const u8*>(block);
  if constexpr (code_format(K).code_bits == 8) return packed;
  constexpr int kGroup = kKeyBlock * 4;
  const u8* const fifth = packed + planes_of(K, head_dim).fifth;
  u8* const codes = reinterpret_cast<u8*>(buffer);
  for (int g = 0; g < head_dim / 8; ++g) {
    for (int at = 64 * vectors.begin; at < 64 * vectors.end; at += 64) {
      u8 *const low = codes + 2 * g * kGroup + at, *const high = low + kGroup;
      split_nibbles(packed + g * kGroup + at, low, high);
      if constexpr (kHasFifth<K>) {
        const u8* const bits = fifth + g / 4 * kGroup + at;
        add_fifth_bits(bits, g % 4 * 2, low);
        add_fifth_bits(bits, g % 4 * 2 + 1, high);
      }
      if constexpr (K == CacheElement::IQ4_NL) {
        look_up(low);
        look_up(high);
      }
    }
  }
  return codes;
}

/// Keys and queries of one tile.
struct Operands {
  const u8* codes;     ///< at the tile's first key
  const Half* scales;  ///< "
  const Half* mins;    ///< "
  const std::int8_t* q[kDotPairs];
  const float* q_scales[kDotPairs];
  const std::int32_t* q_starts[kDotPairs];
  const float* q_sums[kDotPairs];
  int blocks;  ///< of 32 elements
};

/// P pairs against N vectors of 16 keys; meanwhile `next` is fetched, `stride` bytes for each 4 elements.
template <CacheElement K, int P, int N>
[[gnu::always_inline]] inline void score_tile(const Operands& o, const std::byte* next, int stride, float* scores) {
  F32x16 score[P * N];
  unroll<P * N>([&](auto i) __attribute__((always_inline)) { score[i.value] = zero(); });
  const u8* codes = o.codes;
  for (int b = 0; b < o.blocks; ++b) {
    I32x16 acc[P * N];
    unroll<P * N>([&](auto i) __attribute__((always_inline)) { acc[i.value] = set1_i32(o.q_starts[i.value / N][b]); });
    for (int g = 0; g < 8; ++g, codes += kKeyBlock * 4) {
      for (int line = 0; line < stride; line += 64) prefetch(next + line);
      next += stride;
      Keys keys[N];
      unroll<N>([&](auto n) __attribute__((always_inline)) { keys[n.value] = load_keys(codes + 64 * n.value); });
      unroll<P>([&](auto p) __attribute__((always_inline)) {
        const Query4 q = splat_query(o.q[p.value] + 32 * b + 4 * g);
        unroll<N>([&](auto n) __attribute__((always_inline)) {
          acc[p.value * N + n.value] = add_dots(acc[p.value * N + n.value], keys[n.value], q);
        });
      });
    }
    unroll<N>([&](auto n) __attribute__((always_inline)) {
      const F32x16 scale = load(o.scales + b * kKeyBlock + 16 * n.value);
      unroll<P>([&](auto p) __attribute__((always_inline)) {
        F32x16& s = score[p.value * N + n.value];
        s = fma(to_f32(acc[p.value * N + n.value]) * scale, set1(o.q_scales[p.value][b]), s);
        if constexpr (kHasMin<K>) {
          s = fma(load(o.mins + b * kKeyBlock + 16 * n.value), set1(o.q_sums[p.value][b]), s);
        }
      });
    });
  }
  unroll<P * N>([&](auto i) __attribute__((always_inline)) {
    store(scores + i.value / N * kKeyChunk + i.value % N * 16, score[i.value]);
  });
}

inline Operands from_vector(Operands o, int v) {
  o.codes += 64 * v;
  o.scales += 16 * v;
  o.mins += 16 * v;
  return o;
}

template <CacheElement K, int P = kDotPairs>
void score_some_pairs(int pairs, const Operands& o, const std::byte* next, int stride, float* scores, Vectors vectors) {
  if constexpr (P > 1) {
    if (pairs < P) return score_some_pairs<K, P - 1>(pairs, o, next, stride, scores, vectors);
  }
  int v = vectors.begin;
  for (; v + kDotVectors <= vectors.end; v += kDotVectors, stride = 0)
    score_tile<K, P, kDotVectors>(from_vector(o, v), next, stride, scores + 16 * v);
  for (; v < vectors.end; ++v, stride = 0) score_tile<K, P, 1>(from_vector(o, v), next, stride, scores + 16 * v);
}

}  // namespace

void quantize_query(const float* q, int pair, const AttentionArgs& a, const QuantizedQueries& to) {
  constexpr std::int32_t kInfinityBits = 0x7f800000;
  constexpr float kSmallestAmax = 0x1p-100f, kShift = 0x1.8p23f;  // adding kShift rounds to an integer
  const int blocks = a.head_dim_k / 32;
  for (int b = 0; b < blocks; ++b) {
    const float* const x = q + 32 * b;
    std::int8_t* const codes = to.codes + pair * a.head_dim_k + 32 * b;
    std::int32_t largest = 0, sum = 0;  // magnitudes compare as integers, with NaN as the largest
    for (int i = 0; i < 32; ++i) largest = larger(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
    const float amax = std::bit_cast<float>(largest);
    const bool finite = largest < kInfinityBits, zero = amax < kSmallestAmax;
    const float inverse = finite && !zero ? 127.0f / amax : 0.0f;
    for (int i = 0; i < 32; ++i) {
      const std::int32_t rounded =
          std::bit_cast<std::int32_t>(x[i] * inverse + kShift) - std::bit_cast<std::int32_t>(kShift);
      codes[i] = finite ? static_cast<std::int8_t>(rounded) : std::int8_t{0};
      sum += finite ? rounded : 0;
    }
    const float scale = !finite ? __builtin_nanf("") : zero ? 0.0f : amax / 127.0f;
    to.scales[pair * blocks + b] = scale * a.scale;
    to.starts[pair * blocks + b] = (kKeyMiddle - code_format(a.k_element).offset) * sum;
    to.sums[pair * blocks + b] = static_cast<float>(sum) * (scale * a.scale);
  }
}

template <CacheElement K>
void score_quantized(const AttentionArgs& a, const ChunkBlocks& k, const ChunkWork& work) {
  const Planes planes = planes_of(K, a.head_dim_k);
  const int blocks = a.head_dim_k / 32, groups = a.head_dim_k / 4;
  const int stride = (static_cast<int>(a.k_block_bytes) + groups - 1) / groups;
  for (int b = k.first(); b <= k.last(); ++b) {
    const Vectors vectors = vectors_of(k.keys, b);
    Operands o;
    o.codes = unpack_keys<K>(k.block[b], a.head_dim_k, vectors, work.block);
    o.scales = reinterpret_cast<const Half*>(k.block[b] + planes.scales);
    o.mins = kHasMin<K> ? reinterpret_cast<const Half*>(k.block[b] + planes.mins) : o.scales;
    o.blocks = blocks;
    for (int p = 0, pairs = 0; p < work.n; p += pairs) {
      pairs = next_pairs(work.n - p, kDotPairs);
      for (int i = 0; i < pairs; ++i) {
        const int pair = work.index[p + i];
        o.q[i] = work.queries.codes + pair * a.head_dim_k;
        o.q_scales[i] = work.queries.scales + pair * blocks;
        o.q_starts[i] = work.queries.starts + pair * blocks;
        o.q_sums[i] = work.queries.sums + pair * blocks;
      }
      score_some_pairs<K>(pairs, o, k.next(b), p == 0 ? stride : 0, work.scores + p * kKeyChunk + b * kKeyBlock,
                          vectors);
    }
  }
}

#define LLM_QUANTIZED(E) \
  template void score_quantized<CacheElement::E>(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);
LLM_QUANTIZED(Q8_0)
LLM_QUANTIZED(Q4_0)
LLM_QUANTIZED(Q4_1)
LLM_QUANTIZED(Q5_0)
LLM_QUANTIZED(Q5_1)
LLM_QUANTIZED(IQ4_NL)
#undef LLM_QUANTIZED

}  // namespace llm::cpu::LLM_ISA
