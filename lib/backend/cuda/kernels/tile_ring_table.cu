#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

template bool launch_ring_products<DType::IQ4_NL>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::IQ4_XS>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::MXFP4>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::NVFP4>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
