// What the parts of attention over one chunk of keys share: its (token, head) pairs, the blocks of the cache that it
// reads, and the memory that scores and weighted values are kept in.
#pragma once

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA {

/// Pairs whose values are added up together.
#if defined(LLM_ISA_portable)
constexpr int kValueTile = 4;
#else
constexpr int kValueTile = 6;
#endif
constexpr int kBlockVectors = kKeyBlock / 16;
constexpr int kChunkBlocks = kKeyChunk / kKeyBlock;

/// The keys of one chunk that a pair sees, relative to the chunk's start.
struct Span {
  int begin, end;
};

inline int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }
inline Span clip(Span s, int begin, int end) { return {larger(s.begin, begin), smaller(s.end, end)}; }

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

/// Online softmax: value / sum is the result so far.
struct State {
  float maximum, sum;
};

/// Queries of a tile for quantised keys, by number of pair: int8 with a scale per 32 elements (tensor/activation.h,
/// Q8x32).
struct QuantizedQueries {
  std::int8_t* codes;    ///< [pair][head_dim_k]
  float* scales;         ///< [pair][head_dim_k / 32], times the scale of scores
  std::int32_t* starts;  ///< [pair][head_dim_k / 32]: minus the sum of codes, times the offset of the keys' codes
  float* sums;           ///< [pair][head_dim_k / 32]: the sum of codes times `scales`
};

/// The partial result of some pairs over one chunk, in the caller's scratch.
struct ChunkWork {
  int n = 0;  ///< pairs that see a key of the chunk
  const float* q[kQueryTile];
  Span span[kQueryTile];
  State state[kQueryTile];  ///< set once the scores are weights
  int index[kQueryTile];    ///< which of the caller's pairs it is
  float* scores;            ///< [pair][kKeyChunk], then weights
  float* values;            ///< [pair][value_stride]
  int value_stride;
  std::byte* block;     ///< of keys or values, unpacked
  std::int16_t* words;  ///< [kValueTile][head_dim_v / 32][kKeyChunk] weights times scales of quantised values
  QuantizedQueries queries;
};

/// The blocks of one side that hold the keys which somebody sees, and what is read after them.
struct ChunkBlocks {
  const std::byte* block[kChunkBlocks];
  const std::byte* after;
  Span keys;

  int first() const { return keys.begin / kKeyBlock; }
  int last() const { return (keys.end - 1) / kKeyBlock; }
  const std::byte* next(int b) const { return b < last() ? block[b + 1] : after; }
};

/// Keys [begin, end) of block b, in whole vectors.
struct Vectors {
  int begin, end;
};
inline Vectors vectors_of(Span keys, int b) {
  return {larger(keys.begin - b * kKeyBlock, 0) / 16, smaller((keys.end - b * kKeyBlock + 15) / 16, kBlockVectors)};
}

/// Scores of all pairs at least at the keys they see.
using ScoreFn = void (*)(const AttentionArgs&, const ChunkBlocks& k, const ChunkWork&);
/// The pairs' weighted values.
using ValueFn = void (*)(const AttentionArgs&, const ChunkBlocks& v, const ChunkWork&);

template <class K>
void score_floats(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);
template <CacheElement K>
void score_quantized(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);
template <class V>
void add_floats(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);
template <CacheElement V>
void add_quantized(const AttentionArgs&, const ChunkBlocks&, const ChunkWork&);

/// Fills queries [pair] with the int8 form of q.
void quantize_query(const float* q, int pair, const AttentionArgs&, const QuantizedQueries&);

inline bool is_quantized(CacheElement e) { return static_cast<int>(e) >= kFloatCacheElements; }

/// Fetches a cache line's worth of every 64 bytes from p on.
template <std::size_t kBytes>
[[gnu::always_inline]] inline void prefetch_bytes(const std::byte* p) {
  unroll<(kBytes + 63) / 64>([&](auto i) __attribute__((always_inline)) { prefetch(p + 64 * i.value); });
}

/// Pairs of the next tile of at most `most`, so that tiles are of about one size.
inline int next_pairs(int pairs, int most) {
  const int tiles = (pairs + most - 1) / most;
  return (pairs + tiles - 1) / tiles;
}

}  // namespace llm::cpu::LLM_ISA
