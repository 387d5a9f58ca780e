// wgmma_expert_products() and wgmma_expert_products_f8() of some types: a file for each few, so that they compile side
// by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::Q4_0>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q4_1>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q5_0>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q5_1>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q8_0>(const WgmmaExpertArguments&, int, const Launch&);

template void launch_wgmma_experts_f8<DType::Q4_0>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q4_1>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q5_0>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q5_1>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q8_0>(const WgmmaExpertArguments&, const Launch&);

}  // namespace llm::cuda
