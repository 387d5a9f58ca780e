// wgmma_expert_products() and wgmma_expert_products_f8() of some types: a file for each few, so that they compile side
// by side.
#include "backend/cuda/kernels/wgmma_experts.cuh"

namespace llm::cuda {

template void launch_wgmma_experts<DType::Q2_K>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q3_K>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q4_K>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q5_K>(const WgmmaExpertArguments&, int, const Launch&);
template void launch_wgmma_experts<DType::Q6_K>(const WgmmaExpertArguments&, int, const Launch&);

template void launch_wgmma_experts_f8<DType::Q2_K>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q3_K>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q4_K>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q5_K>(const WgmmaExpertArguments&, const Launch&);
template void launch_wgmma_experts_f8<DType::Q6_K>(const WgmmaExpertArguments&, const Launch&);

}  // namespace llm::cuda
