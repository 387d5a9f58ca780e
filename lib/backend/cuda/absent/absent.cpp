// Takes the cuda backend's place in builds without CUDA, so that callers need no conditions.
#include "backend/cuda/cuda.h"
#include "base/error.h"

namespace llm {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions&) {
  throw Error(ErrorKind::Device,
              "backend cuda is not available: this program was built without CUDA (configure with -DLLM_CUDA=ON)");
}

}  // namespace llm
