#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/wide_ring.h"

namespace llm::cuda {

bool launch_wide_products(DType type, const TileArguments& p, const Launch& at) {
  if (p.groups.n_groups != nullptr || p.first_column % kColumns != 0) return false;
  switch (type) {
#define LLM_WIDE_CASE(name) \
  case DType::name:         \
    return launch_wide<DType::name>(p, at);
    LLM_WIDE_TYPES(LLM_WIDE_CASE)
#undef LLM_WIDE_CASE
    default:
      return false;
  }
}

}  // namespace llm::cuda
