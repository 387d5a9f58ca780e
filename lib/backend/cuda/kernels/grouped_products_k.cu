// Grouped products of some types of tiles: a file for each few, so that they compile side by side.
#include "backend/cuda/kernels/grouped_kernel.cuh"

namespace llm::cuda {

template void launch_grouped_products<DType::Q2_K>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::Q3_K>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::Q4_K>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::Q5_K>(const GroupedArguments&, const Launch&);
template void launch_grouped_products<DType::Q6_K>(const GroupedArguments&, const Launch&);

}  // namespace llm::cuda
