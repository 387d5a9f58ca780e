// Memory that the programs of all buckets share: activations, and the library's own.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/gemm.h"

namespace llm::cuda {

class CudaWorkspace final : public Workspace {
 public:
  explicit CudaWorkspace(std::size_t bytes) : memory_(bytes) {}
  std::size_t bytes() const override { return memory_.bytes(); }
  std::byte* data() const { return memory_.data(); }

 private:
  DeviceBuffer memory_;
};

}  // namespace llm::cuda
