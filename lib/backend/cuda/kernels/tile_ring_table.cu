#include "backend/cuda/kernels/expert_ring.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

LLM_RING_TYPE(IQ4_NL)
LLM_RING_TYPE(IQ4_XS)
LLM_RING_TYPE(MXFP4)
LLM_RING_TYPE(NVFP4)

LLM_EXPERT_RING_TYPE(IQ4_NL)
LLM_EXPERT_RING_TYPE(IQ4_XS)
LLM_EXPERT_RING_TYPE(MXFP4)
LLM_EXPERT_RING_TYPE(NVFP4)

}  // namespace llm::cuda
