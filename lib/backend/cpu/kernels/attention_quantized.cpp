// Scores over quantised keys as dot products of integers, and weighted sums of quantised values.
//
// A score is, over the blocks b of 32 elements, ascending, from 0,
//   s = fma(float(sum of q * (code - offset)) * scale_k[b], scale_q[b] * scale, s)
//   s = fma(min_k[b], float(sum of q) * (scale_q[b] * scale), s)      where the type has minimums
// with the integers exact. Values are decoded to f32 and added up as those of a float cache are.
#include <bit>

#include "backend/cpu/kernels/attention_chunk.h"
#include "backend/cpu/kernels/dot_bytes.h"
#include "backend/cpu/kernels/key_planes.h"
#include "tensor/blocks.h"
#include "tensor/codebooks.h"

namespace llm::cpu::LLM_ISA {
namespace {

using u8 = std::uint8_t;
using u32 = std::uint32_t;

// --- keys ---

template <CacheElement K>
inline constexpr int kOffset = key_format(K).offset;
template <CacheElement K>
inline constexpr bool kHasFifth = key_format(K).fifth == Part::Present;
template <CacheElement K>
inline constexpr bool kHasMin = key_format(K).min == Part::Present;

/// 64 nibbles pairs to the codes of 8 elements of 16 keys: low halves, and high halves kKeyBlock * 4 bytes later.
inline void split_nibbles(const u8* q, u8* low, u8* high) {
  for (int i = 0; i < 64; ++i) {
    low[i] = q[i] & 15;
    high[i] = static_cast<u8>(q[i] >> 4);
  }
}

/// Adds bit 4: `fifth` has the 32 bits of 16 keys, of which those of elements 4 g to 4 g + 3 are meant.
inline void add_fifth_bits(const u8* fifth, int g, u8* codes) {
  for (int i = 0; i < 16; ++i) {
    u32 bits, code;
    __builtin_memcpy(&bits, fifth + 4 * i, 4);
    __builtin_memcpy(&code, codes + 4 * i, 4);
    code |= ((bits >> (4 * g) & 15) * 0x00204081u & 0x01010101u) << 4;  // bit j goes to byte j
    __builtin_memcpy(codes + 4 * i, &code, 4);
  }
}

/// 64 codes of IQ4_NL become the values of its table, plus 128.
inline void look_up(u8* codes) {
#if defined(LLM_ISA_portable)
  for (int i = 0; i < 64; ++i) codes[i] = static_cast<u8>(kValuesIQ4[codes[i]] + 128);
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
  if constexpr (key_format(K).code_bits == 8) return packed;
  constexpr int kGroup = kKeyBlock * 4;
  const u8* const fifth = packed + key_planes(K, head_dim).fifth;
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
  const std::int32_t* q_sums[kDotPairs];
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
    unroll<P * N>([&](auto i) __attribute__((always_inline)) {
      acc[i.value] = set1_i32(-kOffset<K> * o.q_sums[i.value / N][b]);
    });
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
        const float query_scale = o.q_scales[p.value][b];
        s = fma(to_f32(acc[p.value * N + n.value]) * scale, set1(query_scale), s);
        if constexpr (kHasMin<K>) {
          const float sum = static_cast<float>(o.q_sums[p.value][b]) * query_scale;
          s = fma(load(o.mins + b * kKeyBlock + 16 * n.value), set1(sum), s);
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

// --- values ---

inline void unpack_codes(const BlockQ8_0& b, std::int8_t* q) { __builtin_memcpy(q, b.qs, 32); }
inline void unpack_codes(const BlockIQ4_NL& b, std::int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = kValuesIQ4[b.qs[i] & 15];
    q[16 + i] = kValuesIQ4[b.qs[i] >> 4];
  }
}
template <class Block>
void unpack_codes(const Block& b, std::int8_t* q) {
  int fifth = 0, offset = 0;
  if constexpr (requires { b.qh; }) __builtin_memcpy(&fifth, b.qh, 4);
  if constexpr (!requires { b.m; }) offset = requires {
      b.qh;
    }
  ? 16 : 8;
  for (int i = 0; i < 16; ++i) {
    const int low = (b.qs[i] & 15) | (fifth >> i & 1) << 4, high = b.qs[i] >> 4 | (fifth >> (16 + i) & 1) << 4;
    q[i] = static_cast<std::int8_t>(low - offset);
    q[16 + i] = static_cast<std::int8_t>(high - offset);
  }
}

/// scale * q + min, each rounded: what tensor/decode.h gives.
template <class Block>
void decode_block(const Block& b, float* y) {
  std::int8_t q[32];
  unpack_codes(b, q);
  const F32x16 scale = set1(b.d);
  for (int i = 0; i < 32; i += 16) {
    F32x16 v = load(q + i) * scale;
    if constexpr (requires { b.m; }) v = v + set1(b.m);
    store(y + i, v);
  }
}

template <CacheElement V>
struct BlockOf {
  using Type = BlockQ8_0;
};
template <>
struct BlockOf<CacheElement::Q4_0> {
  using Type = BlockQ4_0;
};
template <>
struct BlockOf<CacheElement::Q4_1> {
  using Type = BlockQ4_1;
};
template <>
struct BlockOf<CacheElement::Q5_0> {
  using Type = BlockQ5_0;
};
template <>
struct BlockOf<CacheElement::Q5_1> {
  using Type = BlockQ5_1;
};
template <>
struct BlockOf<CacheElement::IQ4_NL> {
  using Type = BlockIQ4_NL;
};

/// Rows of the keys [begin, end) of a block of values; meanwhile the same of `next` is fetched.
template <class Block>
void decode_rows(const std::byte* block, const std::byte* next, int head_dim, Span keys, float* y) {
  const int blocks = head_dim / 32, row_bytes = blocks * static_cast<int>(sizeof(Block));
  const std::byte* from = block + keys.begin * row_bytes;
  y += keys.begin * head_dim;
  next += keys.begin * row_bytes;
  for (int key = keys.begin; key < keys.end; ++key) {
    for (int line = 0; line < row_bytes; line += 64) prefetch(next + line);
    next += row_bytes;
    for (int b = 0; b < blocks; ++b, from += sizeof(Block), y += 32) {
      Block here;
      __builtin_memcpy(&here, from, sizeof here);
      decode_block(here, y);
    }
  }
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
    to.sums[pair * blocks + b] = sum;
  }
}

template <CacheElement K>
void score_quantized(const AttentionArgs& a, const ChunkBlocks& k, const ChunkWork& work) {
  const KeyPlanes planes = key_planes(K, a.head_dim_k);
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
        o.q_sums[i] = work.queries.sums + pair * blocks;
      }
      score_some_pairs<K>(pairs, o, k.next(b), p == 0 ? stride : 0, work.scores + p * kKeyChunk + b * kKeyBlock,
                          vectors);
    }
  }
}

template <CacheElement V>
void add_quantized(const AttentionArgs& a, const ChunkBlocks& v, const ChunkWork& work) {
  float* const decoded = reinterpret_cast<float*>(work.block);
  for (int b = v.first(); b <= v.last(); ++b) {
    const int first = b * kKeyBlock;
    const Span keys = clip(v.keys, first, first + kKeyBlock);
    decode_rows<typename BlockOf<V>::Type>(v.block[b], v.next(b), a.head_dim_v, {keys.begin - first, keys.end - first},
                                           decoded);
    add_decoded_block(a, decoded, first, keys, work);
  }
}

#define LLM_QUANTIZED(E)                                                                                      \
  template void score_quantized<CacheElement::E>(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&); \
  template void add_quantized<CacheElement::E>(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);
LLM_QUANTIZED(Q8_0)
LLM_QUANTIZED(Q4_0)
LLM_QUANTIZED(Q4_1)
LLM_QUANTIZED(Q5_0)
LLM_QUANTIZED(Q5_1)
LLM_QUANTIZED(IQ4_NL)
#undef LLM_QUANTIZED

}  // namespace llm::cpu::LLM_ISA
