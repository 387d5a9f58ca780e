#include "backend/cuda/kernels/tile_kernel.cuh"

namespace llm::cuda {

template void launch_tile_products<DType::Q2_K>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::Q3_K>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::TQ1_0>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::TQ2_0>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::Q1_0>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::Q2_0>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
