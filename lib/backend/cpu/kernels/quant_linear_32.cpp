// The types with one scale per 32 elements: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0.
#include "backend/cpu/kernels/quant_dispatch.h"

namespace llm::cpu::LLM_ISA {

LLM_DEFINE_LINEAR(q4_0, StreamQ4_0, PanelQ4_0, BlockQ4_0, 32, Mins::None)
LLM_DEFINE_LINEAR(q4_1, StreamQ4_1, PanelQ4_1, BlockQ4_1, 32, Mins::Present)
LLM_DEFINE_LINEAR(q5_0, StreamQ5_0, PanelQ5_0, BlockQ5_0, 32, Mins::None)
LLM_DEFINE_LINEAR(q5_1, StreamQ5_1, PanelQ5_1, BlockQ5_1, 32, Mins::Present)
LLM_DEFINE_LINEAR(q8_0, StreamQ8_0, PanelQ8_0, BlockQ8_0, 32, Mins::None)

}  // namespace llm::cpu::LLM_ISA
