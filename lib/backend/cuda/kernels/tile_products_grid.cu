#include "backend/cuda/kernels/tile_kernel.cuh"

namespace llm::cuda {

template void launch_tile_products<DType::IQ1_S>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::IQ1_M>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::IQ2_XXS>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::IQ2_XS>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::IQ2_S>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::IQ3_XXS>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::IQ3_S>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
