// Weights that lie as tiles, decoded into the A operand of the tensor cores' products of F16: what a lane has of a tile
// (tile_codes.cuh) is its part of the operand of m16n8k16, and of a warp of wgmma's m64, if the 16 of k are taken in
// another order, which the B operand has to follow:
//   slots 2t, 2t + 1, 2t + 8, 2t + 9 of k are elements 4t .. 4t + 3                         (t = lane % 4)
#pragma once

#include "backend/cuda/kernels/tiles.cuh"

namespace llm::cuda {

inline constexpr int kChunkK = 64;  ///< elements that are decoded together
/// Of a piece.
template <class T>
inline constexpr int kPieceChunks = T::kPieceK / kChunkK;

constexpr int log2_of_inverse(float power) { return power < 1 ? 1 + log2_of_inverse(2 * power) : 0; }

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
template <class T>
__device__ __forceinline__ CodeValues code_values(const T& piece, const std::byte* scales, int lane, int half, int step,
                                                  int sub) {
  using Small = SmallCodes<typename T::Codes>;
  const float unit = !Small::kExist ? T::Codes::kUnit : T::Codes::kUnit < 0 ? -1.0f : 1.0f;
  CodeValues values{0, 0};
  if constexpr (T::kFormat == ActFormat::Q8x256) {
    values.scale = unit * piece.scales.d(half) * static_cast<float>(piece.scales.scale(half, sub));
    if constexpr (T::Scales::kMinimumK > 0)
      values.offset = -piece.scales.dmin(half) * static_cast<float>(T::Scales::minimum(scales, lane / 4, half, sub));
  } else {
    values.scale = unit * piece.scales.d(half, sub);
    if constexpr (T::Scales::kOffset) values.offset = piece.scales.m(half, step);
  }
  if constexpr (Small::kExist) values.offset = fmaf(-values.scale, Small::kBias, values.offset);
  return values;
}

/// A chunk of a strip's piece: what a lane needs of it for its part of the operands.
template <class T, int kChunk>
class TileChunk {
 public:
  /// Codes and scales lie at `stage` in shared memory.
  __device__ __forceinline__ void load(const std::byte* stage, int lane) {
    piece_.template load<FromMemory>(stage, stage + T::Codes::kBytes, lane);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = kChunk * kParts + part;
        values_[part][half] = code_values(piece_, stage + T::Codes::kBytes, lane, half, at / kStepParts, at);
      }
  }
  /// The A operand of elements 16 j on; what is rounded before F16 is off by 2^-16 of the scale at most.
  __device__ __forceinline__ void operand(int j, std::uint32_t (&a)[4]) const {
    const int step = kChunk * (kChunkK / kStepK) + j / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float y[4];
      numbers(step, 2 * (j % 2) + half, y);
      const CodeValues& values = values_[kStepParts == 2 ? j : j / 2][half];
#pragma unroll
      for (int b = 0; b < 4; ++b) y[b] = kOffset ? fmaf(values.scale, y[b], values.offset) : values.scale * y[b];
      a[half] = pack_halves(y[0], y[1]);
      a[2 + half] = pack_halves(y[2], y[3]);
    }
  }

 private:
  using Small = SmallCodes<typename T::Codes>;
  static constexpr int kStepParts = T::Scales::kScaleK == 16 ? 2 : 1;  ///< with scales of their own
  static constexpr int kParts = kStepParts * kChunkK / kStepK;
  static constexpr bool kOffset = Small::kExist;

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
