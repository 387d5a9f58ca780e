// Products of quantised weights with quantised activations, and the quantisation of activations, for the instruction
// set that this is compiled for. Blocks of a weight row and a column meet in the order of k; for each of them
//
//   32 elements    isum = sum q*a                              y = d * float(isum)
//                  Q4_1, Q5_1: asum = sum a                    y = fma(m, float(asum), y)
//   256 elements   isum = sum over sub-blocks of scale * sum q*a   y = d * float(isum)
//                  with mins: msum = sum of min * sum a        y = fma(-dmin, float(msum), y)
//   both           acc = fma(d_act, y, acc), acc = 0 at first
//
// with exact int32 sums (q after its offset). All instruction sets and all shapes do these float operations and no
// others, so that their results are equal bit for bit.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::LLM_ISA {

void linear_q4_0(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q4_1(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q5_0(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q5_1(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q8_0(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q2_k(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q3_k(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q4_k(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q5_k(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_q6_k(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);

void quantize_rows_q8x32(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout,
                         std::int64_t row_begin, std::int64_t row_end);
void quantize_rows_q8x256(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout,
                          std::int64_t row_begin, std::int64_t row_end);

}  // namespace llm::cpu::LLM_ISA
