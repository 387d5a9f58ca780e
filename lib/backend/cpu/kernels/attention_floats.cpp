// Scores over keys that are floats, and weighted sums of values that are.
#include "backend/cpu/kernels/attention_chunk.h"

namespace llm::cpu::LLM_ISA {
namespace {

// Pairs x vectors of accumulators that fill the registers: kPairs pairs by kVectors vectors of keys or of elements.
#if defined(LLM_ISA_avx512)
constexpr int kPairs = 6, kVectors = 4;
#elif defined(LLM_ISA_portable)
constexpr int kPairs = 4, kVectors = 1;
#else
constexpr int kPairs = 6, kVectors = 1;
#endif

/// P pairs against N vectors of 16 keys each; meanwhile `next` is fetched, as much as this block holds.
template <int P, int N, class K>
[[gnu::always_inline]] inline void score_tile(const K* keys, const std::byte* next, const float* const* q, int head_dim,
                                              F32x16 factor, float* scores) {
  F32x16 acc[P * N];
  unroll<P * N>([&](auto i) __attribute__((always_inline)) { acc[i.value] = zero(); });
  const float* query[P];
  unroll<P>([&](auto p) __attribute__((always_inline)) { query[p.value] = q[p.value]; });
  for (int d = 0; d < head_dim; ++d, keys += kKeyBlock) {
    prefetch_bytes<sizeof(K) * 16 * N>(next);
    next += sizeof(K) * 16 * N;
    F32x16 key[N];
    unroll<N>([&](auto i) __attribute__((always_inline)) { key[i.value] = load(keys + 16 * i.value); });
    unroll<P>([&](auto p) __attribute__((always_inline)) {
      const F32x16 element = set1(query[p.value][d]);
      unroll<N>([&](auto i) __attribute__((always_inline)) {
        acc[p.value * N + i.value] = fma(element, key[i.value], acc[p.value * N + i.value]);
      });
    });
  }
  unroll<P * N>([&](auto i) __attribute__((always_inline)) {
    store(scores + i.value / N * kKeyChunk + i.value % N * 16, acc[i.value] * factor);
  });
}

/// P pairs against some vectors of a block of keys.
template <int P, class K>
void score_pairs(const K* keys, const std::byte* next, const float* const* q, int head_dim, F32x16 factor,
                 float* scores, Vectors vectors) {
  int v = vectors.begin;
  for (; v + kVectors <= vectors.end; v += kVectors)
    score_tile<P, kVectors>(keys + 16 * v, next + 16 * v * head_dim * static_cast<int>(sizeof(K)), q, head_dim, factor,
                            scores + 16 * v);
  for (; v < vectors.end; ++v)
    score_tile<P, 1>(keys + 16 * v, next + 16 * v * head_dim * static_cast<int>(sizeof(K)), q, head_dim, factor,
                     scores + 16 * v);
}

template <class K, int P = kPairs>
void score_some_pairs(int pairs, const K* keys, const std::byte* next, const float* const* q, int head_dim,
                      F32x16 factor, float* scores, Vectors vectors) {
  if constexpr (P > 1) {
    if (pairs < P) return score_some_pairs<K, P - 1>(pairs, keys, next, q, head_dim, factor, scores, vectors);
  }
  score_pairs<P>(keys, next, q, head_dim, factor, scores, vectors);
}

/// Rows of values, a pointer per block of the chunk.
template <class T>
struct Blocks {
  const T* block[kChunkBlocks];
  int head_dim;
};

/// The values of a chunk: weights of P pairs at keys [begin, end), to be added up in `values`.
struct Weighted {
  Span keys;
  const float* weights;  ///< [pair][kKeyChunk]
  float* values;         ///< [pair][value_stride]
  int value_stride;
};

/// Adds the weighted elements [d, d + 16 N) to P pairs' values; meanwhile the same of `next` is fetched.
template <int P, int N, class V>
[[gnu::always_inline]] inline void value_tile(const Blocks<V>& v, const Blocks<V>& next, const Weighted& w, int d) {
  F32x16 acc[P * N];
  float* const values = w.values + d;
  unroll<P * N>([&](auto i) __attribute__((always_inline)) {
    acc[i.value] = load(values + i.value / N * w.value_stride + i.value % N * 16);
  });
  const std::ptrdiff_t row = v.head_dim;
  for (int begin = w.keys.begin, end = 0; begin < w.keys.end; begin = end) {
    const int b = begin / kKeyBlock;
    end = smaller(w.keys.end, (b + 1) * kKeyBlock);
    const V* rows = v.block[b] + (begin - b * kKeyBlock) * row + d;
    const V* next_rows = next.block[b] + (begin - b * kKeyBlock) * row + d;
    const float* weights = w.weights + begin;
    for (int n = end - begin; n > 0; --n, rows += row, next_rows += row, ++weights) {
      prefetch_bytes<sizeof(V) * 16 * N>(reinterpret_cast<const std::byte*>(next_rows));
      F32x16 element[N];
      unroll<N>([&](auto i) __attribute__((always_inline)) { element[i.value] = load(rows + 16 * i.value); });
      unroll<P>([&](auto p) __attribute__((always_inline)) {
        const F32x16 weight = set1(weights[p.value * kKeyChunk]);
        unroll<N>([&](auto i) __attribute__((always_inline)) {
          acc[p.value * N + i.value] = fma(weight, element[i.value], acc[p.value * N + i.value]);
        });
      });
    }
  }
  unroll<P * N>([&](auto i) __attribute__((always_inline)) {
    store(values + i.value / N * w.value_stride + i.value % N * 16, acc[i.value]);
  });
}

/// The last elements of a head whose dimension is no multiple of 16.
template <class V>
void value_tail(int pairs, const Blocks<V>& v, const Weighted& w, int d) {
  for (int p = 0; p < pairs; ++p) {
    F32x16 acc = load(w.values + p * w.value_stride + d);
    for (int key = w.keys.begin; key < w.keys.end; ++key) {
      const V* row = v.block[key / kKeyBlock] + std::ptrdiff_t{key % kKeyBlock} * v.head_dim;
      acc = fma(set1(w.weights[p * kKeyChunk + key]), load_first(row + d, v.head_dim - d), acc);
    }
    store(w.values + p * w.value_stride + d, acc);
  }
}

/// All elements, P pairs.
template <int P, class V>
void value_pairs(const Blocks<V>& v, const Blocks<V>& next, const Weighted& w) {
  int d = 0;
  for (; d + 16 * kVectors <= v.head_dim; d += 16 * kVectors) value_tile<P, kVectors>(v, next, w, d);
  for (; d + 16 <= v.head_dim; d += 16) value_tile<P, 1>(v, next, w, d);
  if (d < v.head_dim) value_tail(P, v, w, d);
}

template <class V, int P = kPairs>
void value_some_pairs(int pairs, const Blocks<V>& v, const Blocks<V>& next, const Weighted& w) {
  if constexpr (P > 1) {
    if (pairs < P) return value_some_pairs<V, P - 1>(pairs, v, next, w);
  }
  value_pairs<P>(v, next, w);
}

/// Some keys' values for one tile of pairs: the keys that all of them see together, what comes before and after pair by
/// pair.
template <class V>
void add_keys(const ChunkWork& work, int first_pair, int pairs, Span keys, const Blocks<V>& v, const Blocks<V>& next) {
  Span joint = keys;
  for (int p = first_pair; p < first_pair + pairs; ++p) joint = clip(joint, work.span[p].begin, work.span[p].end);
  const auto add = [&](int pair, int count, Span part) {
    if (part.begin >= part.end) return;
    value_some_pairs<V>(
        count, v, next,
        {part, work.scores + pair * kKeyChunk, work.values + pair * work.value_stride, work.value_stride});
  };
  if (joint.begin >= joint.end) joint = {keys.end, keys.end};
  for (int p = first_pair; p < first_pair + pairs; ++p) add(p, 1, clip(work.span[p], keys.begin, joint.begin));
  add(first_pair, pairs, joint);
  for (int p = first_pair; p < first_pair + pairs; ++p) add(p, 1, clip(work.span[p], joint.end, keys.end));
}

/// Some keys' values for all pairs; `next` is fetched once meanwhile.
template <class V>
void add_keys(const ChunkWork& work, Span keys, const Blocks<V>& v, const Blocks<V>& next) {
  for (int p = 0, pairs = 0; p < work.n; p += pairs) {
    pairs = next_pairs(work.n - p, kPairs);
    add_keys(work, p, pairs, keys, v, p == 0 ? next : v);
  }
}

}  // namespace

template <class K>
void score_floats(const AttentionArgs& a, const ChunkBlocks& k, const ChunkWork& work) {
  for (int b = k.first(); b <= k.last(); ++b) {
    const K* const keys = reinterpret_cast<const K*>(k.block[b]);
    const std::byte* next = k.next(b);
    for (int p = 0, pairs = 0; p < work.n; p += pairs) {
      pairs = next_pairs(work.n - p, kPairs);
      score_some_pairs<K>(pairs, keys, next, work.q + p, a.head_dim_k, set1(a.scale),
                          work.scores + p * kKeyChunk + b * kKeyBlock, vectors_of(k.keys, b));
      next = k.block[b];  // fetched: the other tiles have nothing to ask for
    }
  }
}

template <class V>
void add_floats(const AttentionArgs& a, const ChunkBlocks& v, const ChunkWork& work) {
  Blocks<V> now{{}, a.head_dim_v}, next{{}, a.head_dim_v};
  for (int b = v.first(); b <= v.last(); ++b) {
    now.block[b] = reinterpret_cast<const V*>(v.block[b]);
    next.block[b] = reinterpret_cast<const V*>(v.next(b));
  }
  for (int i = 0; i < work.n * work.value_stride; i += 16) store(work.values + i, zero());
  // One tile of pairs reads the cache once, so block by block; several find the chunk in L2.
  const int step = work.n <= kPairs ? kKeyBlock : kKeyChunk;
  for (int begin = v.keys.begin / step * step; begin < v.keys.end; begin += step)
    add_keys(work, clip(v.keys, begin, begin + step), now, next);
}

#define LLM_FLOATS(T)                                                                        \
  template void score_floats<T>(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&); \
  template void add_floats<T>(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);
LLM_FLOATS(float)
LLM_FLOATS(Half)
LLM_FLOATS(BFloat16)
LLM_FLOATS(Float8E4M3)
#undef LLM_FLOATS

}  // namespace llm::cpu::LLM_ISA
