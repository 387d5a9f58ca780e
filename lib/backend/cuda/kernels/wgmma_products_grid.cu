// wgmma_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_products.cuh"

namespace llm::cuda {

template void launch_wgmma_products<DType::IQ1_S>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::IQ1_M>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::IQ2_XXS>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::IQ2_XS>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::IQ3_XXS>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::IQ3_S>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q1_0>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::Q2_0>(WgmmaArguments, const Launch&);

}  // namespace llm::cuda
