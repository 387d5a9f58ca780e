#include "backend/cuda/kernels/expert_ring.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

LLM_RING_TYPE(Q6_K)
LLM_RING_TYPE(Q8_0)

LLM_EXPERT_RING_TYPE(Q6_K)
LLM_EXPERT_RING_TYPE(Q8_0)

}  // namespace llm::cuda
