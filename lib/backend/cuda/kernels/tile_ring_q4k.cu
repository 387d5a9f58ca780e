#include "backend/cuda/kernels/expert_ring.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

LLM_RING_TYPE(Q4_K)
LLM_RING_TYPE(Q5_K)

LLM_EXPERT_RING_TYPE(Q4_K)
LLM_EXPERT_RING_TYPE(Q5_K)

}  // namespace llm::cuda
