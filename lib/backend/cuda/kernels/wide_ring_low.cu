#include "backend/cuda/kernels/wide_ring.cuh"

namespace llm::cuda {

template bool launch_wide<DType::Q2_K>(const TileArguments&, const Launch&);
template bool launch_wide<DType::Q3_K>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
