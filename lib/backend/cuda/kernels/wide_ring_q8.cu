#include "backend/cuda/kernels/wide_ring.cuh"

namespace llm::cuda {

template bool launch_wide<DType::Q8_0>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
