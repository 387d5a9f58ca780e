// wgmma_expert_products() of some types: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::Q4_0>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q4_1>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q5_0>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q5_1>(WgmmaExpertArguments, int, const Launch&);
template void launch_wgmma_experts<DType::Q8_0>(WgmmaExpertArguments, int, const Launch&);

}  // namespace llm::cuda
