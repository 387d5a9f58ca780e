#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

const RingDevice& ring_device() {
  static thread_local RingDevice device;  // asked once, and again where the device changes
  int id = 0;
  check_cuda(cudaGetDevice(&id), "asking for the device");
  if (id == device.id) return device;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, id), "asking for the device's sizes");
    return value;
  };
  device = {.id = id,
            .capability = attribute(cudaDevAttrComputeCapabilityMajor),
            .multiprocessors = attribute(cudaDevAttrMultiProcessorCount),
            .multiprocessor_bytes = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
            .reserved_bytes = attribute(cudaDevAttrReservedSharedMemoryPerBlock),
            .block_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)};
  return device;
}

/// The pairs that files of mixed types have among the matrices of one x.
bool launch_ring_pair(DType a, const TileArguments& of_a, DType b, const TileArguments& of_b, const Launch& at) {
  if (of_a.groups.n_groups != nullptr || of_a.columns > kColumns) return false;
#define LLM_RING_PAIR(first, second)                                                       \
  if (a == DType::first && b == DType::second)                                             \
    return launch_ring_kernel<Tile<DType::first>, Tile<DType::second>, 1>(of_a, of_b, at); \
  if (a == DType::second && b == DType::first)                                             \
    return launch_ring_kernel<Tile<DType::first>, Tile<DType::second>, 1>(of_b, of_a, at);
  LLM_RING_PAIR(Q4_K, Q6_K)
  LLM_RING_PAIR(Q5_K, Q6_K)
  LLM_RING_PAIR(Q4_K, Q5_K)
  LLM_RING_PAIR(Q3_K, Q5_K)
#undef LLM_RING_PAIR
  return false;
}

}  // namespace llm::cuda
