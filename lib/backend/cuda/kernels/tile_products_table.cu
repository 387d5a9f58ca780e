#include "backend/cuda/kernels/tile_kernel.cuh"

namespace llm::cuda {

template void launch_tile_products<DType::IQ4_NL>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::IQ4_XS>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::MXFP4>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::NVFP4>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
