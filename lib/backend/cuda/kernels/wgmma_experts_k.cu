// wgmma_expert_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::Q2_K>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q3_K>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q4_K>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q5_K>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q6_K>(WgmmaExpertArguments, int, const Launch&);

}  // namespace llm::cuda
