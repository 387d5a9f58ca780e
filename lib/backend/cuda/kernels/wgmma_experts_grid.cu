// wgmma_expert_products() and wgmma_expert_products_f8() of some types: a file for each few, so that they compile side
// by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::IQ1_S>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::IQ1_M>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::IQ2_XXS>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::IQ2_XS>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::IQ3_XXS>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::IQ3_S>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q1_0>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q2_0>(const WgmmaExpertArguments&, int, const Launch&);

template void launch_wgmma_experts_f8<DType::IQ1_S>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::IQ1_M>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::IQ2_XXS>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::IQ2_XS>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::IQ3_XXS>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::IQ3_S>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q1_0>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q2_0>(const WgmmaExpertArguments&, const Launch&);

}  // namespace llm::cuda
