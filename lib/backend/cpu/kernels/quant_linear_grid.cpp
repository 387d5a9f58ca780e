// The types whose elements are rows of a grid, by pieces: IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S.
#include "backend/cpu/kernels/quant_dispatch.h"
#include "backend/cpu/kernels/quant_pieces_grid.h"

namespace llm::cpu::LLM_ISA {

LLM_DEFINE_LINEAR_PIECES(iq1_s, WeightsIQ1_S, BlockIQ1_S, 256, Mins::None)
LLM_DEFINE_LINEAR_PIECES(iq1_m, WeightsIQ1_M, BlockIQ1_M, 256, Mins::None)
LLM_DEFINE_LINEAR_PIECES(iq2_xxs, WeightsIQ2_XXS, BlockIQ2_XXS, 256, Mins::None)
LLM_DEFINE_LINEAR_PIECES(iq2_xs, WeightsIQ2_XS, BlockIQ2_XS, 256, Mins::None)
LLM_DEFINE_LINEAR_PIECES(iq2_s, WeightsIQ2_S, BlockIQ2_S, 256, Mins::None)
LLM_DEFINE_LINEAR_PIECES(iq3_xxs, WeightsIQ3_XXS, BlockIQ3_XXS, 256, Mins::None)
LLM_DEFINE_LINEAR_PIECES(iq3_s, WeightsIQ3_S, BlockIQ3_S, 256, Mins::None)

}  // namespace llm::cpu::LLM_ISA
