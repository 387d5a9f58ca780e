// The types with one scale per 32 elements: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.
#include "backend/cpu/kernels/quant_dispatch.h"
#include "backend/cpu/kernels/quant_linear.h"
#include "backend/cpu/kernels/quant_portable.h"

namespace llm::cpu::LLM_ISA {

#ifdef LLM_QUANT_SIMD

void linear_q4_0(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ4_0, quant::PanelQ4_0>(args, row_begin, row_end, scratch);
}
void linear_q4_1(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ4_1, quant::PanelQ4_1>(args, row_begin, row_end, scratch);
}
void linear_q5_0(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ5_0, quant::PanelQ5_0>(args, row_begin, row_end, scratch);
}
void linear_q5_1(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ5_1, quant::PanelQ5_1>(args, row_begin, row_end, scratch);
}
void linear_q8_0(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ8_0, quant::PanelQ8_0>(args, row_begin, row_end, scratch);
}

#else

void linear_q4_0(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ4_0, 32, Mins::None>(args, row_begin, row_end, scratch);
}
void linear_q4_1(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ4_1, 32, Mins::Present>(args, row_begin, row_end, scratch);
}
void linear_q5_0(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ5_0, 32, Mins::None>(args, row_begin, row_end, scratch);
}
void linear_q5_1(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ5_1, 32, Mins::Present>(args, row_begin, row_end, scratch);
}
void linear_q8_0(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ8_0, 32, Mins::None>(args, row_begin, row_end, scratch);
}

#endif

}  // namespace llm::cpu::LLM_ISA
