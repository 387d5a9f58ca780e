// Takes the cuda backend's place in builds without CUDA, so that callers need no conditions.
#include "backend/cuda/cuda.h"
#include "backend/cuda/gpus.h"
#include "base/error.h"

namespace llm {
namespace {

constexpr const char* kNotBuilt = "this program was built without CUDA";

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) {
  throw Error(ErrorKind::Device,
              std::string("backend cuda is not available: ") + kNotBuilt + " (configure with -DLLM_CUDA=ON)");
}

GpuReport look_for_gpus() { return {.state = GpuReport::State::NotBuilt, .reason = kNotBuilt}; }

std::uint64_t free_gpu_memory(std::size_t) { throw Error(ErrorKind::Device, kNotBuilt); }

}  // namespace llm
