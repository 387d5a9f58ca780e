#include "backend/cuda/kernels/tile_kernel.cuh"

namespace llm::cuda {

template void launch_tile_products<DType::Q4_0>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::Q4_1>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::Q5_0>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::Q5_1>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
