// Products with weights stored as floats: of BF16 with BF16 activations, of the others with f32.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::LLM_ISA {

void linear_f32(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_f16(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_bf16(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
/// QuantizeRowsFn of the format BF16, as linear_bf16 reads it.
void round_rows_bf16(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout, std::int64_t row_begin,
                     std::int64_t row_end);
void linear_f64(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);

}  // namespace llm::cpu::LLM_ISA
