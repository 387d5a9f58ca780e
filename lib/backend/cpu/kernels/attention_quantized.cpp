// Scores over quantised keys as dot products of integers, and weighted sums of quantised values.
//
// A score is, over the blocks b of 32 elements, ascending, from 0,
//   s = fma(float(sum of q * (code - offset)) * scale_k[b], scale_q[b] * scale, s)
//   s = fma(min_k[b], float(sum of q) * (scale_q[b] * scale), s)      where the type has minimums
// with the integers exact. Values are decoded to f32 and added up as those of a float cache are.
#include <bit>
#include <cstddef>
#include <type_traits>

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

template <class Block>
inline constexpr bool kHasFifthBits = requires(Block b) {
  b.qh;
};
template <class Block>
inline constexpr bool kHasMinimum = requires(Block b) {
  b.m;
};
/// The code of 0 in the types without minimums.
template <class Block>
inline constexpr int kMiddle = kHasMinimum<Block>     ? 0
                               : kHasFifthBits<Block> ? 16
                                                      : 8;

#if defined(LLM_ISA_portable)

/// What the codes of a block stand for, before the scale.
template <class Block>
inline void unpack_codes(const u8* block, std::int8_t* codes) {
  const u8* const q = block + offsetof(Block, qs);
  for (int i = 0; i < 32; ++i) {
    int code = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    if constexpr (kHasFifthBits<Block>) code |= (block[offsetof(Block, qh) + i / 8] >> (i % 8) & 1) << 4;
    codes[i] =
        static_cast<std::int8_t>(std::is_same_v<Block, BlockIQ4_NL> ? kValuesIQ4[code & 15] : code - kMiddle<Block>);
  }
}

#else

/// 16 in the bytes whose bit of 32 is set.
inline __m256i fifth_bits(const u8* qh) {
  std::int32_t bits;
  __builtin_memcpy(&bits, qh, 4);
  const __m256i byte =
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte), bit);
  return _mm256_and_si256(_mm256_cmpeq_epi8(own, bit), _mm256_set1_epi8(16));
}

/// What the codes of a block stand for, before the scale.
template <class Block>
inline void unpack_codes(const u8* block, std::int8_t* codes) {
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + offsetof(Block, qs)));
  __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1);
  q = _mm256_and_si256(q, _mm256_set1_epi8(15));
  if constexpr (kHasFifthBits<Block>) q = _mm256_or_si256(q, fifth_bits(block + offsetof(Block, qh)));
  if constexpr (std::is_same_v<Block, BlockIQ4_NL>) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kValuesIQ4));
    q = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), q);
  } else if constexpr (kMiddle<Block> != 0) {
    q = _mm256_sub_epi8(q, _mm256_set1_epi8(kMiddle<Block>));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), q);
}

#endif

inline Half half_at(const u8* p) {
  Half h;
  __builtin_memcpy(&h, p, sizeof h);
  return h;
}

/// scale * code + min, each rounded: what tensor/decode.h gives.
template <class Block>
[[gnu::always_inline]] inline void decode_values(const u8* block, float* y) {
  const F32x16 scale = set1(half_at(block + offsetof(Block, d)));
  const std::int8_t* codes = reinterpret_cast<const std::int8_t*>(block + offsetof(Block, qs));
  std::int8_t unpacked[32];
  if constexpr (!std::is_same_v<Block, BlockQ8_0>) {
    unpack_codes<Block>(block, unpacked);
    codes = unpacked;
  }
  for (int i = 0; i < 32; i += 16) {
    F32x16 v = load(codes + i) * scale;
    if constexpr (kHasMinimum<Block>) v = v + set1(half_at(block + offsetof(Block, m)));
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
  const u8* from = reinterpret_cast<const u8*>(block) + keys.begin * row_bytes;
  y += keys.begin * head_dim;
  next += keys.begin * row_bytes;
  for (int key = keys.begin; key < keys.end; ++key) {
    for (int line = 0; line < row_bytes; line += 64) prefetch(next + line);
    next += row_bytes;
    for (int b = 0; b < blocks; ++b, from += sizeof(Block), y += 32) decode_values<Block>(from, y);
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
