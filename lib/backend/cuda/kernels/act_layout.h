// Where quantised activations lie: the B operand of the int8 tensor-core products, in the order in which a warp reads
// it. Written by forms.cuh, read by the products over tiles; the formulas of quantisation are
// lib/tensor/activation.h's.
//
// Columns (tokens) come in groups of 8, the width of m16n8k32; k in blocks of 256 (rounded up, the rest is zero), each
// 8 steps of 32. For each (group, block), 2048 bytes of codes: [step][column][32]. Inside a step, lane (g = lane / 4,
// t = lane % 4) of the mma wants column g's k = 4t .. 4t+3 and 16+4t .. 16+4t+3: those 8 codes are neighbours at 8t.
// A reader takes nothing of columns that the step does not have; they hold anything.
//
// After the codes of all groups and blocks follow the scales, for each (group, block):
//   Q8x256  8 columns of ColumnBlock: the scale, and the sums of codes that products with minimums need
//   Q8x32   [step][column] of StepScale
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

#ifdef __CUDACC__
#define LLM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LLM_HOST_DEVICE inline
#endif

namespace llm::cuda {

inline constexpr int kColumns = 8;   ///< of a group
inline constexpr int kBlockK = 256;  ///< of a block
inline constexpr int kStepK = 32;    ///< of one mma
inline constexpr int kSteps = kBlockK / kStepK;
inline constexpr int kBlockCodes = kBlockK * kColumns;  ///< bytes of a (group, block)

/// One column of one block of 256. A sum is low + 128 * high with low in 0 .. 127: two int8 that an mma can take.
struct ColumnBlock {
  float scale;
  std::int32_t unused[3];
  std::int8_t low32[8], high32[8];    ///< sums of 32 codes each
  std::int8_t low16[16], high16[16];  ///< sums of 16 codes each
};
static_assert(sizeof(ColumnBlock) == 64);

struct StepScale {
  float scale;
};

LLM_HOST_DEVICE std::int64_t k_blocks(std::int64_t k) { return (k + kBlockK - 1) / kBlockK; }
LLM_HOST_DEVICE std::int64_t column_groups(std::int64_t columns) { return (columns + kColumns - 1) / kColumns; }

/// Of code k (0 .. 255) of column c (0 .. 7) inside its block.
LLM_HOST_DEVICE int code_offset(int k, int c) {
  const int step = k / kStepK, in_step = k % kStepK, half = in_step / 16, in_half = in_step % 16;
  return (step * kColumns + c) * kStepK + in_half / 4 * 8 + half * 4 + in_half % 4;
}
LLM_HOST_DEVICE constexpr std::size_t scales_bytes(ActFormat f) {
  return f == ActFormat::Q8x256 ? kColumns * sizeof(ColumnBlock) : kSteps * kColumns * sizeof(StepScale);
}
/// Of the codes of (group, block), and of its scales, in a buffer for `columns` columns of `k`.
LLM_HOST_DEVICE std::size_t codes_offset(std::int64_t group, std::int64_t block, std::int64_t k) {
  return static_cast<std::size_t>(group * k_blocks(k) + block) * kBlockCodes;
}
LLM_HOST_DEVICE std::size_t scales_offset(ActFormat f, std::int64_t group, std::int64_t block, std::int64_t k,
                                          std::int64_t columns) {
  return codes_offset(column_groups(columns), 0, k) +
         static_cast<std::size_t>(group * k_blocks(k) + block) * scales_bytes(f);
}
LLM_HOST_DEVICE std::size_t quantized_bytes(ActFormat f, std::int64_t k, std::int64_t columns) {
  return scales_offset(f, column_groups(columns), 0, k, columns);
}

}  // namespace llm::cuda
