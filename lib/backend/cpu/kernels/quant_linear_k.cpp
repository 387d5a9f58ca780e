// The types with super-blocks of 256 elements: Q2_K Q3_K Q4_K Q5_K Q6_K.
#include "backend/cpu/kernels/quant_dispatch.h"
#include "backend/cpu/kernels/quant_linear.h"
#include "backend/cpu/kernels/quant_portable.h"

namespace llm::cpu::LLM_ISA {

#ifdef LLM_QUANT_SIMD

void linear_q2_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ2_K, quant::PanelQ2_K>(args, row_begin, row_end, scratch);
}
void linear_q3_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ3_K, quant::PanelQ3_K>(args, row_begin, row_end, scratch);
}
void linear_q4_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ4_K, quant::PanelQ4_K>(args, row_begin, row_end, scratch);
}
void linear_q5_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ5_K, quant::PanelQ5_K>(args, row_begin, row_end, scratch);
}
void linear_q6_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  quant::linear<quant::StreamQ6_K, quant::PanelQ6_K>(args, row_begin, row_end, scratch);
}

#else

void linear_q2_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ2_K, 256, Mins::Present>(args, row_begin, row_end, scratch);
}
void linear_q3_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ3_K, 256, Mins::None>(args, row_begin, row_end, scratch);
}
void linear_q4_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ4_K, 256, Mins::Present>(args, row_begin, row_end, scratch);
}
void linear_q5_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ5_K, 256, Mins::Present>(args, row_begin, row_end, scratch);
}
void linear_q6_k(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  linear_plain<BlockQ6_K, 256, Mins::None>(args, row_begin, row_end, scratch);
}

#endif

}  // namespace llm::cpu::LLM_ISA
