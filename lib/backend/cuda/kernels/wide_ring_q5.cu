#include "backend/cuda/kernels/wide_ring.cuh"

namespace llm::cuda {

template bool launch_wide<DType::Q5_0>(const TileArguments&, const Launch&);
template bool launch_wide<DType::Q5_1>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
