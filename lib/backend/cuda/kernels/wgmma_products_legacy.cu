// wgmma_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_products.cuh"

namespace llm::cuda {

template void launch_wgmma_products<DType::Q4_0>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q4_1>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q5_0>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q5_1>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q8_0>(WgmmaArguments, const Launch&);

}  // namespace llm::cuda
