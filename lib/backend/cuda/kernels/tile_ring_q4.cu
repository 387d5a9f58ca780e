#include "backend/cuda/kernels/expert_ring.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

LLM_RING_TYPE(Q4_0)
LLM_RING_TYPE(Q4_1)

LLM_EXPERT_RING_TYPE(Q4_0)
LLM_EXPERT_RING_TYPE(Q4_1)

}  // namespace llm::cuda
