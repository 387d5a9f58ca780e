// Weights that lie as tiles, decoded into the A operand of the tensor cores' products: what a lane has of a tile
// (tile_codes.cuh) is its part of the operand.
//   F16   of m16n8k16, and of a warp of wgmma's m64, if the 16 of k are taken in another order, which the B operand has
//         to follow: slots 2t, 2t + 1, 2t + 8, 2t + 9 of k are elements 4t .. 4t + 3                   (t = lane % 4)
//   E4M3  of a warp of wgmma's m64n*k32, in the order of k
#pragma once

#include "backend/cuda/kernels/float8.cuh"
#include "backend/cuda/kernels/tiles.cuh"

namespace llm::cuda {

inline constexpr int kChunkK = 64;  ///< elements that are decoded together
/// Of a piece.
template <class T>
inline constexpr int kPieceChunks = T::kPieceK / kChunkK;

constexpr int log2_of_inverse(float power) { return power < 1 ? 1 + log2_of_inverse(2 * power) : 0; }

/// Weights as F16.
struct HalfWeights {
  static constexpr int kLineK = 64;      ///< elements of the B operand in 128 bytes
  static constexpr int kProductK = 16;   ///< elements of a row in one product
  static constexpr bool kByRow = false;  ///< no factors of rows
  LLM_HOST_DEVICE float scaled(float d, int) const { return d; }
};

/// Weights as E4M3, each row divided by a factor of its own.
struct Float8Weights {
  static constexpr int kLineK = 128, kProductK = 32;
  static constexpr bool kByRow = true;
  /// Sums on tensor cores keep some 14 bits: what is added to one is cut off at 2^-13 of it. So no more of k is added
  /// there: 64 products, which cost 0.6 % of a sum of random terms, where rounding both operands costs 4 %.
  static constexpr int kSumK = 2048;
  float inverse[2] = {};  ///< of the factors of a lane's two rows
  /// A scale or an offset of codes. What is not finite becomes NaN: its difference from itself is.
  LLM_HOST_DEVICE float scaled(float d, int half) const { return fmaf(d, inverse[half], d - d); }
};

/// Whether bytes are entries of a table, which kUnit scales, and not multiples of 1 / kUnit.
template <class Codes>
inline constexpr bool kFromTable = false;
template <class Table>
inline constexpr bool kFromTable<CodesTable<Table>> = true;
template <class Table>
inline constexpr bool kFromTable<CodesTable8<Table>> = true;

/// Codes of up to 7 bits, which one permutation turns into floats: as the byte that counts ones in a float of 128 and
/// more. The float is code + kBias.
template <class Codes>
struct SmallCodes {
  static constexpr float kMagnitude = Codes::kUnit < 0 ? -Codes::kUnit : Codes::kUnit;
  static constexpr int kUnitShift = log2_of_inverse(kMagnitude);
  static constexpr bool kExist = !kFromTable<Codes> && (!Codes::kSigned || kUnitShift > 0);
  static constexpr float kBias = 128 + (Codes::kSigned ? 128 * kMagnitude : 0);

  /// Of register r of a step; the code's sign is that of kUnit turned.
  static __device__ __forceinline__ void floats(const Codes& codes, int step, int r, float (&y)[4]) {
    std::uint32_t bytes = codes.bytes(step, r);
    if constexpr (Codes::kSigned)
      bytes = (bytes ^ 0x80808080u) >> kUnitShift;
    else
      bytes >>= Codes::kPassShift * (step % Codes::kPasses);  // what is shifted out is zero
#pragma unroll
    for (int b = 0; b < 4; ++b)
      y[b] = bits_to_float(permute_bytes(bytes, 0x43000000u, 0x7044u + (static_cast<unsigned>(b) << 8)));
  }
};

/// Whether something is added to the product of code and scale: minimums, or offsets.
template <class T>
inline constexpr bool kHasOffsets = [] {
  if constexpr (T::kFormat == ActFormat::Q8x256)
    return T::Scales::kMinimumK > 0;
  else
    return T::Scales::kOffset;
}();

/// What 16 or 32 codes of a row stand for: scale * number + offset, where the number is what TileChunk::numbers()
/// gives.
struct CodeValues {
  float scale, offset;
};
template <class T, class Weights>
__device__ __forceinline__ CodeValues code_values(const T& piece, const std::byte* scales, const Weights& weights,
                                                  int lane, int half, int step, int sub) {
  using Small = SmallCodes<typename T::Codes>;
  const float unit = !Small::kExist ? T::Codes::kUnit : T::Codes::kUnit < 0 ? -1.0f : 1.0f;
  CodeValues values{0, 0};
  if constexpr (T::kFormat == ActFormat::Q8x256) {
    values.scale =
        unit * weights.scaled(piece.scales.d(half), half) * static_cast<float>(piece.scales.scale(half, sub));
    if constexpr (T::Scales::kMinimumK > 0)
      values.offset = -weights.scaled(piece.scales.dmin(half), half) *
                      static_cast<float>(T::Scales::minimum(scales, lane / 4, half, sub));
  } else {
    values.scale = unit * weights.scaled(piece.scales.d(half, sub), half);
    if constexpr (T::Scales::kOffset) values.offset = weights.scaled(piece.scales.m(half, step), half);
  }
  if constexpr (Small::kExist) values.offset = fmaf(-values.scale, Small::kBias, values.offset);
  return values;
}

/// A chunk of a strip's piece: what a lane needs of it for its part of the operands.
template <class T, int kChunk, class Weights = HalfWeights>
class TileChunk {
 public:
  /// Codes and scales lie at `stage` in shared memory.
  __device__ __forceinline__ void load(const std::byte* stage, int lane, const Weights& weights = {}) {
    piece_.template load<FromMemory>(stage, stage + T::Codes::kBytes, lane);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = kChunk * kParts + part;
        values_[part][half] = code_values(piece_, stage + T::Codes::kBytes, weights, lane, half, at / kStepParts, at);
      }
  }
  /// The A operand of elements Weights::kProductK * j on; what is rounded before the operand's own rounding is off by
  /// 2^-16 of the scale at most.
  __device__ __forceinline__ void operand(int j, std::uint32_t (&a)[4]) const {
    float y[4];
    if constexpr (Weights::kProductK == 16) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        four(j / 2, 2 * (j % 2) + half, y);
        a[half] = pack_halves(y[0], y[1]);
        a[2 + half] = pack_halves(y[2], y[3]);
      }
    } else {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        four(j, r, y);
        a[r] = f8_pair(make_float2(y[0], y[1])) | f8_pair(make_float2(y[2], y[3])) << 16;
      }
    }
  }

 private:
  using Small = SmallCodes<typename T::Codes>;
  static constexpr int kStepParts = T::Scales::kScaleK == 16 ? 2 : 1;  ///< with scales of their own
  static constexpr int kParts = kStepParts * kChunkK / kStepK;
  static constexpr bool kOffset = Small::kExist;

  /// The values of register r of a step of the chunk: of k from 16 (r / 2) on, of row r % 2 of the lane's two.
  __device__ __forceinline__ void four(int step, int r, float (&y)[4]) const {
    numbers(kChunk * (kChunkK / kStepK) + step, r, y);
    const CodeValues& values = values_[kStepParts == 2 ? 2 * step + r / 2 : step][r % 2];
#pragma unroll
    for (int b = 0; b < 4; ++b) y[b] = kOffset ? fmaf(values.scale, y[b], values.offset) : values.scale * y[b];
  }
  __device__ __forceinline__ void numbers(int step, int r, float (&y)[4]) const {
    if constexpr (Small::kExist) {
      Small::floats(piece_.codes, step, r, y);
    } else {
      static_assert(T::Codes::kSigned && T::Codes::kPasses == 1 && !kHasOffsets<T>, "offsets are added to small codes");
      const std::uint32_t bytes = piece_.codes.bytes(step, r);
#pragma unroll
      for (int b = 0; b < 4; ++b) y[b] = signed_byte_float(bytes, b);
    }
  }

  T piece_;
  CodeValues values_[kParts][2];
};

}  // namespace llm::cuda
