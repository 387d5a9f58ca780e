// Grouped products of some types of tiles: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/grouped_kernel.cuh"

namespace llm::cuda {

template void launch_grouped_products<DType::IQ1_S>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::IQ1_M>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::IQ2_XXS>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::IQ2_XS>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::IQ3_XXS>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::IQ3_S>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::Q1_0>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::Q2_0>(const GroupedArguments&, const Launch&);

}  // namespace llm::cuda
