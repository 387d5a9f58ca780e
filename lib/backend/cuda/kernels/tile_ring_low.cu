#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

template bool launch_ring_products<DType::Q2_K>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::Q3_K>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::TQ1_0>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::TQ2_0>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::Q1_0>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::Q2_0>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
