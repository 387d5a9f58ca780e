// Every quantised type for the set amx: many columns by tiles, fewer as in the base; but those of types with rows of a
// grid are streams here, up to four, since the rows are gathered. Compiled for that set alone.
#include "backend/cpu/kernels/quant_amx.h"
#include "backend/cpu/kernels/quant_gemv.h"
#include "backend/cpu/kernels/quant_linear.h"
#include "backend/cpu/kernels/quant_pieces_codes.h"
#include "backend/cpu/kernels/quant_pieces_grid.h"

namespace llm::cpu {

namespace avx512 {
#define LLM_DECLARE_LINEAR(name, type) \
  void linear_##name(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
LLM_QUANT_TYPES(LLM_DECLARE_LINEAR)
#undef LLM_DECLARE_LINEAR
}  // namespace avx512

namespace LLM_ISA {
namespace quant {

/// `fewest` columns or more are multiplied by tiles; `base`: the product of the set that this one is based on.
template <class Panel, i64 fewest = fewest_columns<Panel>()>
void linear(const LinearArgs& args, i64 row_begin, i64 row_end, std::byte* scratch, LinearFn base) {
  if (args.n_cols >= fewest) return gemm_tiles<Panel>(args, row_begin, row_end, scratch, base);
  base(args, row_begin, row_end, scratch);
}

}  // namespace quant

/// Defines linear_<name>: `panel` of namespace quant.
#define LLM_DEFINE_LINEAR(name, panel)                                                                           \
  void linear_##name(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) { \
    quant::linear<quant::panel>(args, row_begin, row_end, scratch, avx512::linear_##name);                       \
  }
/// The same for a type that is unpacked by pieces.
#define LLM_DEFINE_LINEAR_PIECES(name, weights) LLM_DEFINE_LINEAR(name, PanelOf<quant::weights>)
/// And with rows of a grid, by tiles from so many columns on.
#define LLM_DEFINE_LINEAR_GRID(name, weights, fewest)                                                                \
  void linear_##name(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {     \
    if (quant::stream<quant::StreamOf<quant::weights>, 4>(args, row_begin, row_end, scratch)) return;                \
    quant::linear<quant::PanelOf<quant::weights>, fewest>(args, row_begin, row_end, scratch, avx512::linear_##name); \
  }

LLM_DEFINE_LINEAR(q4_0, PanelQ4_0)
LLM_DEFINE_LINEAR(q4_1, PanelQ4_1)
LLM_DEFINE_LINEAR(q5_0, PanelQ5_0)
LLM_DEFINE_LINEAR(q5_1, PanelQ5_1)
LLM_DEFINE_LINEAR(q8_0, PanelQ8_0)
LLM_DEFINE_LINEAR(q2_k, PanelQ2_K)
LLM_DEFINE_LINEAR(q3_k, PanelQ3_K)
LLM_DEFINE_LINEAR(q4_k, PanelQ4_K)
LLM_DEFINE_LINEAR(q5_k, PanelQ5_K)
LLM_DEFINE_LINEAR(q6_k, PanelQ6_K)
LLM_DEFINE_LINEAR_PIECES(iq4_nl, WeightsIQ4_NL)
LLM_DEFINE_LINEAR_PIECES(iq4_xs, WeightsIQ4_XS)
LLM_DEFINE_LINEAR_PIECES(mxfp4, WeightsMXFP4)
LLM_DEFINE_LINEAR(nvfp4, PanelNVFP4)
LLM_DEFINE_LINEAR_PIECES(q1_0, WeightsQ1_0)
LLM_DEFINE_LINEAR_PIECES(q2_0, WeightsQ2_0)
LLM_DEFINE_LINEAR_PIECES(tq1_0, WeightsTQ1_0)
LLM_DEFINE_LINEAR_PIECES(tq2_0, WeightsTQ2_0)
LLM_DEFINE_LINEAR_GRID(iq1_s, WeightsIQ1_S, 8)
LLM_DEFINE_LINEAR_GRID(iq1_m, WeightsIQ1_M, 6)
LLM_DEFINE_LINEAR_GRID(iq2_xxs, WeightsIQ2_XXS, 13)
LLM_DEFINE_LINEAR_GRID(iq2_xs, WeightsIQ2_XS, 6)
LLM_DEFINE_LINEAR_GRID(iq2_s, WeightsIQ2_S, 6)
LLM_DEFINE_LINEAR_GRID(iq3_xxs, WeightsIQ3_XXS, 9)
LLM_DEFINE_LINEAR_GRID(iq3_s, WeightsIQ3_S, 5)

}  // namespace LLM_ISA
}  // namespace llm::cpu
