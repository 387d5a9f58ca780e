#include "backend/cuda/kernels/wide_ring.cuh"

namespace llm::cuda {

template bool launch_wide<DType::IQ4_NL>(const TileArguments&, const Launch&);
template bool launch_wide<DType::IQ4_XS>(const TileArguments&, const Launch&);
template bool launch_wide<DType::MXFP4>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
