#include "backend/cuda/gpus.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/cuda/device.h"
#include "backend/cuda/gpu_code.h"

namespace llm {
namespace {

using cuda::check_cuda;

/// The oldest whose tensor cores and asynchronous copies the kernels know.
constexpr int kLeastMajor = 8;

/// 13020 -> "13.2"
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return {};
  return version_text(version);
}

/// Takes the error back, which the next call would find otherwise.
std::string words_of(cudaError_t error) {
  cudaGetLastError();
  return cudaGetErrorString(error);
}

Gpu gpu_of(int i) {
  cudaDeviceProp properties{};
  if (const cudaError_t asked = cudaGetDeviceProperties(&properties, i); asked != cudaSuccess) {
    Gpu gpu{.name = "GPU " + std::to_string(i)};
    gpu.why_not = gpu.name + " cannot be asked: " + words_of(asked);
    return gpu;
  }
  Gpu gpu{properties.name, properties.major, properties.minor, properties.totalGlobalMem};
  const std::string capability =
      gpu.name + " has compute capability " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + ", ";
  if (gpu.major < kLeastMajor) {
    gpu.why_not = capability + std::to_string(kLeastMajor) + ".0 is needed";
  } else if (!has_code_for(LLM_CUDA_ARCHITECTURES, gpu.major, gpu.minor)) {
    gpu.why_not = capability + "for which this program has no code: it was built with CMAKE_CUDA_ARCHITECTURES " +
                  LLM_CUDA_ARCHITECTURES;
  }
  return gpu;
}

void find_gpus(GpuReport& report) {
  int n = 0;
  const cudaError_t counted = cudaGetDeviceCount(&n);
  if (counted == cudaErrorInsufficientDriver && !report.driver.empty()) {
    report.state = GpuReport::State::Unusable;
    report.reason = "the driver knows CUDA " + report.driver + " at most, this program was built with " +
                    report.toolkit + ": " + words_of(counted);
    return;
  }
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && n == 0)) {
    cudaGetLastError();
    report.reason = "the driver shows no GPU";
    return;
  }
  if (counted != cudaSuccess) {
    report.state = GpuReport::State::Unusable;
    report.reason = "the driver cannot be used: " + words_of(counted);
    return;
  }
  for (int i = 0; i < n; ++i) report.gpus.push_back(gpu_of(i));
  const bool any = std::any_of(report.gpus.begin(), report.gpus.end(), [](const Gpu& g) { return g.why_not.empty(); });
  report.state = any ? GpuReport::State::Usable : GpuReport::State::Unusable;
  if (!any) report.reason = report.gpus.front().why_not;
}

/// The driver's management library, as far as it is needed: free memory without a context on the GPU, which takes time
/// and half a gigabyte there.
struct Management {
  struct Memory {
    unsigned long long total, free, used;
  };
  Management() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays open
    if (library == nullptr) return;
    const auto start = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    find = reinterpret_cast<decltype(find)>(dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    ask = reinterpret_cast<decltype(ask)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
    works = start != nullptr && find != nullptr && ask != nullptr && start() == 0;
  }

  /// Nothing where it does not know, or means another memory: a part of a GPU has the whole one's address.
  std::optional<std::uint64_t> free_memory(int gpu) const {
    char address[32] = {};
    void* device = nullptr;
    Memory memory{};
    cudaDeviceProp properties{};
    if (!works || cudaDeviceGetPCIBusId(address, sizeof address, gpu) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, gpu) != cudaSuccess || find(address, &device) != 0 ||
        ask(device, &memory) != 0)
      return std::nullopt;
    const std::uint64_t all = properties.totalGlobalMem;
    if (memory.total > all + all / 8 || memory.free > memory.total) return std::nullopt;
    return std::min<std::uint64_t>(memory.free, all);
  }

  int (*find)(const char*, void**) = nullptr;
  int (*ask)(void*, Memory*) = nullptr;
  bool works = false;
};

}  // namespace

GpuReport look_for_gpus() {
  GpuReport report{
      .state = GpuReport::State::NoGpu, .toolkit = version_text(CUDART_VERSION), .driver = driver_version()};
  if (report.driver.empty()) {
    report.reason = "no driver of NVIDIA's is installed";
  } else {
    find_gpus(report);
  }
  return report;
}

std::uint64_t free_gpu_memory(std::size_t gpu) {
  static const Management management;
  if (const auto free = management.free_memory(static_cast<int>(gpu))) return *free;
  cudaGetLastError();
  std::size_t free = 0, total = 0;
  cuda::use_device(static_cast<int>(gpu));
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

}  // namespace llm
