#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

LLM_RING_TYPE(Q5_0)
LLM_RING_TYPE(Q5_1)

}  // namespace llm::cuda
