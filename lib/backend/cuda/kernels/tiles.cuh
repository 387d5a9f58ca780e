// Tiles of each storage type, and where they lie in a matrix: strip after strip of 16 rows, each the codes of all
// pieces (tile_codes.cuh), then their scales (tile_scales.cuh), rounded up to 128 bytes. Bytes per 16 x 256:
//
//   Q4_0 2,304  Q4_1 2,560  Q5_0 2,816  Q5_1 3,072  Q8_0 4,352  IQ4_NL 2,304  MXFP4 2,304  NVFP4 2,560
//   Q2_K 1,600  Q3_K 1,824  Q4_K 2,368  Q5_K 2,880  Q6_K 3,360  IQ4_XS 2,208
//   Q1_0   576  Q2_0 1,152  TQ1_0, TQ2_0 1,056
//   IQ1_S, IQ2_XXS 1,696    IQ1_M, IQ2_XS, IQ2_S 1,824      IQ3_XXS, IQ3_S 2,208
//
// The IQ types of codebooks lie as levels and signs, not as rows of a grid: 3.3 or 3.6 bits a weight for IQ1 and
// IQ2, 4.3 for IQ3, where files have 1.6 to 2.6 and 3.1 or 3.4. A byte permutation makes the codes, which no grid's
// lookup would match.
#pragma once

#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/tile_codes.cuh"
#include "backend/cuda/kernels/tile_grids.cuh"
#include "backend/cuda/kernels/tile_raw.cuh"
#include "backend/cuda/kernels/tile_scales.cuh"

namespace llm::cuda {

/// The storage types that have tiles.
#define LLM_TILE_TYPES(X)                                                                                        \
  X(Q4_0)                                                                                                        \
  X(Q4_1)                                                                                                        \
  X(Q5_0) X(Q5_1) X(Q8_0) X(Q2_K) X(Q3_K) X(Q4_K) X(Q5_K) X(Q6_K) X(IQ4_NL) X(IQ4_XS) X(MXFP4) X(NVFP4) X(TQ1_0) \
      X(TQ2_0) X(Q1_0) X(Q2_0) X(IQ1_S) X(IQ1_M) X(IQ2_XXS) X(IQ2_XS) X(IQ2_S) X(IQ3_XXS) X(IQ3_S)

/// A piece of a type in a lane's registers.
template <DType type, ActFormat format, class CodesKind, class ScalesKind>
struct TileOf {
  static constexpr DType kType = type;
  static constexpr ActFormat kFormat = format;
  using Codes = CodesKind;
  using Scales = ScalesKind;
  static constexpr int kSteps = Codes::kSteps;  ///< of a piece
  static constexpr int kPieceK = kSteps * kStepK;
  static constexpr int kPieceBytes = Codes::kBytes + Scales::kBytes;

  Codes codes;
  Scales scales;
  template <class From>
  LLM_HOST_DEVICE void load(const std::byte* codes_at, const std::byte* scales_at, int lane) {
    codes.template load<From>(codes_at, lane);
    scales.template load<From>(scales_at, lane);
  }
};

template <DType>
struct Tile;
template <>
struct Tile<DType::Q4_0> : TileOf<DType::Q4_0, ActFormat::Q8x32, CodesS4, StepScales<AsHalf>> {};
template <>
struct Tile<DType::Q4_1> : TileOf<DType::Q4_1, ActFormat::Q8x32, CodesU4, StepScalesOffsets> {};
template <>
struct Tile<DType::Q5_0> : TileOf<DType::Q5_0, ActFormat::Q8x32, CodesS5, StepScales<AsHalf>> {};
template <>
struct Tile<DType::Q5_1> : TileOf<DType::Q5_1, ActFormat::Q8x32, CodesU5, StepScalesOffsets> {};
template <>
struct Tile<DType::Q8_0> : TileOf<DType::Q8_0, ActFormat::Q8x32, CodesS8, FourScales<1>> {};
template <>
struct Tile<DType::Q2_K> : TileOf<DType::Q2_K, ActFormat::Q8x256, CodesU2, Scales16Minimums> {};
template <>
struct Tile<DType::Q3_K> : TileOf<DType::Q3_K, ActFormat::Q8x256, CodesS3, Scales16> {};
template <>
struct Tile<DType::Q4_K> : TileOf<DType::Q4_K, ActFormat::Q8x256, CodesU4, Scales32Minimums> {};
template <>
struct Tile<DType::Q5_K> : TileOf<DType::Q5_K, ActFormat::Q8x256, CodesU5, Scales32Minimums> {};
template <>
struct Tile<DType::Q6_K> : TileOf<DType::Q6_K, ActFormat::Q8x256, CodesS6, Scales16> {};
template <>
struct Tile<DType::IQ4_NL> : TileOf<DType::IQ4_NL, ActFormat::Q8x32, CodesTable<TableIQ4>, StepScales<AsHalf>> {};
template <>
struct Tile<DType::IQ4_XS> : TileOf<DType::IQ4_XS, ActFormat::Q8x256, CodesTable<TableIQ4>, Scales32> {};
template <>
struct Tile<DType::MXFP4> : TileOf<DType::MXFP4, ActFormat::Q8x32, CodesTable<TableE2M1>, StepScales<AsBFloat>> {};
template <>
struct Tile<DType::NVFP4> : TileOf<DType::NVFP4, ActFormat::Q8x32, CodesTable<TableE2M1>, HalfStepScales> {};
template <>
struct Tile<DType::TQ1_0> : TileOf<DType::TQ1_0, ActFormat::Q8x256, CodesTernary, ScalesOne> {};
template <>
struct Tile<DType::TQ2_0> : TileOf<DType::TQ2_0, ActFormat::Q8x256, CodesTernary, ScalesOne> {};
template <>
struct Tile<DType::Q1_0> : TileOf<DType::Q1_0, ActFormat::Q8x32, CodesSign, TwoScales> {};
template <>
struct Tile<DType::Q2_0> : TileOf<DType::Q2_0, ActFormat::Q8x32, CodesTernary, FourScales<2>> {};
template <>
struct Tile<DType::IQ1_S> : TileOf<DType::IQ1_S, ActFormat::Q8x256, CodesTable8<TableIQ1>, Scales32> {};
template <>
struct Tile<DType::IQ1_M> : TileOf<DType::IQ1_M, ActFormat::Q8x256, CodesTable8<TableIQ1>, Scales16> {};
template <>
struct Tile<DType::IQ2_XXS> : TileOf<DType::IQ2_XXS, ActFormat::Q8x256, CodesTable8<TableIQ2>, Scales32> {};
template <>
struct Tile<DType::IQ2_XS> : TileOf<DType::IQ2_XS, ActFormat::Q8x256, CodesTable8<TableIQ2>, Scales16> {};
template <>
struct Tile<DType::IQ2_S> : TileOf<DType::IQ2_S, ActFormat::Q8x256, CodesTable8<TableIQ2>, Scales16> {};
template <>
struct Tile<DType::IQ3_XXS> : TileOf<DType::IQ3_XXS, ActFormat::Q8x256, CodesTable<TableIQ3_XXS>, Scales32> {};
template <>
struct Tile<DType::IQ3_S> : TileOf<DType::IQ3_S, ActFormat::Q8x256, CodesTable<TableIQ3_S>, Scales32> {};

/// The type as which tiles are read: types that differ in the file alone share their kernels.
template <DType type>
inline constexpr DType kReadAs = type;
template <>
inline constexpr DType kReadAs<DType::TQ1_0> = DType::TQ2_0;
template <>
inline constexpr DType kReadAs<DType::IQ2_S> = DType::IQ2_XS;

// --- places ---

template <class T>
LLM_HOST_DEVICE std::int64_t pieces(std::int64_t k) {
  return k_blocks(k) * (kSteps / T::kSteps);
}
template <class T>
LLM_HOST_DEVICE std::int64_t strip_bytes(std::int64_t k) {
  return (pieces<T>(k) * T::kPieceBytes + 127) / 128 * 128;
}
LLM_HOST_DEVICE std::int64_t strips(std::int64_t n) { return (n + kTileRows - 1) / kTileRows; }
/// Of the codes and of the scales of a piece inside its strip.
template <class T>
LLM_HOST_DEVICE std::int64_t codes_at(std::int64_t piece) {
  return piece * T::Codes::kBytes;
}
template <class T>
LLM_HOST_DEVICE std::int64_t scales_at(std::int64_t piece, std::int64_t k) {
  return pieces<T>(k) * T::Codes::kBytes + piece * T::Scales::kBytes;
}

/// Row and k, inside a piece, of byte b of a lane's register r of step s.
LLM_HOST_DEVICE int place_row(int lane, int r) { return tile_row(lane / 4, r % 2); }
LLM_HOST_DEVICE int place_k(int lane, int step, int r, int b) {
  return kStepK * step + 16 * (r / 2) + 4 * (lane % 4) + b;
}

// --- packing ---

/// The rows of a piece as they lie in a file; what is missing is zero.
template <class T>
struct PieceSource {
  using R = Raw<T::kType>;
  Bytes rows;  ///< block of the strip's first row at k = 0
  std::int64_t row_bytes;
  int n_rows;          ///< that there are, up to 16
  std::int64_t k0, k;  ///< first element of the piece, elements of a row

  LLM_HOST_DEVICE Bytes block(int row, int at) const {
    if (row >= n_rows || k0 + at >= k) return nullptr;
    return rows + row * row_bytes + (k0 + at) / R::kElems * static_cast<std::int64_t>(sizeof(typename R::Block));
  }
  LLM_HOST_DEVICE unsigned code(int row, int at) const {
    const Bytes b = block(row, at);
    return b == nullptr ? 0 : R::code(b, static_cast<int>((k0 + at) % R::kElems));
  }
  LLM_HOST_DEVICE std::uint32_t d(int row) const {
    const Bytes b = block(row, 0);
    return b == nullptr ? 0 : R::d(b);
  }
  LLM_HOST_DEVICE std::uint32_t m(int row) const {
    const Bytes b = block(row, 0);
    return b == nullptr ? 0 : R::m(b);
  }
  LLM_HOST_DEVICE std::uint32_t d_at(int row, int at) const {
    const Bytes b = block(row, at);
    if (b == nullptr) return 0;
    if constexpr (T::kType == DType::NVFP4)
      return R::d(b, static_cast<int>((k0 + at) % R::kElems));
    else
      return R::d(b);
  }
  LLM_HOST_DEVICE std::uint32_t m_at(int row, int at) const {
    const Bytes b = block(row, at);
    return b == nullptr ? 0 : R::m(b);
  }
  LLM_HOST_DEVICE std::uint32_t scale(int row, int s) const {
    const Bytes b = block(row, 0);
    return b == nullptr ? 0 : R::scale(b, s);
  }
  LLM_HOST_DEVICE std::uint32_t minimum(int row, int s) const {
    const Bytes b = block(row, 0);
    return b == nullptr ? 0 : R::minimum(b, s);
  }
};

/// Word w (of 4 bytes) of a plane of a piece.
template <class T, class Plane>
LLM_HOST_DEVICE std::uint32_t plane_word(const PieceSource<T>& from, int plane, int w) {
  const int quad = w / 128, lane = w / 4 % 32, r = w % 4;
  const int row = place_row(lane, r);
  std::uint32_t bits = 0;
  for (int f = 0; f < 32 / Plane::kBits; ++f) {
    const int step = Plane::step(quad, f);
    const unsigned q = from.code(row, place_k(lane, step, r, Plane::byte(f)));
    const unsigned field = T::Codes::field(plane, q, step) & ((1u << Plane::kBits) - 1);
    bits |= field << (Plane::kBits * f);
  }
  return bits;
}
/// Word w of a piece's codes.
template <class T>
LLM_HOST_DEVICE std::uint32_t codes_word(const PieceSource<T>& from, int w) {
  using Low = typename T::Codes::Low;
  constexpr int kLowWords = Low::kQuads * kQuadBytes / 4;
  if (w < kLowWords) return plane_word<T, Low>(from, 0, w);
  return plane_word<T, typename T::Codes::High>(from, 1, w - kLowWords);
}

// --- decoding: what lib/tensor/decode.cpp computes ---

/// The 4 elements of register r of a step; `scales` is where the piece's lie.
template <class T>
LLM_HOST_DEVICE void decode_four(const T& piece, const std::byte* scales, int lane, int step, int r, float (&y)[4]) {
  const std::uint32_t bytes = piece.codes.bytes(step, r);
  const int half = r % 2;
  float unit = T::Codes::kUnit;
  if constexpr (T::Codes::kPasses > 1)
    unit = 1.0f / static_cast<float>(1 << T::Codes::kPassShift * (step % T::Codes::kPasses));
  const auto byte = [&](int b) {
    return T::Codes::kSigned ? signed_byte_float(bytes, b) : unsigned_byte_float(bytes, b);
  };
  if constexpr (T::kFormat == ActFormat::Q8x256) {
    const int sub = T::Scales::kScaleK == 16 ? 2 * step + r / 2 : step;
    const float scale = piece.scales.d(half) * static_cast<float>(piece.scales.scale(half, sub)) * unit;
    if constexpr (T::Scales::kMinimumK > 0) {
      const int m = T::Scales::minimum(scales, lane / 4, half, sub);
      const float minimum = piece.scales.dmin(half) * static_cast<float>(m);
      for (int b = 0; b < 4; ++b) y[b] = scale * byte(b) - minimum;
    } else {
      for (int b = 0; b < 4; ++b) y[b] = scale * byte(b);
    }
  } else {
    const int sub = T::Scales::kScaleK == 16 ? 2 * step + r / 2 : step;
    const float d = piece.scales.d(half, sub) * unit;
    if constexpr (T::Scales::kOffset) {
      const float m = piece.scales.m(half, step);
      for (int b = 0; b < 4; ++b) y[b] = d * byte(b) + m;
    } else {
      for (int b = 0; b < 4; ++b) y[b] = d * byte(b);
    }
  }
}

}  // namespace llm::cuda
