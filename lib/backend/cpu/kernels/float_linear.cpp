// y[c][n] = sum over k of w[n][k] * x[c][k], in one order of operations for any number of columns (law 6):
//   k is cut into segments of kSegment elements at absolute positions;
//   in a segment, element k goes to lane k % 16 of chain (k / 16) % 2 by a fused multiply-add, ascending;
//   the two chains are added, then the lanes as a tree (vec.h);
//   the segments' sums are added in ascending order.
// Two chains hide the latency of a fused multiply-add when one row is read at the speed of memory. Segments make a
// tile's operands stay in L1 without keeping 16 partial sums per output: only the one f32 in y.
#include "backend/cpu/kernels/float_linear.h"

#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA {

namespace {

constexpr int kSegment = 1024;
constexpr int kChains = 2;
constexpr int kStep = 16 * kChains;

// A tile's accumulators and the weights it holds fill the vector registers.
#if defined(LLM_ISA_avx512)
constexpr int kTileRows = 4, kTileCols = 6, kAccumulators = 24;
#elif defined(LLM_ISA_portable)
constexpr int kTileRows = 1, kTileCols = 4, kAccumulators = 8;
#else
constexpr int kTileRows = 2, kTileCols = 3, kAccumulators = 6;
#endif
// Weight rows that many columns go through segment by segment: rows x kSegment weights stay in L2.
constexpr std::size_t kPanelBytes = std::size_t{256} << 10;
// Activations that stay in L1 while weights stream through it.
constexpr std::int64_t kColumnInL1 = 8192;
// How far ahead of the products weights are fetched when they come from memory.
constexpr int kAhead = 6 << 10;

enum class Segment { First, Next };
enum class Weights { Streamed, Cached };

/// R rows of weights and C columns of activations, from the first element of a segment.
template <class W, int R, int C>
struct Tile {
  const std::byte* w;
  std::size_t w_row_bytes;
  std::size_t ahead;  ///< Streamed: how many bytes behind w the weights are that come later
  const float* x[C];
  float* y[C];
};

template <class W>
[[gnu::always_inline]] inline const W* weights(const std::byte* w) {
  return reinterpret_cast<const W*>(w);
}

/// Adds the products of 16 elements from k on to one chain of every output.
template <class W, int R, int C, class Load>
[[gnu::always_inline]] inline void add_products(const Tile<W, R, C>& t, int k, F32x16* acc, const Load& load_lanes) {
  F32x16 w[R];
  unroll<R>([&](auto r) __attribute__((always_inline)) {
    w[r.value] = load_lanes(weights<W>(t.w + r.value * t.w_row_bytes) + k);
  });
  unroll<C>([&](auto c) __attribute__((always_inline)) {
    const F32x16 x = load_lanes(t.x[c.value] + k);
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      acc[c.value * R + r.value] = fma(w[r.value], x, acc[c.value * R + r.value]);
    });
  });
}

/// Runs N chains, from `chain` on, over n elements: acc[chain][column][row].
template <Weights kFrom, int N, class W, int R, int C>
[[gnu::always_inline]] inline void run_chains(const Tile<W, R, C>& t, int chain, int n, F32x16* acc) {
  unroll<N * R * C>([&](auto i) __attribute__((always_inline)) { acc[i.value] = zero(); });
  int k = 16 * chain;
  for (; k + 16 * N <= n; k += kStep) {
    if constexpr (kFrom == Weights::Streamed) {
      unroll<R>([&](auto r) __attribute__((always_inline)) {
        const std::byte* ahead = t.w + r.value * t.w_row_bytes + static_cast<std::size_t>(k) * sizeof(W) + t.ahead;
        prefetch(ahead);
        if constexpr (kStep * sizeof(W) > 64) prefetch(ahead + 64);
      });
    }
    unroll<N>([&](auto i) __attribute__((always_inline)) {
      add_products(
          t, k + 16 * i.value, acc + i.value * R * C,
          [](const auto* p) __attribute__((always_inline)) { return load(p); });
    });
  }
  unroll<N>([&](auto i) __attribute__((always_inline)) {
    const int rest = n - k - 16 * i.value;
    if (rest > 0) {
      add_products(
          t, k + 16 * i.value, acc + i.value * R * C, [&](const auto* p) __attribute__((always_inline)) {
            return load_first(p, rest < 16 ? rest : 16);
          });
    }
  });
}

template <int R>
[[gnu::always_inline]] inline void put_sums(const F32x16* a, float* y, Segment segment) {
  if constexpr (R == 4) {
    if (segment == Segment::First) {
      store_sums(y, a[0], a[1], a[2], a[3]);
    } else {
      add_sums(y, a[0], a[1], a[2], a[3]);
    }
  } else {
    unroll<R>([&](auto r) __attribute__((always_inline)) {
      const float s = sum(a[r.value]);
      y[r.value] = segment == Segment::First ? s : y[r.value] + s;
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
  unroll<C>([&](auto c) __attribute__((always_inline)) { put_sums<R>(sums + c.value * R, t.y[c.value], segment); });
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

inline const float* activations(const LinearArgs& a, std::int64_t col, std::int64_t k) {
  const auto row = static_cast<std::size_t>(row_of(a.act_rows, col));
  return reinterpret_cast<const float*>(a.act + row * a.layout->row_bytes) + k;
}

template <Weights kFrom, class W, int R, int C>
[[gnu::always_inline]] inline void multiply_rows(const LinearArgs& a, const Range& range, std::int64_t row) {
  Tile<W, R, C> t;
  t.w_row_bytes = a.w_row_bytes;
  t.ahead = range.ahead;
  for (std::int64_t k = range.k_begin; k < range.k_end; k += kSegment) {
    t.w = a.w + static_cast<std::size_t>(row) * a.w_row_bytes + static_cast<std::size_t>(k) * sizeof(W);
    unroll<C>([&](auto c) __attribute__((always_inline)) {
      const std::int64_t col = range.col_begin + c.value;
      t.x[c.value] = activations(a, col, k);
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

template <Weights kFrom, class W, int C = kTileCols>
void multiply_some_cols(const LinearArgs& a, const Range& range) {
  if constexpr (C > 1) {
    if (range.cols < C) return multiply_some_cols<kFrom, W, C - 1>(a, range);
  }
  // One column: row by row, since memory is fastest in the order of addresses, unless each row would fetch the column
  // from L2.
  if (C == 1 && a.k <= kColumnInL1) return multiply_cols<kFrom, W, 1, C>(a, range);
  multiply_cols<kFrom, W, kTileRows, C>(a, range);
}

std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Columns of the next tile, so that tiles differ by one column at most: 7 are 4 + 3, not 6 + 1.
std::int64_t next_cols(std::int64_t cols) {
  const std::int64_t tiles = (cols + kTileCols - 1) / kTileCols;
  return (cols + tiles - 1) / tiles;
}

template <class W>
void linear(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end) {
  if (a.n_cols <= 0) return;
  if (a.n_cols <= kTileCols)
    return multiply_some_cols<Weights::Streamed, W>(a, {row_begin, row_end, 0, a.k, 0, a.n_cols, kAhead});
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

/// f64 weights: 8 interleaved f64 sums, products rounded before they are added, on every instruction set.
double dot_f64(const std::byte* w, const float* x, std::int64_t n) {
  double acc[8] = {};
  std::int64_t k = 0;
  for (; k + 8 <= n; k += 8) {
    double v[8];
    __builtin_memcpy(v, w + static_cast<std::size_t>(k) * sizeof(double), sizeof v);
    for (int i = 0; i < 8; ++i) acc[i] += v[i] * static_cast<double>(x[k + i]);
  }
  for (; k < n; ++k) {
    double v;
    __builtin_memcpy(&v, w + static_cast<std::size_t>(k) * sizeof(double), sizeof v);
    acc[k % 8] += v * static_cast<double>(x[k]);
  }
  return ((acc[0] + acc[4]) + (acc[2] + acc[6])) + ((acc[1] + acc[5]) + (acc[3] + acc[7]));
}

}  // namespace

void linear_f32(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  linear<float>(a, row_begin, row_end);
}
void linear_f16(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  linear<Half>(a, row_begin, row_end);
}
void linear_bf16(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  linear<BFloat16>(a, row_begin, row_end);
}

void linear_f64(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::byte* w = a.w + static_cast<std::size_t>(row) * a.w_row_bytes;
    for (std::int64_t c = 0; c < a.n_cols; ++c) {
      a.y[row_of(a.out_rows, c) * a.ldy + row] = static_cast<float>(dot_f64(w, activations(a, c, 0), a.k));
    }
  }
}

}  // namespace llm::cpu::LLM_ISA
