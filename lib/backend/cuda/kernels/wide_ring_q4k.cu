#include "backend/cuda/kernels/wide_ring.cuh"

namespace llm::cuda {

template bool launch_wide<DType::Q4_K>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
