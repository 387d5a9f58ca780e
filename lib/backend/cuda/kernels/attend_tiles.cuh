// Products of the heads with tiles of 16 rows of the cache by tensor cores, as exact as f32: attend_halves.cuh says
// how. A product has 16 keys, or 16 dimensions of the values, as rows; its columns are 4 heads with 2 parts each. Which
// row of a product a key or a dimension is, each type chooses as its bytes lie best.
//
// What the tiles of a type provide, for lane = 4 g + t of a warp:
//   key(lane, i)           key of a strip of two tiles whose score the lane has, for heads t (+ 4): i of 4
//   dimension(lane, m, i)  element of the sums [m][i] of the lane, of heads t (+ 4)
//   query_word(lane, step, i)  which pair of neighbouring elements of a query the lane multiplies
//   kOne                   what an element of 1 is in the products, a power of 2
//   dots()                 scores of a tile's keys
//   Weights                of a strip, as operands; add() multiplies its two tiles of values with them
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_results.cuh"
#include "backend/cuda/kernels/attention_asm.cuh"

namespace llm::cuda {
namespace {

template <bool kBFloat16>
__device__ __forceinline__ float narrowed(float x) {
  if constexpr (kBFloat16) {
    return __bfloat162float(__float2bfloat16_rn(x));
  } else {
    return __half2float(__float2half_rn(x));
  }
}

/// x as a sum of numbers of 16 bits: two neighbours, and a third (with a zero) only where it is needed.
template <bool kBFloat16>
struct Parts {
  static constexpr int kCount = kBFloat16 ? 3 : 2;
  std::uint32_t two, third;
  __device__ __forceinline__ explicit Parts(float x) {
    const float rest = x - narrowed<kBFloat16>(x);
    two = pack<kBFloat16>(x, rest);
    third = kBFloat16 ? pack<kBFloat16>(rest - narrowed<kBFloat16>(rest), 0.0f) : 0u;
  }
};

constexpr float kOneWeight = 0x1p15f;
/// Exponent of the power of 2 that brings a query, by the biased exponent of its largest element, to where its parts
/// lose nothing: F16 to 2^14, within what f32 allows; BF16, whose range is that of f32, away from its smallest numbers.
template <bool kBFloat16>
__device__ __forceinline__ int query_power(int biased) {
  if constexpr (kBFloat16) {
    return biased < 127 - 60 ? 60 : 0;
  } else {
    return min(14 + 127 - biased, 126);
  }
}

constexpr int kHalves = kStripKeys / kTileKeys;  ///< tiles of a strip
static_assert(kHalves == 2 && kWarps * kStripKeys == kChunkKeys && kCacheBlock % kStripKeys == 0);

/// What all types have in common. A head's query or weight is a column for each of its first two parts; third parts are
/// multiplied in a layer of their own.
template <bool kBFloat16, int kDims, int kHeads>
struct TileShape {
  static constexpr int kColumns = kHeads / 4;  ///< groups of 8 columns
  static constexpr int kSteps = kDims / 16;    ///< products along a head's elements
  static constexpr int kLayers = kBFloat16 ? 2 : 1;
  using Queries = std::uint32_t[kLayers][kColumns][kSteps][2];
  using Scores = float[kColumns][2 * kHalves];
  using Sums = float[kColumns][kSteps][2];
  static_assert(kDims % 64 == 0 && kHeads % 4 == 0);

  /// Scores of two chains of products: the chains and the parts of each query together.
  static __device__ __forceinline__ void join(const float (&sum)[kColumns][2][4], float (&dots)[kColumns][2]) {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const auto& x = sum[n][0];
      const auto& y = sum[n][1];
      dots[n][0] = (x[0] + y[0]) + (x[1] + y[1]);
      dots[n][1] = (x[2] + y[2]) + (x[3] + y[3]);
    }
  }
};

/// Starts the copy of 16 rows of elements. Those outside [first, end) are not seen and become zeros: what lies there
/// may not be a number.
template <class Tiles>
__device__ __forceinline__ void copy_elements(unsigned char* to, const unsigned char* from, int lane, int first,
                                              int end) {
#pragma unroll
  for (int i = 0; i < kTileKeys * Tiles::kUnits / 32; ++i) {
    const int r = (i * 32 + lane) / Tiles::kUnits, u = (i * 32 + lane) % Tiles::kUnits;
    copy16_or_zero_async(to + Tiles::unit_at(r, u), from + lane * 16 + i * 512, r >= first && r < end);
  }
}

/// Rows of F16 or BF16 numbers. Units of 16 bytes of neighbouring rows lie in different banks.
template <bool kBFloat16, int kDims, int kHeads>
struct PlainTiles : TileShape<kBFloat16, kDims, kHeads> {
  using Shape = TileShape<kBFloat16, kDims, kHeads>;
  using Shape::kColumns, Shape::kLayers, Shape::kSteps;
  static constexpr int kRowBytes = 2 * kDims, kTileBytes = kTileKeys * kRowBytes, kUnits = kDims / 8;
  static constexpr float kOne = 1;

  static __device__ __forceinline__ int key(int lane, int i) { return lane / 4 + 8 * i; }
  static __device__ __forceinline__ int dimension(int lane, int m, int i) { return m * 16 + lane / 4 + 8 * i; }
  static __device__ __forceinline__ int query_word(int lane, int step, int i) { return step * 8 + lane % 4 + i * 4; }
  static __device__ __forceinline__ int unit_at(int r, int u) { return r * kRowBytes + (u ^ (r & 7)) * 16; }

  static __device__ __forceinline__ void copy(unsigned char* to, const unsigned char* from, int lane, int first,
                                              int end) {
    copy_elements<PlainTiles>(to, from, lane, first, end);
  }

  static __device__ __forceinline__ void dots(const unsigned char* tile, int lane, const typename Shape::Queries& q,
                                              float (&dots)[kColumns][2]) {
    float sum[kColumns][2][4] = {};
    const std::uint32_t at = shared_address(tile);
    const int row = lane % 16, unit = lane / 16;  // lanes 8 .. 15 have rows 8 .. 15, the upper half elements 8 .. 15
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t k[4];
      load_matrices(k, at + static_cast<std::uint32_t>(unit_at(row, 2 * step + unit)));
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int layer = 0; layer < kLayers; ++layer) {
          multiply_add<kBFloat16>(sum[n][step % 2], k, q[layer][n][step][0], q[layer][n][step][1]);
        }
      }
    }
    Shape::join(sum, dots);
  }

  struct Weights {
    std::uint32_t parts[kLayers][kColumns][kHalves][2];
    __device__ __forceinline__ explicit Weights(const typename Shape::Scores& w) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 2 * kHalves; ++i) {
          const Parts<kBFloat16> x(w[n][i]);
          parts[0][n][i / 2][i % 2] = transposed(x.two);
          if constexpr (kBFloat16) parts[1][n][i / 2][i % 2] = transposed(x.third);
        }
      }
    }
  };

  /// sums = sums * rescale + values * weights. Rows of a product are dimensions: the lower half of the lanes has keys
  /// 0 .. 7 of a tile, every other 8 lanes dimensions 8 .. 15.
  static __device__ __forceinline__ void add(unsigned char* const (&tile)[kHalves], int lane, int, int,
                                             const Weights& weights, const float (&rescale)[kColumns],
                                             typename Shape::Sums& sums) {
    const std::uint32_t at[kHalves] = {shared_address(tile[0]), shared_address(tile[1])};
    const int row = lane % 8 + lane / 16 * 8, unit = lane / 8 % 2;
#pragma unroll
    for (int m = 0; m < kSteps; ++m) {
      float sum[kColumns][4] = {};
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        std::uint32_t v[4];
        load_matrices_transposed(v, at[half] + static_cast<std::uint32_t>(unit_at(row, 2 * m + unit)));
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int layer = 0; layer < kLayers; ++layer) {
            multiply_add<kBFloat16>(sum[n], v, weights.parts[layer][n][half][0], weights.parts[layer][n][half][1]);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        sums[n][m][0] = fmaf(sums[n][m][0], rescale[n], sum[n][0] + sum[n][1]);
        sums[n][m][1] = fmaf(sums[n][m][1], rescale[n], sum[n][2] + sum[n][3]);
      }
    }
  }
};

/// Rows of E4M3. They are exact in F16, in units of kOneF8 (float8.cuh): operands are made of them in registers. A lane
/// reads units of 16 bytes of two keys, and halves of units, 8 dimensions, of four keys of the values, neighbours in
/// pairs. Units lie so that those of a row and the next (keys) are in different banks, and so are those of every other
/// row of eight (values), for any width of heads.
template <int kDims, int kHeads>
struct Float8Tiles : TileShape<false, kDims, kHeads> {
  using Shape = TileShape<false, kDims, kHeads>;
  using Shape::kColumns;
  using Weights = typename PlainTiles<false, kDims, kHeads>::Weights;
  static constexpr int kRowBytes = kDims, kTileBytes = kTileKeys * kRowBytes, kUnits = kDims / 16;
  static constexpr int kParts = kDims / 64;  ///< of a row
  static constexpr float kOne = kOneF8;

  static __device__ __forceinline__ int key(int lane, int i) { return lane / 4 + 8 * i; }
  static __device__ __forceinline__ int dimension(int lane, int m, int i) {
    return m / 4 * 64 + lane / 4 * 8 + m % 4 * 2 + i;
  }
  static __device__ __forceinline__ int query_word(int lane, int step, int i) {
    return step / 4 * 32 + lane % 4 * 8 + step % 4 * 2 + i;
  }
  static __device__ __forceinline__ int unit_at(int r, int u) {
    return r * kRowBytes / 128 * 128 + (u ^ ((r ^ r << 2) & 6)) * 16;
  }

  static __device__ __forceinline__ void copy(unsigned char* to, const unsigned char* from, int lane, int first,
                                              int end) {
    copy_elements<Float8Tiles>(to, from, lane, first, end);
  }

  static __device__ __forceinline__ void dots(const unsigned char* tile, int lane, const typename Shape::Queries& q,
                                              float (&dots)[kColumns][2]) {
    float sum[kColumns][2][4] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      std::uint32_t words[2][4];  // of two keys
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 unit = *reinterpret_cast<const uint4*>(tile + unit_at(lane / 4 + 8 * i, 4 * part + lane % 4));
        words[i][0] = unit.x, words[i][1] = unit.y, words[i][2] = unit.z, words[i][3] = unit.w;
      }
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const std::uint32_t k[4] = {f8_neighbours(words[0][w], 0), f8_neighbours(words[1][w], 0),
                                    f8_neighbours(words[0][w], 2), f8_neighbours(words[1][w], 2)};
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
          multiply_add<false>(sum[n][w % 2], k, q[0][n][4 * part + w][0], q[0][n][4 * part + w][1]);
      }
    }
    Shape::join(sum, dots);
  }

  /// sums = sums * rescale + values * weights.
  static __device__ __forceinline__ void add(unsigned char* const (&tile)[kHalves], int lane, int, int,
                                             const Weights& weights, const float (&rescale)[kColumns],
                                             typename Shape::Sums& sums) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      std::uint32_t v[kHalves][4][2];  // of each tile four keys' 8 elements
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = unit_at(lane % 4 * 2 + i % 2 + i / 2 * 8, 4 * part + lane / 8) + lane / 4 % 2 * 8;
          const uint2 eight = *reinterpret_cast<const uint2*>(tile[half] + at);
          v[half][i][0] = eight.x, v[half][i][1] = eight.y;
        }
      }
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int w = m / 2, e = m % 2 * 2;
        float sum[kColumns][4] = {};
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const auto& x = v[half];
          const std::uint32_t a[4] = {f8_twins(x[0][w], x[1][w], e), f8_twins(x[0][w], x[1][w], e + 1),
                                      f8_twins(x[2][w], x[3][w], e), f8_twins(x[2][w], x[3][w], e + 1)};
#pragma unroll
          for (int n = 0; n < kColumns; ++n)
            multiply_add<false>(sum[n], a, weights.parts[0][n][half][0], weights.parts[0][n][half][1]);
        }
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          float(&to)[2] = sums[n][4 * part + m];
          to[0] = fmaf(to[0], rescale[n], sum[n][0] + sum[n][1]);
          to[1] = fmaf(to[1], rescale[n], sum[n][2] + sum[n][3]);
        }
      }
    }
  }
};

/// Rows of Q8_0. Quants are exact in F16: operands are made of them in registers. Two blocks of a row are 17 words:
///   0: first scale, quants 0 and 1;  1 .. 7: quants 2 .. 29;  8: quants 30 and 31, second scale;  9 .. 16: quants
/// A lane reads whole words of the quants: those of the first block begin at its third quant, and the last of them gets
/// quants 0 and 1 from word 0. Keys 4 j and 4 j + 1 are rows 2 j and 2 j + 1 of a product, 4 j + 2 and 4 j + 3 8 rows
/// further, so that words which are read together lie in different banks.
template <int kDims, int kHeads>
struct QuantizedTiles : TileShape<false, kDims, kHeads> {
  using Shape = TileShape<false, kDims, kHeads>;
  using Shape::kColumns, Shape::kSteps;
  static constexpr int kBlocks = kDims / 32, kRowBytes = kBlocks * 34, kTileBytes = kTileKeys * kRowBytes;
  static constexpr int kRowWords = kRowBytes / 4;
  static constexpr float kOne = 1;

  static __device__ __forceinline__ int row(int lane) { return lane / 8 * 4 + lane / 4 % 2; }
  static __device__ __forceinline__ int key(int lane, int i) { return i / 2 * kTileKeys + row(lane) + i % 2 * 2; }
  /// Quant 0 of a block is a third of a word before its first whole word, or begins it.
  static constexpr __device__ int first_quant(int block) { return block % 2 == 0 ? 2 : 0; }
  static __device__ __forceinline__ int dimension(int lane, int m, int i) {
    return m / 2 * 32 + (lane / 4 * 4 + m % 2 * 2 + i + first_quant(m / 2)) % 32;
  }
  /// First of a lane's two words of a block in the products with keys; the other is 2 further.
  static __device__ __forceinline__ int key_word(int lane) { return lane % 4 + (lane & 2); }
  static __device__ __forceinline__ int query_word(int lane, int step, int i) {
    const int word = key_word(lane) + step % 2 * 2;
    return (step / 2 * 32 + (word * 4 + i * 2 + first_quant(step / 2)) % 32) / 2;
  }

  static __device__ __forceinline__ void copy(unsigned char* to, const unsigned char* from, int lane, int, int) {
#pragma unroll
    for (int at = 0; at < kTileBytes; at += 512) {
      if (at + 512 <= kTileBytes || at + lane * 16 < kTileBytes)
        copy16_async(to + at + lane * 16, from + at + lane * 16);
    }
  }

  static __device__ __forceinline__ const std::uint32_t* row_words(const unsigned char* tile, int r) {
    return reinterpret_cast<const std::uint32_t*>(tile) + r * kRowWords;
  }
  /// Bytes 2 i and 2 i + 1 of four quants + 128 as F16: 0x6400 + n is 1024 + n.
  static __device__ __forceinline__ std::uint32_t widened(std::uint32_t quants, int i) {
    return subtract_halves(__byte_perm(quants, 0x64646464u, i == 0 ? 0x4140u : 0x4342u), 0x64806480u);
  }
  static constexpr std::uint32_t kBias = 0x80808080u;

  static __device__ __forceinline__ void dots(const unsigned char* tile, int lane, const typename Shape::Queries& q,
                                              float (&dots)[kColumns][2]) {
    const std::uint32_t* const rows[2] = {row_words(tile, row(lane)), row_words(tile, row(lane) + 2)};
    const int word = key_word(lane);
    const std::uint32_t last = lane % 4 == 3 ? 0x7610u : 0x3210u;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) dots[n][0] = dots[n][1] = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int base = block / 2 * 17;
      std::uint32_t k[2][2], scale[2];  // [row][step]
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::uint32_t* const w = rows[r] + base;
        if (block % 2 == 0) {
          k[r][0] = w[1 + word] ^ kBias;
          k[r][1] = __byte_perm(w[3 + word], w[0], last) ^ kBias;
          scale[r] = w[0] & 0xffffu;
        } else {
          k[r][0] = w[9 + word] ^ kBias;
          k[r][1] = w[11 + word] ^ kBias;
          scale[r] = w[8] >> 16;
        }
      }
      float sum[kColumns][4] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t x[4] = {widened(k[0][i], 0), widened(k[1][i], 0), widened(k[0][i], 1), widened(k[1][i], 1)};
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          multiply_add<false>(sum[n], x, q[0][n][2 * block + i][0], q[0][n][2 * block + i][1]);
        }
      }
      const float d0 = half_to_float(scale[0]), d1 = half_to_float(scale[1]);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        dots[n][0] = fmaf(d0, sum[n][0] + sum[n][1], dots[n][0]);
        dots[n][1] = fmaf(d1, sum[n][2] + sum[n][3], dots[n][1]);
      }
    }
  }

  /// To be multiplied with the scales of each block of the values.
  struct Weights {
    float whole[kColumns][2 * kHalves];
    __device__ __forceinline__ explicit Weights(const typename Shape::Scores& w) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 2 * kHalves; ++i) whole[n][i] = w[n][i];
      }
    }
  };

  /// sums = sums * rescale + values * weights, of the keys [first, end) of the strip. Lane 4 g + t has word g of a
  /// block of keys 4 t .. 4 t + 3.
  static __device__ __forceinline__ void add(unsigned char* const (&tile)[kHalves], int lane, int first, int end,
                                             const Weights& weights, const float (&rescale)[kColumns],
                                             typename Shape::Sums& sums) {
    // A power of 2 brings the scales below 1, weights being up to 2^15: the second part of what matters is then a
    // normal number. One for the strip: blocks with smaller scales have what error there is in proportion to the
    // largest.
    std::uint32_t d[kBlocks][2 * kHalves];
    int most = 0;
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const bool seen = key(lane, i) >= first && key(lane, i) < end;
      const unsigned char* const from = tile[i / 2] + (row(lane) + i % 2 * 2) * kRowBytes;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        d[block][i] = seen ? bytes2(from + block * 34) : 0u;
        const int size = static_cast<int>(d[block][i] & 0x7fffu);
        if (size < 0x7c00) most = max(most, size);  // what is not finite needs no care
      }
    }
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) most = max(most, __shfl_xor_sync(kAll, most, offset));
    const int power = 14 - (most >> 10);
    const float up = __int_as_float((127 + power) << 23), down = __int_as_float((127 - power) << 23);
    const std::uint32_t last = lane / 4 == 7 ? 0x7610u : 0x3210u;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      std::uint32_t parts[kColumns][kHalves][2];
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        const float scale = half_to_float(d[block][i]) * up;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          parts[n][i / 2][i % 2] = transposed(Parts<false>(weights.whole[n][i] * scale).two);
        }
      }
      float sum[2][kColumns][4] = {};
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        std::uint32_t v[2][4];  // [pair of keys][dimension]
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          std::uint32_t x[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const std::uint32_t* const w = row_words(tile[half], lane % 4 * 4 + 2 * pair + i) + block / 2 * 17;
            x[i] = (block % 2 == 0 ? __byte_perm(w[1 + lane / 4], w[0], last) : w[9 + lane / 4]) ^ kBias;
          }
          const std::uint32_t low = __byte_perm(x[0], x[1], 0x5140u), high = __byte_perm(x[0], x[1], 0x7362u);
          v[pair][0] = widened(low, 0), v[pair][1] = widened(low, 1);
          v[pair][2] = widened(high, 0), v[pair][3] = widened(high, 1);
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const std::uint32_t x[4] = {v[0][2 * m], v[0][2 * m + 1], v[1][2 * m], v[1][2 * m + 1]};
#pragma unroll
          for (int n = 0; n < kColumns; ++n) multiply_add<false>(sum[m][n], x, parts[n][half][0], parts[n][half][1]);
        }
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          float(&to)[2] = sums[n][2 * block + m];
          to[0] = fmaf(to[0], rescale[n], (sum[m][n][0] + sum[m][n][1]) * down);
          to[1] = fmaf(to[1], rescale[n], (sum[m][n][2] + sum[m][n][3]) * down);
        }
      }
    }
  }
};

}  // namespace
}  // namespace llm::cuda
