// wgmma_expert_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::IQ4_NL>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::IQ4_XS>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::MXFP4>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::NVFP4>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::TQ2_0>(WgmmaExpertArguments, int, const Launch&);

}  // namespace llm::cuda
