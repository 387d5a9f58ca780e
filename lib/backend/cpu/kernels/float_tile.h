// Products with weights stored as floats, y[c][n] = sum over k of w[n][k] * x[c][k], in one order of operations for any
// number of columns (law 6):
//   k is cut into segments of kSegment elements at absolute positions;
//   in a segment, element k goes to lane k % 16 of chain (k / 16) % 2 by a fused multiply-add, ascending;
//   the two chains are added, then the lanes as a tree (vec.h);
//   the segments' sums are added in ascending order.
// Of BF16 weights, whose activations are BF16 as well, what is said of element k holds for the pair of elements 2k and
// 2k + 1: first the odd one is multiplied and added, then the even one (bf16_pairs.h).
// Two chains hide the latency of a fused multiply-add when one row is read at the speed of memory. Segments make a
// tile's operands stay in L1 without keeping 16 partial sums per output: only the one f32 in y.
#pragma once

#include "backend/cpu/kernels/bf16_pairs.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA::floats {

inline constexpr int kChains = 2;

/// How weights of type W are multiplied.
template <class W>
struct Form {
  using Activation = float;
  static constexpr int kRegister = 16;  ///< elements of a register
  static constexpr int kSegment = 1024;
};
template <>
struct Form<BFloat16> {
  using Activation = BFloat16;
  static constexpr int kRegister = 32;
  static constexpr int kSegment = 2048;
};
template <class W>
inline constexpr int kStep = Form<W>::kRegister* kChains;

// A tile's accumulators and the weights it holds fill the vector registers.
#if defined(LLM_ISA_avx512)
inline constexpr int kTileRows = 4, kTileCols = 6, kAccumulators = 24;
#elif defined(LLM_ISA_neon)
inline constexpr int kTileRows = 2, kTileCols = 2, kAccumulators = 4;
#elif defined(LLM_ISA_portable)
inline constexpr int kTileRows = 1, kTileCols = 4, kAccumulators = 8;
#else
inline constexpr int kTileRows = 2, kTileCols = 3, kAccumulators = 6;
#endif
// Weight rows that many columns go through segment by segment: rows x kSegment weights stay in L2, of which processors
// with AVX-512 have more. Each panel reads all columns again.
#if defined(LLM_ISA_avx512)
inline constexpr std::size_t kPanelBytes = std::size_t{512} << 10;
#else
inline constexpr std::size_t kPanelBytes = std::size_t{256} << 10;
#endif
// Activations that stay in L1 while weights stream through it.
inline constexpr std::int64_t kColumnInL1 = 8192;
// How far ahead of the products weights are fetched when they come from memory: from two streams out of the pages that
// they are in.
inline std::size_t fetch_distance(Streams streams) { return streams == Streams::One ? 6 << 10 : 2 << 10; }

enum class Segment { First, Next };
enum class Weights { Streamed, Cached };

/// R rows of weights and C columns of activations, from the first element of a segment.
template <class W, int R, int C>
struct Tile {
  const std::byte* w;
  std::size_t w_row_bytes;  ///< from one row to the next
  std::int64_t y_step;      ///< the same in y
  std::size_t ahead;        ///< Streamed: how many bytes behind w the weights are that come later
  const typename Form<W>::Activation* x[C];
  float* y[C];
};

template <class W>
[[gnu::always_inline]] inline const W* weights(const std::byte* w) {
  return reinterpret_cast<const W*>(w);
}

struct All {};
template <class T>
[[gnu::always_inline]] inline F32x16 load_some(const T* p, All) {
  return load(p);
}
template <class T>
[[gnu::always_inline]] inline F32x16 load_some(const T* p, int n) {
  return load_first(p, n);
}
template <int step>
[[gnu::always_inline]] inline Pairs load_some_pairs(const BFloat16* p, All) {
  return load_pairs<step>(p);
}
template <int step>
[[gnu::always_inline]] inline Pairs load_some_pairs(const BFloat16* p, int n) {
  return load_first_pairs<step>(p, n);
}

/// Adds the products of the first n elements from k on, a register of them if n is all, to one chain of every output.
template <class N, class W, int R, int C>
[[gnu::always_inline]] inline void add_products(const Tile<W, R, C>& t, int k, N n, F32x16* acc) {
  F32x16 w[R];
  unroll<R>([&](auto r) __attribute__((always_inline)) {
    w[r.value] = load_some(weights<W>(t.w + r.value * t.w_row_bytes) + k, n);
  });
  unroll<C>([&](auto c) __attribute__((always_inline)) {
    const F32x16 x = load_some(t.x[c.value] + k, n);
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      acc[c.value * R + r.value] = fma(w[r.value], x, acc[c.value * R + r.value]);
    });
  });
}
/// Activations are padded to whole registers.
template <class N, int R, int C>
[[gnu::always_inline]] inline void add_products(const Tile<BFloat16, R, C>& t, int k, N n, F32x16* acc) {
  unroll<kPairSteps>([&](auto s) __attribute__((always_inline)) {
    constexpr int kPart = s.value;
    Pairs w[R];
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      w[r.value] = load_some_pairs<kPart>(weights<BFloat16>(t.w + r.value * t.w_row_bytes) + k, n);
    });
    unroll<C>([&](auto c) __attribute__((always_inline)) {
      const Pairs x = load_pairs<kPart>(t.x[c.value] + k);
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        acc[c.value * R + r.value] = add_pairs<kPart>(acc[c.value * R + r.value], w[r.value], x);
      });
    });
  });
}

/// Runs N chains, from `chain` on, over n elements: acc[chain][column][row].
template <Weights kFrom, int N, class W, int R, int C>
[[gnu::always_inline]] inline void run_chains(const Tile<W, R, C>& t, int chain, int n, F32x16* acc) {
  unroll<N * R * C>([&](auto i) __attribute__((always_inline)) { acc[i.value] = zero(); });
  constexpr int kRegister = Form<W>::kRegister;
  int k = kRegister * chain;
  for (; k + kRegister * N <= n; k += kStep<W>) {
    if constexpr (kFrom == Weights::Streamed) {
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        const std::byte* ahead = t.w + r.value * t.w_row_bytes + static_cast<std::size_t>(k) * sizeof(W) + t.ahead;
        prefetch(ahead);
        if constexpr (kStep<W> * sizeof(W) > 64) prefetch(ahead + 64);
      });
    }
    unroll<N>([&](auto i) __attribute__((always_inline)) {
      add_products(t, k + kRegister * i.value, All{}, acc + i.value * R * C);
    });
  }
  unroll<N>([&](auto i) __attribute__((always_inline)) {
    const int rest = n - k - kRegister * i.value;
    if (rest > 0) add_products(t, k + kRegister * i.value, rest < kRegister ? rest : kRegister, acc + i.value * R * C);
  });
}

/// The sums of R rows, `y_step` apart in y (four: neighbours).
template <int R>
[[gnu::always_inline]] inline void put_sums(const F32x16* a, float* y, std::int64_t y_step, Segment segment) {
  if constexpr (R == 4) {
    if (segment == Segment::First) {
      store_sums(y, a[0], a[1], a[2], a[3]);
    } else {
      add_sums(y, a[0], a[1], a[2], a[3]);
    }
  } else {
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      const float s = sum(a[r.value]);
      float* const to = y + r.value * y_step;
      *to = segment == Segment::First ? s : *to + s;
    });
  }
}

/// The n elements of one segment.
template <Weights kFrom, class W, int R, int C>
[[gnu::always_inline]] inline void multiply(const Tile<W, R, C>& t, int n, Segment segment) {
  constexpr int kOutputs = R * C;
  F32x16 sums[kOutputs];
  if constexpr (kChains * kOutputs <= kAccumulators) {
    F32x16 acc[kChains * kOutputs];
    run_chains<kFrom, kChains>(t, 0, n, acc);
    unroll<kOutputs>([&](auto i)
                         __attribute__((always_inline)) { sums[i.value] = acc[i.value] + acc[kOutputs + i.value]; });
  } else {  // too many outputs for both chains at once: the second pass finds its operands in L1
    F32x16 even[kOutputs], odd[kOutputs];
    run_chains<kFrom, 1>(t, 0, n, even);
    run_chains<Weights::Cached, 1>(t, 1, n, odd);
    unroll<kOutputs>([&](auto i) __attribute__((always_inline)) { sums[i.value] = even[i.value] + odd[i.value]; });
  }
  unroll<C>([&](auto c)
                __attribute__((always_inline)) { put_sums<R>(sums + c.value * R, t.y[c.value], t.y_step, segment); });
}

/// What part of a product one call covers.
struct Range {
  std::int64_t row_begin, row_end, k_begin, k_end;  ///< k_begin a multiple of kSegment
  std::int64_t col_begin, cols;
  std::size_t ahead;  ///< as in Tile
};

template <class T>
[[gnu::always_inline]] inline T row_of(const std::int32_t* rows, T i) {
  return rows ? rows[i] : i;
}

template <class X>
inline const X* activations(const LinearArgs& a, std::int64_t col, std::int64_t k) {
  const auto row = static_cast<std::size_t>(row_of(a.act_rows, col));
  return reinterpret_cast<const X*>(a.act + row * a.layout->row_bytes) + k;
}

/// R rows from `row` on, `distance` apart (four: neighbours).
template <Weights kFrom, class W, int R, int C>
[[gnu::always_inline]] inline void multiply_rows(const LinearArgs& a, const Range& range, std::int64_t row,
                                                 std::int64_t distance = 1) {
  Tile<W, R, C> t;
  t.w_row_bytes = static_cast<std::size_t>(distance) * a.w_row_bytes;
  t.y_step = distance;
  t.ahead = range.ahead;
  constexpr int kSegment = Form<W>::kSegment;
  for (std::int64_t k = range.k_begin; k < range.k_end; k += kSegment) {
    t.w = a.w + static_cast<std::size_t>(row) * a.w_row_bytes + static_cast<std::size_t>(k) * sizeof(W);
    unroll<C>([&](auto c) __attribute__((always_inline)) {
      const std::int64_t col = range.col_begin + c.value;
      t.x[c.value] = activations<typename Form<W>::Activation>(a, col, k);
      t.y[c.value] = a.y + row_of(a.out_rows, col) * a.ldy + row;
    });
    const std::int64_t n = range.k_end - k < kSegment ? range.k_end - k : kSegment;
    multiply<kFrom>(t, static_cast<int>(n), k == 0 ? Segment::First : Segment::Next);
  }
}

/// C columns, all rows of the range, R at a time.
template <Weights kFrom, class W, int R, int C>
void multiply_cols(const LinearArgs& a, const Range& range) {
  std::int64_t row = range.row_begin;
  for (; row + R <= range.row_end; row += R) multiply_rows<kFrom, W, R, C>(a, range, row);
  for (; row < range.row_end; ++row) multiply_rows<kFrom, W, 1, C>(a, range, row);
}

/// One column, row by row.
template <Weights kFrom, class W>
void multiply_column(const LinearArgs& a, Range range) {
  if (a.ways.streams != Streams::One) {
    const std::int64_t half = (range.row_end - range.row_begin) / 2;
    for (std::int64_t i = 0; i < half; ++i) multiply_rows<kFrom, W, 2, 1>(a, range, range.row_begin + i, half);
    range.row_begin += 2 * half;
  }
  multiply_cols<kFrom, W, 1, 1>(a, range);
}

template <Weights kFrom, class W, int C = kTileCols>
void multiply_some_cols(const LinearArgs& a, const Range& range) {
  if constexpr (C > 1) {
    if (range.cols < C) return multiply_some_cols<kFrom, W, C - 1>(a, range);
  }
  // One column: row by row, since memory is fastest at ascending addresses, unless each row would fetch the column from
  // L2.
  if (C == 1 && a.k <= kColumnInL1) return multiply_column<kFrom, W>(a, range);
  multiply_cols<kFrom, W, kTileRows, C>(a, range);
}

inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Columns of the next tile, so that tiles differ by one column at most: 7 are 4 + 3, not 6 + 1.
inline std::int64_t next_cols(std::int64_t cols) {
  const std::int64_t tiles = (cols + kTileCols - 1) / kTileCols;
  return (cols + tiles - 1) / tiles;
}

template <class W>
void linear(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end) {
  if (a.n_cols <= 0) return;
  if (a.n_cols <= kTileCols)
    return multiply_some_cols<Weights::Streamed, W>(
        a, {row_begin, row_end, 0, a.k, 0, a.n_cols, fetch_distance(a.ways.streams)});
  constexpr int kSegment = Form<W>::kSegment;
  constexpr auto kRows = static_cast<std::int64_t>(kPanelBytes / (kSegment * sizeof(W)));
  Range range;
  range.ahead = kTileRows * a.w_row_bytes;  // the same segment of the next tile of rows
  for (range.row_begin = row_begin; range.row_begin < row_end; range.row_begin = range.row_end) {
    range.row_end = smaller(range.row_begin + kRows, row_end);
    for (range.k_begin = 0; range.k_begin < a.k; range.k_begin = range.k_end) {
      range.k_end = smaller(range.k_begin + kSegment, a.k);
      for (range.col_begin = 0; range.col_begin < a.n_cols; range.col_begin += range.cols) {
        range.cols = next_cols(a.n_cols - range.col_begin);
        if (range.col_begin == 0) {
          multiply_some_cols<Weights::Streamed, W>(a, range);
        } else {
          multiply_some_cols<Weights::Cached, W>(a, range);
        }
      }
    }
  }
}

}  // namespace llm::cpu::LLM_ISA::floats
