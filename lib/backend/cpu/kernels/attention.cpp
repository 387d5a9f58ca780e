// Softmax attention of a tile of (token, head) pairs over one KV head, chunk by chunk. The order of operations of one
// pair, which nothing else in the call changes (law 6):
//   score    = (fused multiply-adds over d, ascending) * scale
//   weight   = exp(score - maximum of the chunk's visible keys)
//   sum      : key p of the chunk in lane p % 16, ascending, then the lanes as a tree (vec.h)
//   value[d] : fused multiply-adds over the visible keys, ascending
// Keys outside a pair's range are never multiplied, not even by zero: they may hold anything.
#include "backend/cpu/kernels/attention.h"

#include "backend/cpu/kernels/transpose.h"
#include "backend/cpu/kernels/vec.h"

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
constexpr int kBlockVectors = kKeyBlock / 16;
constexpr int kChunkBlocks = kKeyChunk / kKeyBlock;

/// One (token, head) pair.
struct Query {
  const float* q;
  float* y;
  std::int32_t first, last;  ///< positions it sees
};

/// The keys of one chunk that a pair sees, relative to the chunk's start.
struct Span {
  int begin, end;
};

/// Online softmax: value / sum is the result so far.
struct State {
  float maximum, sum;
};

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }
inline int round_up_16(int n) { return (n + 15) / 16 * 16; }

/// The partial result of some pairs over one chunk, in the caller's scratch.
struct ChunkWork {
  int n = 0;  ///< pairs that see a key of the chunk
  const float* q[kQueryTile];
  Span span[kQueryTile];
  State state[kQueryTile];
  int index[kQueryTile];  ///< which of the caller's pairs it is
  float* scores;          ///< [pair][kKeyChunk], then weights
  float* values;          ///< [pair][value_stride]
  int value_stride;
  std::byte* keys;  ///< [head_dim_k][kKeyBlock] of the cache's elements, one block transposed
};

inline void place(ChunkWork& work, const AttentionArgs& a, std::byte* scratch) {
  work.scores = reinterpret_cast<float*>(scratch);
  work.value_stride = round_up_16(a.head_dim_v);
  work.values = work.scores + kQueryTile * kKeyChunk;
  work.keys = reinterpret_cast<std::byte*>(work.values + kQueryTile * work.value_stride);
}
static_assert((kQueryTile * kKeyChunk + kQueryTile * kMaxHeadDim + kMaxHeadDim * kKeyBlock) * sizeof(float) <=
              kScratchBytes);

/// The blocks of one chunk that hold keys somebody sees.
template <class T>
struct Blocks {
  const T* block[kChunkBlocks];
  int head_dim;
};

template <class T>
inline const T* block_of(const AttentionArgs& a, const std::byte* cache, int head_dim, std::int32_t kv_head,
                         std::int32_t logical) {
  const std::size_t block = static_cast<std::size_t>(a.blocks[logical]) * static_cast<std::size_t>(a.kv_heads) +
                            static_cast<std::size_t>(kv_head);
  return reinterpret_cast<const T*>(cache) + block * kKeyBlock * static_cast<std::size_t>(head_dim);
}

template <class T>
inline Blocks<T> find_blocks(const AttentionArgs& a, const std::byte* cache, int head_dim, std::int32_t kv_head,
                             std::int32_t chunk, Span keys) {
  Blocks<T> blocks{{}, head_dim};
  for (int b = keys.begin / kKeyBlock; b * kKeyBlock < keys.end; ++b)
    blocks.block[b] = block_of<T>(a, cache, head_dim, kv_head, chunk * kChunkBlocks + b);
  return blocks;
}

/// Fetches a cache line's worth of every 64 bytes from p on.
template <std::size_t kBytes>
[[gnu::always_inline]] inline void prefetch_bytes(const std::byte* p) {
  unroll<(kBytes + 63) / 64>([&](auto i) __attribute__((always_inline)) { prefetch(p + 64 * i.value); });
}

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

/// P pairs against the vectors [begin, end) of a transposed block.
template <int P, class K>
void score_pairs(const K* keys, const std::byte* next, const float* const* q, int head_dim, F32x16 factor,
                 float* scores, int begin, int end) {
  int v = begin;
  for (; v + kVectors <= end; v += kVectors)
    score_tile<P, kVectors>(keys + 16 * v, next + 16 * v * head_dim * static_cast<int>(sizeof(K)), q, head_dim, factor,
                            scores + 16 * v);
  for (; v < end; ++v)
    score_tile<P, 1>(keys + 16 * v, next + 16 * v * head_dim * static_cast<int>(sizeof(K)), q, head_dim, factor,
                     scores + 16 * v);
}

template <class K, int P = kPairs>
void score_some_pairs(int pairs, const K* keys, const std::byte* next, const float* const* q, int head_dim,
                      F32x16 factor, float* scores, int begin, int end) {
  if constexpr (P > 1) {
    if (pairs < P) return score_some_pairs<K, P - 1>(pairs, keys, next, q, head_dim, factor, scores, begin, end);
  }
  score_pairs<P>(keys, next, q, head_dim, factor, scores, begin, end);
}

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

/// Pairs of the next tile, so that tiles are of about one size.
inline int next_pairs(int pairs) {
  const int tiles = (pairs + kPairs - 1) / kPairs;
  return (pairs + tiles - 1) / tiles;
}

/// Keys that some pair sees.
Span all_keys(const ChunkWork& work) {
  Span all = work.span[0];
  for (int p = 1; p < work.n; ++p) {
    all.begin = smaller(all.begin, work.span[p].begin);
    all.end = larger(all.end, work.span[p].end);
  }
  return all;
}

template <class K, class V>
void score_chunk(const AttentionArgs& a, const Blocks<K>& k, const Blocks<V>& v, Span all, const ChunkWork& work) {
  K* transposed = reinterpret_cast<K*>(work.keys);
  const int first = all.begin / kKeyBlock, last = (all.end - 1) / kKeyBlock;
  for (int b = first; b <= last; ++b) {
    const int begin = larger(all.begin - b * kKeyBlock, 0) / 16;
    const int end = smaller((all.end - b * kKeyBlock + 15) / 16, kBlockVectors);
    for (int i = begin; i < end; ++i) {
      transpose_16_rows(k.block[b] + std::ptrdiff_t{16} * i * k.head_dim, k.head_dim, k.head_dim, transposed + 16 * i,
                        kKeyBlock);
    }
    const std::byte* next = b < last ? reinterpret_cast<const std::byte*>(k.block[b + 1])
                                     : reinterpret_cast<const std::byte*>(v.block[first]);
    for (int p = 0, pairs = 0; p < work.n; p += pairs) {
      pairs = next_pairs(work.n - p);
      score_some_pairs<K>(pairs, transposed, next, work.q + p, k.head_dim, set1(a.scale),
                          work.scores + p * kKeyChunk + b * kKeyBlock, begin, end);
      next = work.keys;  // fetched: the other tiles have nothing to ask for
    }
  }
}

/// Calls f(k, lanes) for the vectors of 16 that hold keys of the span; lanes(v, other) takes the lanes of v that are in
/// it.
template <class F>
[[gnu::always_inline]] inline void each_vector(Span span, const F& f) {
  const auto edge = [&](int k) {
    f(k, [&](F32x16 v, F32x16 other) {
      return keep_lanes(v, larger(span.begin - k, 0), smaller(span.end - k, 16), other);
    });
  };
  int k = span.begin / 16 * 16;
  if (k < span.begin) {
    edge(k);
    k += 16;
  }
  for (; k + 16 <= span.end; k += 16) f(k, [](F32x16 v, F32x16) { return v; });
  if (k < span.end) edge(k);
}

/// Scores become weights.
State soften(float* scores, Span span) {
  F32x16 largest = set1(-__builtin_inff());
  each_vector(span, [&](int k, const auto& lanes) { largest = max(largest, lanes(load(scores + k), largest)); });
  const float maximum = max_lane(largest);
  F32x16 total = zero();
  each_vector(span, [&](int k, const auto& lanes) {
    const F32x16 weight = lanes(exp(load(scores + k) - set1(maximum)), zero());
    store(scores + k, weight);
    total = total + weight;
  });
  return {maximum, sum(total)};
}

inline Span clip(Span s, int begin, int end) { return {larger(s.begin, begin), smaller(s.end, end)}; }

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

/// `after` is what the next chunk reads first.
template <class V>
void add_values(const Blocks<V>& v, const std::byte* after, Span all, const ChunkWork& work) {
  for (int i = 0; i < work.n * work.value_stride; i += 16) store(work.values + i, zero());
  Blocks<V> next = v;
  const int last = (all.end - 1) / kKeyBlock;
  for (int b = all.begin / kKeyBlock; b < last; ++b) next.block[b] = v.block[b + 1];
  next.block[last] = reinterpret_cast<const V*>(after);
  // One tile of pairs reads the cache once, so block by block; several find the chunk in L2.
  const int step = work.n <= kPairs ? kKeyBlock : kKeyChunk;
  for (int begin = all.begin / step * step; begin < all.end; begin += step) {
    for (int p = 0, pairs = 0; p < work.n; p += pairs) {
      pairs = next_pairs(work.n - p);
      add_keys(work, p, pairs, clip(all, begin, begin + step), v, p == 0 ? next : v);
    }
  }
}

/// The part of one chunk in the results of n pairs; pairs that see none of its keys are left out of `work`.
template <class K, class V>
void run_chunk(const AttentionArgs& a, std::int32_t kv_head, const Query* queries, int n, std::int32_t chunk,
               ChunkWork& work) {
  const std::int32_t start = chunk * kKeyChunk;
  work.n = 0;
  for (int i = 0; i < n; ++i) {
    const Span span = clip({queries[i].first - start, queries[i].last + 1 - start}, 0, kKeyChunk);
    if (span.begin >= span.end) continue;
    work.q[work.n] = queries[i].q;
    work.span[work.n] = span;
    work.index[work.n++] = i;
  }
  if (work.n == 0) return;
  const Span all = all_keys(work);
  const auto keys = find_blocks<K>(a, a.k, a.head_dim_k, kv_head, chunk, all);
  const auto values = find_blocks<V>(a, a.v, a.head_dim_v, kv_head, chunk, all);
  score_chunk(a, keys, values, all, work);
  for (int p = 0; p < work.n; ++p) work.state[p] = soften(work.scores + p * kKeyChunk, work.span[p]);
  const bool more = all.end == kKeyChunk && queries[n - 1].last >= start + kKeyChunk;
  const auto* after =
      more ? block_of<K>(a, a.k, a.head_dim_k, kv_head, (chunk + 1) * kChunkBlocks) : keys.block[all.begin / kKeyBlock];
  add_values(values, reinterpret_cast<const std::byte*>(after), all, work);
}

/// y[i] = f(y[i], x[i]) for n elements.
template <class F>
[[gnu::always_inline]] inline void combine(float* y, const float* x, int n, const F& f) {
  int i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(y + i), load(x + i)));
  if (i < n) store_first(y + i, n - i, f(load_first(y + i, n - i), load_first(x + i, n - i)));
}

/// A state that has seen no key: the next chunk replaces it.
constexpr State kNothing = {-__builtin_inff(), 0};
inline bool is_nothing(State s) { return s.sum == 0; }  // a chunk's sum is at least 1, or NaN

/// Appends a chunk's part to a pair's result.
void merge(State& state, float* y, State chunk, const float* values, int n) {
  if (is_nothing(chunk)) return;
  if (is_nothing(state)) {
    combine(y, values, n, [](F32x16, F32x16 v) { return v; });
    state = chunk;
    return;
  }
  const float maximum = state.maximum > chunk.maximum ? state.maximum : chunk.maximum;
  const F32x16 old_factor = exp(set1(state.maximum) - set1(maximum)), factor = exp(set1(chunk.maximum) - set1(maximum));
  combine(y, values, n, [&](F32x16 o, F32x16 v) { return fma(o, old_factor, v * factor); });
  state = {maximum, first_lane(fma(set1(state.sum), old_factor, set1(chunk.sum) * factor))};
}

void finish(State state, float* y, int n) {
  combine(y, y, n, [&](F32x16 o, F32x16) { return o / set1(state.sum); });
}

/// Query head `head` of the KV head's group.
Query query_of(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token, int head) {
  const std::int32_t group = a.heads / a.kv_heads, position = a.positions[token];
  const std::ptrdiff_t row = std::ptrdiff_t{token} * a.heads + kv_head * group + head;
  const std::int32_t first = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  return {a.q + row * a.head_dim_k, a.y + row * a.head_dim_v, first, position};
}

/// All chunks of up to kQueryTile pairs.
template <class K, class V>
void run_tile(const AttentionArgs& a, std::int32_t kv_head, const Query* queries, int n, std::byte* scratch) {
  ChunkWork work;
  place(work, a, scratch);
  State state[kQueryTile];
  std::int32_t first = queries[0].first, last = queries[0].last;
  for (int i = 0; i < n; ++i) {
    state[i] = kNothing;
    first = smaller(first, queries[i].first);
    last = larger(last, queries[i].last);
  }
  for (std::int32_t chunk = first / kKeyChunk; chunk <= last / kKeyChunk; ++chunk) {
    run_chunk<K, V>(a, kv_head, queries, n, chunk, work);
    for (int p = 0; p < work.n; ++p) {
      const int i = work.index[p];
      merge(state[i], queries[i].y, work.state[p], work.values + p * work.value_stride, a.head_dim_v);
    }
  }
  for (int i = 0; i < n; ++i) finish(state[i], queries[i].y, a.head_dim_v);
}

}  // namespace

template <class K, class V>
void attention(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token_begin, std::int32_t token_end,
               std::byte* scratch) {
  const int group = a.heads / a.kv_heads;
  Query queries[kQueryTile];
  int n = 0;
  for (std::int32_t token = token_begin; token < token_end; ++token) {
    for (int head = 0; head < group; ++head) {
      queries[n++] = query_of(a, kv_head, token, head);
      if (n < kQueryTile && !(token + 1 == token_end && head + 1 == group)) continue;
      run_tile<K, V>(a, kv_head, queries, n, scratch);
      n = 0;
    }
  }
}

template <class K, class V>
void attention_chunk(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token, std::int32_t chunk,
                     float* partial, std::byte* scratch) {
  const int group = a.heads / a.kv_heads;
  ChunkWork work;
  place(work, a, scratch);
  for (int begin = 0; begin < group; begin += kQueryTile) {
    const int n = smaller(group - begin, kQueryTile);
    Query queries[kQueryTile];
    for (int i = 0; i < n; ++i) queries[i] = query_of(a, kv_head, token, begin + i);
    run_chunk<K, V>(a, kv_head, queries, n, chunk, work);
    for (int i = 0; i < n; ++i, partial += 2 + a.head_dim_v) {
      const State state = work.n == 0 ? kNothing : work.state[i];  // the heads of one token see the same keys
      partial[0] = state.maximum;
      partial[1] = state.sum;
      combine(partial + 2, work.values + i * work.value_stride, work.n == 0 ? 0 : a.head_dim_v,
              [](F32x16, F32x16 v) { return v; });
    }
  }
}

void attention_merge(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token, std::int32_t n_chunks,
                     const float* partials) {
  const int group = a.heads / a.kv_heads;
  const std::ptrdiff_t stride = 2 + a.head_dim_v;
  for (int head = 0; head < group; ++head) {
    const Query query = query_of(a, kv_head, token, head);
    State state = kNothing;
    for (std::int32_t chunk = 0; chunk < n_chunks; ++chunk) {
      const float* partial = partials + (std::ptrdiff_t{chunk} * group + head) * stride;
      merge(state, query.y, {partial[0], partial[1]}, partial + 2, a.head_dim_v);
    }
    finish(state, query.y, a.head_dim_v);
  }
}

#define LLM_ATTENTION(K, V)                                                                                   \
  template void attention<K, V>(const AttentionArgs&, std::int32_t, std::int32_t, std::int32_t, std::byte*);  \
  template void attention_chunk<K, V>(const AttentionArgs&, std::int32_t, std::int32_t, std::int32_t, float*, \
                                      std::byte*);
#define LLM_ATTENTION_OF(K) LLM_ATTENTION(K, float) LLM_ATTENTION(K, Half) LLM_ATTENTION(K, BFloat16)
LLM_ATTENTION_OF(float)
LLM_ATTENTION_OF(Half)
LLM_ATTENTION_OF(BFloat16)
#undef LLM_ATTENTION_OF
#undef LLM_ATTENTION

}  // namespace llm::cpu::LLM_ISA
