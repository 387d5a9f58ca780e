// wgmma_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_products.cuh"

namespace llm::cuda {

template void launch_wgmma_products<DType::IQ4_NL>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::IQ4_XS>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::MXFP4>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::NVFP4>(WgmmaArguments, const Launch&);
template void launch_wgmma_products<DType::TQ2_0>(WgmmaArguments, const Launch&);

}  // namespace llm::cuda
