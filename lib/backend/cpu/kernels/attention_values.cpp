// Weighted sums of quantised values, as dot products of integers. For a pair and 32 elements that share scales, over
// the keys k of a chunk that it sees, with p the weights and s the scales,
//   largest  = the greatest |s[k]|
//   w[k]     = p[k] * (s[k] * (32767 / largest)), rounded once to an integer: p is at most 1
//   value[d] = float(sum of w[k] * (code[k][d] - middle)) * (largest / 32767) + sum of p[k] * (s[k] * middle + min[k])
// The sum of integers is exact, in 32 bits. That of minimums, where the type has them, is taken in lanes as the sum of
// weights is. What weights of 16 bits lose is far below the roundings of the values themselves.
#include "backend/cpu/kernels/attention_chunk.h"
#include "backend/cpu/kernels/cache_planes.h"
#include "backend/cpu/kernels/integer_dots.h"
#include "tensor/codebooks.h"

namespace llm::cpu::LLM_ISA {
namespace {

using u8 = std::uint8_t;

constexpr int kSteps = kKeyBlock / 2;  ///< keys are taken two by two

template <CacheElement V>
inline constexpr CodeFormat kFormat = code_format(V);

/// What is subtracted from codes: their offset, or half of their range where a minimum takes its place, so that what
/// the weights' roundings are multiplied with is small.
template <CacheElement V>
inline constexpr int kMiddle = V == CacheElement::Q4_1   ? 8
                               : V == CacheElement::Q5_1 ? 16
                                                         : kFormat<V>.offset;

// --- codes ---

#if defined(LLM_ISA_portable)

/// What 32 codes of 4 or 5 bits stand for, before the scale.
template <CacheElement V>
inline void unpack_codes(const u8* q, const u8* fifth, std::int8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    int code = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    if constexpr (kFormat<V>.fifth == Part::Present) code |= (fifth[i / 8] >> (i % 8) & 1) << 4;
    codes[i] = static_cast<std::int8_t>(V == CacheElement::IQ4_NL ? kValuesIQ4[code] : code - kMiddle<V>);
  }
}

#elif defined(LLM_ISA_neon)

/// What 32 codes of 4 or 5 bits stand for, before the scale.
template <CacheElement V>
inline void unpack_codes(const u8* q, const u8* fifth, std::int8_t* codes) {
  const quant::V packed = quant::load(q), four = quant::splat8(15);
  quant::V c[2] = {quant::and_(packed, four), quant::and_(quant::shr16<4>(packed), four)};
  if constexpr (kFormat<V>.fifth == Part::Present) {
    const quant::V bits = quant::load4(fifth), bit = quant::longs_2(0x8040201008040201), top = quant::splat8(16);
    c[0] = quant::add_where(c[0], quant::shuffle8(bits, quant::ints_4(0, 0, 0x01010101, 0x01010101)), bit, top);
    c[1] = quant::add_where(c[1], quant::shuffle8(bits, quant::ints_4(0x02020202, 0x02020202, 0x03030303, 0x03030303)),
                            bit, top);
  }
  for (int i = 0; i < 2; ++i) {
    if constexpr (V == CacheElement::IQ4_NL) {
      c[i] = quant::shuffle8(quant::load(kValuesIQ4), c[i]);
    } else {
      c[i] = quant::sub8(c[i], quant::splat8(kMiddle<V>));
    }
    quant::store(codes + 16 * i, c[i]);
  }
}

#else

/// 16 in the bytes whose bit of 32 is set.
inline __m256i fifth_bits(const u8* fifth) {
  std::int32_t bits;
  __builtin_memcpy(&bits, fifth, 4);
  const __m256i byte =
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  const __m256i own = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte), bit);
  return _mm256_and_si256(_mm256_cmpeq_epi8(own, bit), _mm256_set1_epi8(16));
}

/// What 32 codes of 4 or 5 bits stand for, before the scale.
template <CacheElement V>
inline void unpack_codes(const u8* q, const u8* fifth, std::int8_t* codes) {
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q));
  __m256i c = _mm256_inserti128_si256(_mm256_castsi128_si256(packed), _mm_srli_epi16(packed, 4), 1);
  c = _mm256_and_si256(c, _mm256_set1_epi8(15));
  if constexpr (kFormat<V>.fifth == Part::Present) c = _mm256_or_si256(c, fifth_bits(fifth));
  if constexpr (V == CacheElement::IQ4_NL) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kValuesIQ4));
    c = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), c);
  } else {
    c = _mm256_sub_epi8(c, _mm256_set1_epi8(static_cast<char>(kMiddle<V>)));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), c);
}

#endif

/// Fetches `stride` bytes.
[[gnu::always_inline]] inline void prefetch_some(const std::byte* p, int stride) {
  for (int line = 0; line < stride; line += 64) prefetch(p + line);
}

/// Element i of keys 2 n and 2 n + 1 as a pair of int16 at [n][i], for some pairs of keys of a block of 4-bit codes.
template <CacheElement V>
void unpack_block(const std::byte* block, int head_dim, Span steps, std::int32_t* words) {
  const int blocks = head_dim / 32;
  const u8* const codes = reinterpret_cast<const u8*>(block);
  const u8* const fifth = codes + planes_of(V, head_dim).fifth;
  for (int n = steps.begin; n < steps.end; ++n) {
    for (int b = 0; b < blocks; ++b) {
      const int first = 2 * n * blocks + b, second = first + blocks;
      std::int8_t one[32], other[32];
      unpack_codes<V>(codes + 16 * first, fifth + 4 * first, one);
      unpack_codes<V>(codes + 16 * second, fifth + 4 * second, other);
      std::int32_t* const to = words + n * head_dim + 32 * b;
      store_words(to, join_words(one, other));
      store_words(to + 16, join_words(one + 16, other + 16));
    }
  }
}

// --- scales and weights ---

/// Scales and minimums of 32 elements over a chunk: a plane per block of the cache.
struct ChunkScales {
  const Half* scales[kChunkBlocks];
  const Half* mins[kChunkBlocks];
};
inline const Half* at_key(const Half* const* planes, int key) { return planes[key / kKeyBlock] + key % kKeyBlock; }

template <CacheElement V>
ChunkScales find_scales(const ChunkBlocks& v, int head_dim, int b) {
  const Planes planes = planes_of(V, head_dim);
  ChunkScales s{};
  for (int i = v.first(); i <= v.last(); ++i) {
    s.scales[i] = reinterpret_cast<const Half*>(v.block[i] + planes.scales) + b * kKeyBlock;
    s.mins[i] = reinterpret_cast<const Half*>(v.block[i] + planes.mins) + b * kKeyBlock;
  }
  return s;
}

/// The greatest magnitude of the scales of keys [begin, end); NaN if one is not finite.
float largest_scale(const ChunkScales& s, Span keys) {
  F32x16 least = zero(), bad = zero();
  each_vector(keys, [&](int k, const auto& lanes) {
    const F32x16 scale = lanes(load(at_key(s.scales, k)), zero());
    least = min(negate_magnitude(scale), least);
    bad = fma(scale, zero(), bad);
  });
  return max_lane(zero() - least) + sum(bad);
}

/// How sums of a pair's weighted codes become values: sum * factor + addend.
struct Rescale {
  float factor, addend;
};

/// Scales over their greatest magnitude, times 32767, of the keys that a pair sees.
struct RelativeScales {
  float scales[kKeyChunk];
  float largest;
};

void relate(const ChunkScales& s, Span seen, RelativeScales& to) {
  to.largest = largest_scale(s, seen);
  const F32x16 up = set1(to.largest > 0 ? 32767.0f / to.largest : to.largest);  // NaN stays NaN
  for (int k = seen.begin / 16 * 16; k < seen.end; k += 16) store(to.scales + k, load(at_key(s.scales, k)) * up);
}

/// Weights times scales as integers; 0 for those of `all` that the pair does not see.
template <CacheElement V>
Rescale weigh(const ChunkScales& s, const RelativeScales& relative, const float* weights, Span seen, Span all,
              std::int16_t* words) {
  // The sum's unit is 1: the low bits of its mantissa are the integer nearest to the product.
  const F32x16 shift = set1(0x1.8p23f);
  for (int k = all.begin / 16 * 16; k < seen.begin; k += 16) store_words(words + k, zero());
  F32x16 addend = zero();
  each_vector(seen, [&](int k, const auto& lanes) {
    const F32x16 weight = load(weights + k);
    store_words(words + k, lanes(fma(weight, load(relative.scales + k), shift), zero()));
    if constexpr (kFormat<V>.min == Part::Present) {
      const F32x16 low = fma(load(at_key(s.scales, k)), set1(static_cast<float>(kMiddle<V>)), load(at_key(s.mins, k)));
      addend = lanes(fma(weight, low, addend), addend);
    }
  });
  for (int k = (seen.end + 15) / 16 * 16; k < all.end; k += 16) store_words(words + k, zero());
  return {relative.largest / 32767.0f, sum(addend)};
}

// --- products ---

/// Numbers that hold one element of a pair of keys: one where they were unpacked, two bytes as they are in the cache.
template <class T>
inline constexpr int kPer = sizeof(T) == 1 ? 2 : 1;

/// Adds the products of some pairs of keys to P pairs' sums of N vectors of elements; meanwhile `next` is fetched,
/// `stride` bytes for each.
template <int P, int N, class T>
[[gnu::always_inline]] inline void sum_tile(const T* codes, int head_dim, const std::int16_t* const* words, Span steps,
                                            const std::byte* next, int stride, std::int32_t* sums, int sums_stride) {
  I32x16 acc[P * N];
  unroll<P * N>([&](auto i) __attribute__((always_inline)) {
    acc[i.value] = load_i32(sums + i.value / N * sums_stride + i.value % N * 16);
  });
  for (int n = steps.begin; n < steps.end; ++n, codes += head_dim * kPer<T>, next += stride) {
    prefetch_some(next, stride);
    Words element[N];
    unroll<N>([&](auto i)
                  __attribute__((always_inline)) { element[i.value] = load_words(codes + 16 * kPer<T> * i.value); });
    unroll<P>([&](auto p) __attribute__((always_inline)) {
      const Words weight = splat_words(words[p.value] + 2 * n);
      unroll<N>([&](auto i) __attribute__((always_inline)) {
        acc[p.value * N + i.value] = add_dots(acc[p.value * N + i.value], element[i.value], weight);
      });
    });
  }
  unroll<P * N>([&](auto i) __attribute__((always_inline)) {
    store_i32(sums + i.value / N * sums_stride + i.value % N * 16, acc[i.value]);
  });
}

#if defined(LLM_ISA_avx512)
constexpr int kSumVectors = 2;
#else
constexpr int kSumVectors = 1;
#endif

/// 32 elements of some pairs.
template <class T, int P = kValueTile>
void sum_some_pairs(int pairs, const T* codes, int head_dim, const std::int16_t* const* words, Span steps,
                    const std::byte* next, int stride, std::int32_t* sums, int sums_stride) {
  if constexpr (P > 1) {
    if (pairs < P)
      return sum_some_pairs<T, P - 1>(pairs, codes, head_dim, words, steps, next, stride, sums, sums_stride);
  }
  for (int v = 0; v < 2; v += kSumVectors, stride = 0) {
    sum_tile<P, kSumVectors>(codes + 16 * kPer<T> * v, head_dim, words, steps, next, stride, sums + 16 * v,
                             sums_stride);
  }
}

inline bool same(Span a, Span b) { return a.begin == b.begin && a.end == b.end; }

/// Pairs [first, first + n) and what their sums need.
template <CacheElement V>
struct Tile {
  const ChunkWork& work;
  int first, n;
  int blocks;  ///< of 32 elements
  Rescale rescale[kValueTile * kMaxHeadDim / 32];

  std::int16_t* words(int pair, int b) const { return work.words + (pair * blocks + b) * kKeyChunk; }
  float* values(int pair) const { return work.values + (first + pair) * work.value_stride; }

  void weigh_all(const ChunkBlocks& v) {
    for (int b = 0; b < blocks; ++b) {
      const ChunkScales scales = find_scales<V>(v, 32 * blocks, b);
      RelativeScales relative;
      for (int p = 0; p < n; ++p) {
        const Span seen = work.span[first + p];
        if (p == 0 || !same(seen, work.span[first + p - 1])) relate(scales, seen, relative);
        rescale[p * blocks + b] =
            weigh<V>(scales, relative, work.scores + (first + p) * kKeyChunk, seen, v.keys, words(p, b));
      }
    }
    for (int p = 0; p < n; ++p)
      for (int d = 0; d < work.value_stride; d += 16) store(values(p) + d, zero());  // as integers too
  }

  /// Adds the keys of some steps, whose codes begin at `codes`; meanwhile `next` is fetched, `bytes` of it.
  template <class T>
  void add(const T* codes, Span steps, const std::byte* next, int bytes) const {
    const int stride = bytes / (kSteps * blocks);
    for (int b = 0; b < blocks; ++b) {
      const std::int16_t* w[kValueTile];
      for (int p = 0; p < n; ++p) w[p] = words(p, b);
      sum_some_pairs(n, codes + 32 * kPer<T> * b, 32 * blocks, w, steps, next, stride,
                     reinterpret_cast<std::int32_t*>(values(0)) + 32 * b, work.value_stride);
      next += stride * (steps.end - steps.begin);
    }
  }

  void finish() const {
    for (int p = 0; p < n; ++p) {
      for (int b = 0; b < blocks; ++b) {
        const Rescale& r = rescale[p * blocks + b];
        for (float* y = values(p) + 32 * b; y < values(p) + 32 * (b + 1); y += 16)
          store(y, fma(to_f32(load_i32(reinterpret_cast<const std::int32_t*>(y))), set1(r.factor), set1(r.addend)));
      }
    }
  }
};

/// The pairs of keys of block b that hold some of `keys`, counted from the chunk's beginning.
inline Span steps_of(Span keys, int b) {
  const Span inside = clip(keys, b * kKeyBlock, (b + 1) * kKeyBlock);
  return {inside.begin / 2, (inside.end + 1) / 2};
}

}  // namespace

template <CacheElement V>
void add_quantized(const AttentionArgs& a, const ChunkBlocks& v, const ChunkWork& work) {
  const int head_dim = a.head_dim_v;
  std::int32_t* const unpacked = reinterpret_cast<std::int32_t*>(work.block);
  if constexpr (kFormat<V>.code_bits != 8) {
    for (int b = v.first(); b <= v.last(); ++b) {
      const Span steps = steps_of(v.keys, b);
      unpack_block<V>(v.block[b], head_dim, {steps.begin - b * kSteps, steps.end - b * kSteps},
                      unpacked + b * kSteps * head_dim);
    }
  }
  for (int first = 0, n = 0; first < work.n; first += n) {
    n = next_pairs(work.n - first, kValueTile);
    Tile<V> tile{work, first, n, head_dim / 32, {}};
    tile.weigh_all(v);
    for (int b = v.first(); b <= v.last(); ++b) {
      const Span steps = steps_of(v.keys, b);
      const int bytes = first == 0 ? static_cast<int>(a.v_block_bytes) : 0;
      if constexpr (kFormat<V>.code_bits == 8) {
        const std::int8_t* const codes = reinterpret_cast<const std::int8_t*>(v.block[b]);
        tile.add(codes + 2 * (steps.begin - b * kSteps) * head_dim, steps, v.next(b), bytes);
      } else {
        tile.add(unpacked + steps.begin * head_dim, steps, v.next(b), bytes);
      }
    }
    tile.finish();
  }
}

#define LLM_VALUES(E) \
  template void add_quantized<CacheElement::E>(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);
LLM_VALUES(Q8_0)
LLM_VALUES(Q4_0)
LLM_VALUES(Q4_1)
LLM_VALUES(Q5_0)
LLM_VALUES(Q5_1)
LLM_VALUES(IQ4_NL)
#undef LLM_VALUES

}  // namespace llm::cpu::LLM_ISA
