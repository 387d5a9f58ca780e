// Products with weights stored as floats and f32 activations.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::LLM_ISA {

void linear_f32(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_f16(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_bf16(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
void linear_f64(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);

}  // namespace llm::cpu::LLM_ISA
