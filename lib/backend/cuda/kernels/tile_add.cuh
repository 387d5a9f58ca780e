// The products of one piece with a lane's columns, for whichever kernel has them at hand, and how a sum over k is
// split: the bits of a result come from here alone.
//
// take(piece) gives the weights; the first columns are asked for before, so that these need not wait for weights that
// are still on their way. Columns, the columns' side of a piece, tells how many steps it loads together (kAhead) and
// has
//   begin()                Q8x256: the first call for a piece
//   codes(first, b)        B operands of the steps step_of(first) .. step_of(first + kAhead - 1)
//   step_scales(first, d)  Q8x32: scales of columns 2t and 2t + 1 of those steps
//   scale(nb, c)           Q8x256: the block's scale of column 2t + c
//   sums32(nb)             word t of column g's low32, high32
//   low16(nb), high16(nb)  word t of column g's
#pragma once

#include "backend/cuda/kernels/tile_mma.cuh"
#include "backend/cuda/kernels/tiles.cuh"

namespace llm::cuda {

inline constexpr int kParts = 16;  ///< of k: piece p belongs to part p % 16
inline constexpr int kSlots = 8;   ///< sums that the parts are brought together in: parts s and s + 8 first

/// Step number i of a piece in the order in which they are computed: large units last, so that a sum moves on to them
/// by a shift.
template <class T>
__device__ __forceinline__ constexpr int step_of(int i) {
  constexpr int kPasses = T::kFormat == ActFormat::Q8x256 ? T::Codes::kPasses : 1, kPerPass = T::kSteps / kPasses;
  return i % kPerPass * kPasses + (kPasses - 1 - i / kPerPass);
}

template <class T>
__device__ __forceinline__ void step_bytes(const T& piece, int step, std::uint32_t (&a)[4]) {
#pragma unroll
  for (int r = 0; r < 4; ++r) a[r] = piece.codes.bytes(step, r);
}

/// Adds the pieces of M strips to acc where a block of 256 has one scale on either side.
template <class T, class Take, class Columns, int M, int NB>
__device__ __forceinline__ void add_pieces_256(const Take& take, Columns& x, int lane, float (&acc)[M][NB][4]) {
  using Codes = typename T::Codes;
  using Scales = typename T::Scales;
  constexpr int kAhead = Columns::kAhead;
  const int zero[4] = {0, 0, 0, 0};
  T piece[M];
  int sum[M][NB][4];
  x.begin();
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int nb = 0; nb < NB; ++nb)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][nb][i] = 0;

#pragma unroll
  for (int first = 0; first < kSteps; first += kAhead) {
    uint2 b[kAhead][NB];
    x.codes(first, b);
    if (first == 0) take(piece);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = step_of<T>(first + i);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        if (Codes::kPasses > 1 && first + i > 0 && (first + i) % (kSteps / Codes::kPasses) == 0) {
#pragma unroll
          for (int nb = 0; nb < NB; ++nb)
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[m][nb][j] >>= Codes::kPassShift;  // exact: all terms are multiples
        }
        std::uint32_t a[4];
        step_bytes(piece[m], step, a);
        const Scales& scales = piece[m].scales;
        if constexpr (Scales::kScaleK == 16) {
          const int scale[2][2] = {{scales.scale(0, 2 * step), scales.scale(1, 2 * step)},
                                   {scales.scale(0, 2 * step + 1), scales.scale(1, 2 * step + 1)}};
#pragma unroll
          for (int nb = 0; nb < NB; ++nb) {
            int first_half[4], second_half[4];
            mma16<Codes::kSigned>(first_half, a[0], a[1], b[i][nb].x, zero);
            mma16<Codes::kSigned>(second_half, a[2], a[3], b[i][nb].y, zero);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              sum[m][nb][j] += first_half[j] * scale[0][j / 2];
              sum[m][nb][j] += second_half[j] * scale[1][j / 2];
            }
          }
        } else if constexpr (Scales::kScaleK == 32) {
          const int scale[2] = {scales.scale(0, step), scales.scale(1, step)};
#pragma unroll
          for (int nb = 0; nb < NB; ++nb) {
            int product[4];
            mma32<Codes::kSigned>(product, a, b[i][nb], zero);
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[m][nb][j] += product[j] * scale[j / 2];
          }
        } else {
#pragma unroll
          for (int nb = 0; nb < NB; ++nb) mma32<Codes::kSigned>(sum[m][nb], a, b[i][nb], sum[m][nb]);
        }
      }
    }
  }

#pragma unroll
  for (int nb = 0; nb < NB; ++nb) {
    const float d_act[2] = {x.scale(nb, 0), x.scale(nb, 1)};
#pragma unroll
    for (int m = 0; m < M; ++m) {
      const Scales& scales = piece[m].scales;
      const float d[2] = {scales.d(0), scales.d(1)};
      if constexpr (Scales::kMinimumK > 0) {
        // sums are low + 128 high: the minimums times the high parts, times 128, plus the minimums times the low parts
        const std::uint32_t m0 = scales.minimum_word(0), m1 = scales.minimum_word(1);
        int msum[4];
        if constexpr (Scales::kMinimumK == 32) {
          // 8 of each: lanes t < 2 hold the low parts, the others the high ones
          const std::uint32_t parts = x.sums32(nb);
          const bool is_high = lane % 4 >= 2;
          mma16<true>(msum, is_high ? m0 : 0, is_high ? m1 : 0, parts, zero);
#pragma unroll
          for (int j = 0; j < 4; ++j) msum[j] <<= 7;
          mma16<true>(msum, is_high ? 0 : m0, is_high ? 0 : m1, parts, msum);
        } else {
          const std::uint32_t low = x.low16(nb);
          const std::uint32_t high = x.high16(nb);
          mma16<true>(msum, m0, m1, high, zero);
#pragma unroll
          for (int j = 0; j < 4; ++j) msum[j] <<= 7;
          mma16<true>(msum, m0, m1, low, msum);
        }
        const float dmin[2] = {scales.dmin(0), scales.dmin(1)};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float y = d[j / 2] * static_cast<float>(sum[m][nb][j]);
          y = fmaf(-dmin[j / 2], static_cast<float>(msum[j]), y);
          acc[m][nb][j] = fmaf(d_act[j % 2], y, acc[m][nb][j]);
        }
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          acc[m][nb][j] = fmaf(d_act[j % 2], d[j / 2] * static_cast<float>(sum[m][nb][j]), acc[m][nb][j]);
      }
    }
  }
}

/// Sums of 32 products start at this number, the bits of 1.5 * 2^23 as a float: as such a float, a sum below 2^22 is
/// that plus the sum, which a subtraction makes the sum's float. Twice as fast as a conversion.
inline constexpr int kShift = 0x4b400000;
__device__ __forceinline__ float shifted_to_float(int sum) {
  return bits_to_float(static_cast<std::uint32_t>(sum)) - 12582912.0f;
}

/// Adds the pieces of M strips to acc where every 32 or 16 have a scale and every 32 an activation scale.
template <class T, class Take, class Columns, int M, int NB>
__device__ __forceinline__ void add_pieces_32(const Take& take, Columns& x, float (&acc)[M][NB][4]) {
  using Codes = typename T::Codes;
  using Scales = typename T::Scales;
  constexpr int kAhead = Columns::kAhead;
  const int shift[4] = {kShift, kShift, kShift, kShift};
  T piece[M];

#pragma unroll
  for (int first = 0; first < T::kSteps; first += kAhead) {
    uint2 b[kAhead][NB];
    float d_act[kAhead][NB][2];
    x.codes(first, b);
    x.step_scales(first, d_act);
    if (first == 0) take(piece);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = first + i;
#pragma unroll
      for (int m = 0; m < M; ++m) {
        std::uint32_t a[4];
        step_bytes(piece[m], step, a);
        const Scales& scales = piece[m].scales;
        if constexpr (Scales::kScaleK == 16) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float d[2] = {scales.d(0, 2 * step + h), scales.d(1, 2 * step + h)};
#pragma unroll
            for (int nb = 0; nb < NB; ++nb) {
              int product[4];
              mma16<Codes::kSigned>(product, a[2 * h], a[2 * h + 1], h == 0 ? b[i][nb].x : b[i][nb].y, shift);
#pragma unroll
              for (int j = 0; j < 4; ++j)
                acc[m][nb][j] = fmaf(d_act[i][nb][j % 2], d[j / 2] * shifted_to_float(product[j]), acc[m][nb][j]);
            }
          }
        } else {
          float d[2] = {scales.d(0, step), scales.d(1, step)};
          if constexpr (Codes::kPasses > 1) {
            const float unit = 1.0f / static_cast<float>(1 << Codes::kPassShift * (step % Codes::kPasses));
            d[0] *= unit, d[1] *= unit;  // exact
          }
#pragma unroll
          for (int nb = 0; nb < NB; ++nb) {
            int product[4];
            mma32<Codes::kSigned>(product, a, b[i][nb], shift);
            float y[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) y[j] = d[j / 2] * shifted_to_float(product[j]);
            if constexpr (Scales::kOffset) {
              const std::uint32_t ones[4] = {0x01010101, 0x01010101, 0x01010101, 0x01010101};
              int codes[4];  // sums of the columns' codes, the same in every row
              mma32<true>(codes, ones, b[i][nb], shift);
              const float asum[2] = {shifted_to_float(codes[0]), shifted_to_float(codes[1])};
#pragma unroll
              for (int j = 0; j < 4; ++j) y[j] = fmaf(scales.m(j / 2, step), asum[j % 2], y[j]);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) acc[m][nb][j] = fmaf(d_act[i][nb][j % 2], y[j], acc[m][nb][j]);
          }
        }
      }
    }
  }
}

/// Adds a piece of type T of each of M strips, which share the columns' side: take(pieces) gives all of them.
template <class T, class Take, class Columns, int M, int NB>
__device__ __forceinline__ void add_pieces(const Take& take, Columns& x, int lane, float (&acc)[M][NB][4]) {
  if constexpr (T::kFormat == ActFormat::Q8x256)
    add_pieces_256<T>(take, x, lane, acc);
  else
    add_pieces_32<T>(take, x, acc);
}

/// Adds one piece of type T.
template <class T, class Take, class Columns, int NB>
__device__ __forceinline__ void add_piece(const Take& take, Columns& x, int lane, float (&acc)[NB][4]) {
  const auto take_one = [&](T(&piece)[1]) { take(piece[0]); };
  add_pieces<T>(take_one, x, lane, reinterpret_cast<float(&)[1][NB][4]>(acc));
}

}  // namespace llm::cuda
