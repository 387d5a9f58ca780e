#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

LLM_RING_TYPE(IQ1_S)
LLM_RING_TYPE(IQ1_M)
LLM_RING_TYPE(IQ2_XXS)
LLM_RING_TYPE(IQ2_XS)
LLM_RING_TYPE(IQ2_S)
LLM_RING_TYPE(IQ3_XXS)
LLM_RING_TYPE(IQ3_S)

}  // namespace llm::cuda
