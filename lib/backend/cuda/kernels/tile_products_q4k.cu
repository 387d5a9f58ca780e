#include "backend/cuda/kernels/tile_kernel.cuh"

namespace llm::cuda {

template void launch_tile_products<DType::Q4_K>(const TileArguments&, const Launch&);
template void launch_tile_products<DType::Q5_K>(const TileArguments&, const Launch&);

}  // namespace llm::cuda
