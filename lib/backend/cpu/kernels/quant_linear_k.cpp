// The types with super-blocks of 256 elements: Q2_K Q3_K Q4_K Q5_K Q6_K.
#include "backend/cpu/kernels/quant_dispatch.h"

namespace llm::cpu::LLM_ISA {

LLM_DEFINE_LINEAR(q2_k, StreamQ2_K, PanelQ2_K, BlockQ2_K, 256, Mins::Present)
LLM_DEFINE_LINEAR(q3_k, StreamQ3_K, PanelQ3_K, BlockQ3_K, 256, Mins::None)
LLM_DEFINE_LINEAR(q4_k, StreamQ4_K, PanelQ4_K, BlockQ4_K, 256, Mins::Present)
LLM_DEFINE_LINEAR(q5_k, StreamQ5_K, PanelQ5_K, BlockQ5_K, 256, Mins::Present)
LLM_DEFINE_LINEAR(q6_k, StreamQ6_K, PanelQ6_K, BlockQ6_K, 256, Mins::None)

}  // namespace llm::cpu::LLM_ISA
