// The types whose elements are codes, by pieces: IQ4_NL IQ4_XS MXFP4 NVFP4 Q1_0 Q2_0 TQ1_0 TQ2_0.
#include "backend/cpu/kernels/quant_dispatch.h"
#include "backend/cpu/kernels/quant_pieces_codes.h"

namespace llm::cpu::LLM_ISA {

LLM_DEFINE_LINEAR_PIECES(iq4_nl, WeightsIQ4_NL, BlockIQ4_NL, 32, Mins::None)
LLM_DEFINE_LINEAR_PIECES(iq4_xs, WeightsIQ4_XS, BlockIQ4_XS, 256, Mins::None)
LLM_DEFINE_LINEAR(mxfp4, StreamMXFP4, PanelMXFP4, BlockMXFP4, 32, Mins::None)
LLM_DEFINE_LINEAR(nvfp4, StreamNVFP4, PanelNVFP4, BlockNVFP4, 16, Mins::None, 4)
LLM_DEFINE_LINEAR_PIECES(q1_0, WeightsQ1_0, BlockQ1_0, 32, Mins::None, 4)
LLM_DEFINE_LINEAR_PIECES(q2_0, WeightsQ2_0, BlockQ2_0, 32, Mins::None, 2)
LLM_DEFINE_LINEAR(tq1_0, StreamTQ1_0, PanelTQ1_0, BlockTQ1_0, 256, Mins::None)
LLM_DEFINE_LINEAR(tq2_0, StreamTQ2_0, PanelTQ2_0, BlockTQ2_0, 256, Mins::None)

}  // namespace llm::cpu::LLM_ISA
