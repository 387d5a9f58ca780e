// Grouped products of some types of tiles: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/grouped_kernel.cuh"

namespace llm::cuda {

template void launch_grouped_products<DType::IQ4_NL>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::IQ4_XS>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::MXFP4>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::NVFP4>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::TQ2_0>(const GroupedArguments&, const Launch&);

}  // namespace llm::cuda
