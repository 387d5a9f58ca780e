// The table of this instruction set.
#include "quantize/kernels/quantizers.h"

#define LLM_JOIN_OF(a, b) a##b
#define LLM_JOIN(a, b) LLM_JOIN_OF(a, b)

namespace llm::quantizers {

BlocksFn LLM_JOIN(quantizer_, LLM_ISA)(DType t) {
  switch (t) {
    case DType::Q4_0:
      return LLM_ISA::quantize_q4_0;
    case DType::Q5_0:
      return LLM_ISA::quantize_q5_0;
    case DType::Q4_1:
      return LLM_ISA::quantize_q4_1;
    case DType::Q5_1:
      return LLM_ISA::quantize_q5_1;
    case DType::Q2_K:
      return LLM_ISA::quantize_q2_k;
    case DType::Q4_K:
      return LLM_ISA::quantize_q4_k;
    case DType::Q5_K:
      return LLM_ISA::quantize_q5_k;
    case DType::Q8_0:
      return LLM_ISA::quantize_q8_0;
    case DType::Q3_K:
      return LLM_ISA::quantize_q3_k;
    case DType::Q6_K:
      return LLM_ISA::quantize_q6_k;
    case DType::IQ4_NL:
      return LLM_ISA::quantize_iq4_nl;
    case DType::IQ4_XS:
      return LLM_ISA::quantize_iq4_xs;
    case DType::MXFP4:
      return LLM_ISA::quantize_mxfp4;
    case DType::NVFP4:
      return LLM_ISA::quantize_nvfp4;
    case DType::TQ1_0:
      return LLM_ISA::quantize_tq1_0;
    case DType::TQ2_0:
      return LLM_ISA::quantize_tq2_0;
    case DType::Q1_0:
      return LLM_ISA::quantize_q1_0;
    case DType::Q2_0:
      return LLM_ISA::quantize_q2_0;
    case DType::IQ1_S:
      return LLM_ISA::quantize_iq1_s;
    case DType::IQ1_M:
      return LLM_ISA::quantize_iq1_m;
    case DType::IQ2_XXS:
      return LLM_ISA::quantize_iq2_xxs;
    case DType::IQ2_XS:
      return LLM_ISA::quantize_iq2_xs;
    case DType::IQ2_S:
      return LLM_ISA::quantize_iq2_s;
    case DType::IQ3_XXS:
      return LLM_ISA::quantize_iq3_xxs;
    case DType::IQ3_S:
      return LLM_ISA::quantize_iq3_s;
    default:
      return nullptr;
  }
}

}  // namespace llm::quantizers
