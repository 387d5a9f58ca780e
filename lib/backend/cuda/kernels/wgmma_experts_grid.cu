// wgmma_expert_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::IQ1_S>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::IQ1_M>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::IQ2_XXS>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::IQ2_XS>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::IQ3_XXS>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::IQ3_S>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q1_0>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q2_0>(WgmmaExpertArguments, int, const Launch&);

}  // namespace llm::cuda
