#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

template bool launch_ring_products<DType::Q4_K>(const TileArguments&, const Launch&);
template bool launch_ring_products<DType::Q5_K>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
