#include "backend/cuda/kernels/expert_ring.cuh"
#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

LLM_RING_TYPE(Q2_K)
LLM_RING_TYPE(Q3_K)
LLM_RING_TYPE(TQ1_0)
LLM_RING_TYPE(TQ2_0)
LLM_RING_TYPE(Q1_0)
LLM_RING_TYPE(Q2_0)

LLM_EXPERT_RING_TYPE(Q2_K)
LLM_EXPERT_RING_TYPE(Q3_K)
LLM_EXPERT_RING_TYPE(TQ1_0)
LLM_EXPERT_RING_TYPE(TQ2_0)
LLM_EXPERT_RING_TYPE(Q1_0)
LLM_EXPERT_RING_TYPE(Q2_0)

}  // namespace llm::cuda
