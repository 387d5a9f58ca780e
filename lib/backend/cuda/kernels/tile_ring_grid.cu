#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

template bool launch_ring_products<DType::IQ1_S>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::IQ1_M>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::IQ2_XXS>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::IQ2_XS>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::IQ2_S>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::IQ3_XXS>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::IQ3_S>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
