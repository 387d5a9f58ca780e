// Products of quantised weights with quantised activations, and the quantisation of activations, for the instruction
// set that this is compiled for. Blocks of a weight row and a column meet in the order of k; for each of them
//
//   16, 32 elements   isum = sum q*a                              y = d * float(isum)
//                     Q4_1, Q5_1: asum = sum a                    y = fma(m, float(asum), y)
//   256 elements      isum = sum over sub-blocks of scale * sum q*a   y = d * float(isum)
//                     with mins: msum = sum of min * sum a        y = fma(-dmin, float(msum), y)
//   all               acc = fma(d_act, y, acc), acc = 0 at first; of 16 elements y is the sum of two blocks' y
//
// with exact int32 sums (q after its offset). All instruction sets and all shapes do these float operations and no
// others, so that their results are equal bit for bit. A block is what has one d and one d_act:
//
//   elements   types                 q                            scale    d
//   32         Q4_0 Q4_1 Q5_0 Q5_1 Q8_0  of 4, 5, 8 bits                   f16
//              IQ4_NL                kValuesIQ4[code]                      f16
//              MXFP4                 kValuesE2M1[code]                     e8m0_half
//              Q1_0 Q2_0             -1 1; -1 0 1 2                        f16, of 4 or 2 such blocks
//   16         NVFP4                 kValuesE2M1[code]                     ue4m3_half: exact y; d_act is of two of them
//   256        Q2_K .. Q6_K          of 2 to 6 bits               packed   f16
//              IQ4_XS                kValuesIQ4[code]             s - 32   f16
//              IQ2_XXS IQ2_XS IQ2_S  sign * row of the grid       2 s + 1  f16 / 8
//              IQ3_XXS, IQ3_S        sign * row of the grid       2 s + 1  f16 / 4, f16
//              IQ1_S IQ1_M           8 * row + (delta < 0 ? -1 : 1)  2 s + 1  f16 / 8
//              TQ1_0 TQ2_0           -1 0 1; -1 0 1 2             1        f16
//
// A sum of products is below 2^31 everywhere: at most 256 * 127 * 127 * 32 (IQ4_XS).
#pragma once

#include "backend/cpu/kernels/kernels.h"

/// Every quantised storage type that can be a matrix: name of its function, DType.
#define LLM_QUANT_TYPES(X)                                                                                        \
  X(q4_0, Q4_0)                                                                                                   \
  X(q4_1, Q4_1)                                                                                                   \
  X(q5_0, Q5_0)                                                                                                   \
  X(q5_1, Q5_1)                                                                                                   \
  X(q8_0, Q8_0)                                                                                                   \
  X(q2_k, Q2_K) X(q3_k, Q3_K) X(q4_k, Q4_K) X(q5_k, Q5_K) X(q6_k, Q6_K) X(iq4_nl, IQ4_NL) X(iq4_xs, IQ4_XS)       \
      X(mxfp4, MXFP4) X(nvfp4, NVFP4) X(q1_0, Q1_0) X(q2_0, Q2_0) X(tq1_0, TQ1_0) X(tq2_0, TQ2_0) X(iq1_s, IQ1_S) \
          X(iq1_m, IQ1_M) X(iq2_xxs, IQ2_XXS) X(iq2_xs, IQ2_XS) X(iq2_s, IQ2_S) X(iq3_xxs, IQ3_XXS) X(iq3_s, IQ3_S)

namespace llm::cpu::LLM_ISA {

#define LLM_DECLARE_LINEAR(name, type) \
  void linear_##name(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
LLM_QUANT_TYPES(LLM_DECLARE_LINEAR)
#undef LLM_DECLARE_LINEAR

void quantize_rows_q8x32(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout,
                         std::int64_t row_begin, std::int64_t row_end);
void quantize_rows_q8x256(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout,
                          std::int64_t row_begin, std::int64_t row_end);

}  // namespace llm::cpu::LLM_ISA
