// wgmma_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_products.cuh"

namespace llm::cuda {

template void launch_wgmma_products<DType::Q2_K>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q3_K>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q4_K>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q5_K>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q6_K>(WgmmaArguments, const Launch&);

}  // namespace llm::cuda
