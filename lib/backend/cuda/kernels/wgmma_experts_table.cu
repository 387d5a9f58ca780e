// wgmma_expert_products() and wgmma_expert_products_f8() of some types: a file for each few, so that they compile side
// by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::IQ4_NL>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::IQ4_XS>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::MXFP4>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::NVFP4>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::TQ2_0>(const WgmmaExpertArguments&, int, const Launch&);

template void launch_wgmma_experts_f8<DType::IQ4_NL>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::IQ4_XS>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::MXFP4>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::NVFP4>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::TQ2_0>(const WgmmaExpertArguments&, const Launch&);

}  // namespace llm::cuda
