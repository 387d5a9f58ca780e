// Softmax attention of a tile of (token, head) pairs over one KV head, chunk by chunk. The order of operations of one
// pair, which nothing else in the call changes (law 6):
//   score    = (fused multiply-adds over d, ascending) * scale; over quantised keys as attention_keys.cpp says; then,
//              with a cap, cap * tanh(score / cap); then, with ALiBi, slope * (key - position) + score, fused
//   weight   = exp(score - maximum of the chunk's visible keys)
//   sum      : key p of the chunk in lane p % 16, ascending, then the lanes as a tree (vec.h)
//   value[d] : fused multiply-adds over the visible keys, ascending; of quantised ones as attention_values.cpp says
//   sink     : behind all chunks, as one with a single key whose value is 0
// Keys outside a pair's range add nothing to its result, not even zero times themselves: they may hold anything.
#include "backend/cpu/kernels/attention.h"

#include "backend/cpu/kernels/attention_chunk.h"

namespace llm::cpu::LLM_ISA {

namespace {

constexpr ScoreFn kScore[] = {score_floats<float>,
                              score_floats<Half>,
                              score_floats<BFloat16>,
                              score_floats<Float8E4M3>,
                              score_quantized<CacheElement::Q8_0>,
                              score_quantized<CacheElement::Q4_0>,
                              score_quantized<CacheElement::Q4_1>,
                              score_quantized<CacheElement::Q5_0>,
                              score_quantized<CacheElement::Q5_1>,
                              score_quantized<CacheElement::IQ4_NL>};
constexpr ValueFn kAddValues[] = {add_floats<float>,
                                  add_floats<Half>,
                                  add_floats<BFloat16>,
                                  add_floats<Float8E4M3>,
                                  add_quantized<CacheElement::Q8_0>,
                                  add_quantized<CacheElement::Q4_0>,
                                  add_quantized<CacheElement::Q4_1>,
                                  add_quantized<CacheElement::Q5_0>,
                                  add_quantized<CacheElement::Q5_1>,
                                  add_quantized<CacheElement::IQ4_NL>};
static_assert(sizeof kScore / sizeof *kScore == kCacheElements);
static_assert(sizeof kAddValues / sizeof *kAddValues == kCacheElements);

/// One (token, head) pair.
struct Query {
  const float* q;
  float* y;
  std::int32_t first, last;  ///< positions it sees
  const float* sink;         ///< nullptr: none
  float slope;               ///< 0 without ALiBi
};

inline int round_up_16(int n) { return (n + 15) / 16 * 16; }

/// Hands out the caller's scratch.
inline void place(ChunkWork& work, const AttentionArgs& a, std::byte* scratch) {
  work.scores = reinterpret_cast<float*>(scratch);
  work.value_stride = round_up_16(a.head_dim_v);
  work.values = work.scores + kQueryTile * kKeyChunk;
  float* const block = work.values + kQueryTile * work.value_stride;
  work.block = reinterpret_cast<std::byte*>(block);
  const int dim = larger(a.head_dim_k, a.head_dim_v);
  work.queries.scales = block + dim * kKeyChunk / 2;
  work.queries.sums = work.queries.scales + kQueryTile * dim / 32;
  work.queries.starts = reinterpret_cast<std::int32_t*>(work.queries.sums + kQueryTile * dim / 32);
  work.queries.codes = reinterpret_cast<std::int8_t*>(work.queries.starts + kQueryTile * dim / 32);
  work.words = reinterpret_cast<std::int16_t*>(work.queries.codes + kQueryTile * dim);
}
static_assert(sizeof(float) *
                      (kQueryTile * (kKeyChunk + kMaxHeadDim + 3 * kMaxHeadDim / 32) + kMaxHeadDim * kKeyChunk / 2) +
                  kQueryTile * kMaxHeadDim + kValueTile * kMaxHeadDim / 32 * kKeyChunk * sizeof(std::int16_t) <=
              kScratchBytes);

void cap_scores(float* scores, Span span, float cap) {
  each_vector(span, [&](int k, const auto&) { store(scores + k, set1(cap) * tanh(load(scores + k) / set1(cap))); });
}

/// Distances are whole numbers, which f32 holds. `last`: the position of the query, from the chunk's start on.
void bias_scores(float* scores, Span span, float slope, std::int32_t last) {
  static constexpr float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F32x16 lanes = load(kLanes);
  each_vector(span, [&](int k, const auto&) {
    const F32x16 behind = set1(static_cast<float>(k - last)) + lanes;
    store(scores + k, fma(set1(slope), behind, load(scores + k)));
  });
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

/// Where a KV head's part of a logical block is.
inline const std::byte* block_of(const AttentionArgs& a, const std::byte* cache, std::size_t block_bytes,
                                 std::int32_t kv_head, std::int32_t logical) {
  const std::size_t block = static_cast<std::size_t>(a.blocks[logical]) * static_cast<std::size_t>(a.kv_heads) +
                            static_cast<std::size_t>(kv_head);
  return cache + block * block_bytes;
}

ChunkBlocks find_blocks(const AttentionArgs& a, const std::byte* cache, std::size_t block_bytes, std::int32_t kv_head,
                        std::int32_t chunk, Span keys) {
  ChunkBlocks blocks{{}, nullptr, keys};
  for (int b = blocks.first(); b <= blocks.last(); ++b)
    blocks.block[b] = block_of(a, cache, block_bytes, kv_head, chunk * kChunkBlocks + b);
  return blocks;
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

/// What the pairs of a tile need before their first chunk.
void prepare(const AttentionArgs& a, const Query* queries, int n, const ChunkWork& work) {
  if (!is_quantized(a.k_element)) return;
  for (int i = 0; i < n; ++i) quantize_query(queries[i].q, i, a, work.queries);
}

/// The part of one chunk in the results of n pairs; pairs that see none of its keys are left out of `work`.
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
  ChunkBlocks keys = find_blocks(a, a.k, a.k_block_bytes, kv_head, chunk, all);
  ChunkBlocks values = find_blocks(a, a.v, a.v_block_bytes, kv_head, chunk, all);
  const bool more = all.end == kKeyChunk && queries[n - 1].last >= start + kKeyChunk;
  keys.after = values.block[values.first()];
  values.after = more ? block_of(a, a.k, a.k_block_bytes, kv_head, (chunk + 1) * kChunkBlocks) : keys.after;
  kScore[static_cast<int>(a.k_element)](a, keys, work);
  for (int p = 0; p < work.n; ++p) {
    float* const scores = work.scores + p * kKeyChunk;
    if (a.soft_cap > 0) cap_scores(scores, work.span[p], a.soft_cap);
    const Query& query = queries[work.index[p]];
    if (a.slopes != nullptr) bias_scores(scores, work.span[p], query.slope, query.last - start);
    work.state[p] = soften(scores, work.span[p]);
  }
  kAddValues[static_cast<int>(a.v_element)](a, values, work);
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

void add_sink(State& state, float* y, float sink, int n) {
  const float maximum = state.maximum > sink ? state.maximum : sink;
  const F32x16 factor = exp(set1(state.maximum) - set1(maximum)), weight = exp(set1(sink) - set1(maximum));
  combine(y, y, n, [&](F32x16 o, F32x16) { return o * factor; });
  state = {maximum, first_lane(fma(set1(state.sum), factor, weight))};
}

void finish(State state, const Query& query, int n) {
  if (query.sink != nullptr) add_sink(state, query.y, *query.sink, n);
  combine(query.y, query.y, n, [&](F32x16 o, F32x16) { return o / set1(state.sum); });
}

/// Query head `head` of the group.
Query query_of(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token, int head) {
  const std::int32_t position = a.positions[token], of_token = kv_head * (a.heads / a.kv_heads) + head;
  const std::ptrdiff_t row = std::ptrdiff_t{token} * a.heads + of_token;
  return {a.q + row * a.head_dim_k,
          a.y + row * a.head_dim_v,
          a.window.first_key(position),
          position,
          a.sinks != nullptr ? a.sinks + of_token : nullptr,
          a.slopes != nullptr ? a.slopes[of_token] : 0.0f};
}

/// All chunks of up to kQueryTile pairs.
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
  prepare(a, queries, n, work);
  for (std::int32_t chunk = first / kKeyChunk; chunk <= last / kKeyChunk; ++chunk) {
    run_chunk(a, kv_head, queries, n, chunk, work);
    for (int p = 0; p < work.n; ++p) {
      const int i = work.index[p];
      merge(state[i], queries[i].y, work.state[p], work.values + p * work.value_stride, a.head_dim_v);
    }
  }
  for (int i = 0; i < n; ++i) finish(state[i], queries[i], a.head_dim_v);
}

}  // namespace

void attention(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token_begin, std::int32_t token_end,
               std::byte* scratch) {
  const int group = a.group;
  Query queries[kQueryTile];
  int n = 0;
  for (std::int32_t token = token_begin; token < token_end; ++token) {
    for (int head = 0; head < group; ++head) {
      queries[n++] = query_of(a, kv_head, token, head);
      if (n < kQueryTile && !(token + 1 == token_end && head + 1 == group)) continue;
      run_tile(a, kv_head, queries, n, scratch);
      n = 0;
    }
  }
}

void attention_chunk(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token, std::int32_t chunk,
                     float* partial, std::byte* scratch) {
  const int group = a.group;
  ChunkWork work;
  place(work, a, scratch);
  for (int begin = 0; begin < group; begin += kQueryTile) {
    const int n = smaller(group - begin, kQueryTile);
    Query queries[kQueryTile];
    for (int i = 0; i < n; ++i) queries[i] = query_of(a, kv_head, token, begin + i);
    prepare(a, queries, n, work);
    run_chunk(a, kv_head, queries, n, chunk, work);
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
  const int group = a.group;
  const std::ptrdiff_t stride = 2 + a.head_dim_v;
  for (int head = 0; head < group; ++head) {
    const Query query = query_of(a, kv_head, token, head);
    State state = kNothing;
    for (std::int32_t chunk = 0; chunk < n_chunks; ++chunk) {
      const float* partial = partials + (std::ptrdiff_t{chunk} * group + head) * stride;
      merge(state, query.y, {partial[0], partial[1]}, partial + 2, a.head_dim_v);
    }
    finish(state, query, a.head_dim_v);
  }
}

void attention_add(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token, std::int32_t chunk, float* states,
                   std::byte* scratch) {
  ChunkWork work;
  place(work, a, scratch);
  for (int begin = 0; begin < a.group; begin += kQueryTile) {
    const int n = smaller(a.group - begin, kQueryTile);
    Query queries[kQueryTile];
    for (int i = 0; i < n; ++i) queries[i] = query_of(a, kv_head, token, begin + i);
    prepare(a, queries, n, work);
    run_chunk(a, kv_head, queries, n, chunk, work);
    for (int p = 0; p < work.n; ++p) {
      const int i = work.index[p];
      float* const kept = states + 2 * (begin + i);
      State state{kept[0], kept[1]};
      merge(state, queries[i].y, work.state[p], work.values + p * work.value_stride, a.head_dim_v);
      kept[0] = state.maximum;
      kept[1] = state.sum;
    }
  }
}

void attention_finish(const AttentionArgs& a, std::int32_t kv_head, std::int32_t token, const float* states) {
  for (int head = 0; head < a.group; ++head)
    finish({states[2 * head], states[2 * head + 1]}, query_of(a, kv_head, token, head), a.head_dim_v);
}

/// Of keys that lie side by side.
static void score_keys(const AttentionArgs& a, const float* weights, std::int32_t token, std::int32_t chunk, Span keys,
                       float* scores, ChunkWork& work) {
  ChunkBlocks blocks = find_blocks(a, a.k, a.k_block_bytes, 0, chunk, keys);
  blocks.after = blocks.block[blocks.first()];
  for (int begin = 0; begin < a.heads; begin += kQueryTile) {
    work.n = smaller(a.heads - begin, kQueryTile);
    for (int i = 0; i < work.n; ++i) {
      work.q[i] = a.q + (std::ptrdiff_t{token} * a.heads + begin + i) * a.head_dim_k;
      work.span[i] = keys;
      work.index[i] = i;
      if (is_quantized(a.k_element)) quantize_query(work.q[i], i, a, work.queries);
    }
    kScore[static_cast<int>(a.k_element)](a, blocks, work);
    for (int k = keys.begin; k < keys.end; k += 16) {
      F32x16 sum = begin == 0 ? zero() : load(scores + k);
      for (int i = 0; i < work.n; ++i)
        sum = fma(set1(weights[begin + i]), max(load(work.scores + i * kKeyChunk + k), zero()), sum);
      store(scores + k, sum);
    }
  }
}

void index_scores(const AttentionArgs& a, const float* weights, std::int32_t token, std::int32_t chunk, float* scores,
                  std::byte* scratch) {
  ChunkWork work;
  place(work, a, scratch);
  const int seen = smaller(a.positions[token] + 1 - chunk * kKeyChunk, kKeyChunk);
  if (a.key_stride == 1) return score_keys(a, weights, token, chunk, {0, seen}, scores, work);
  for (int first = 0; first < seen; first += kKeyBlock) {
    const int keys = smaller(seen - first, kKeyBlock) / a.key_stride;
    if (keys > 0) score_keys(a, weights, token, chunk, {first, first + keys}, scores, work);
  }
}

}  // namespace llm::cpu::LLM_ISA
