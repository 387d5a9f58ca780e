#include "backend/cuda/gpus.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/device.h"

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
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp properties{};
    if (const cudaError_t asked = cudaGetDeviceProperties(&properties, i); asked != cudaSuccess) {
      report.state = GpuReport::State::Unusable;
      report.reason = "GPU " + std::to_string(i) + " cannot be asked: " + words_of(asked);
      return;
    }
    report.gpus.push_back({properties.name, properties.major, properties.minor, properties.totalGlobalMem});
  }
  report.state = GpuReport::State::Usable;
  const Gpu& first = report.gpus.front();
  if (first.major >= kLeastMajor) return;
  report.state = GpuReport::State::Unusable;
  report.reason = first.name + " has compute capability " + std::to_string(first.major) + "." +
                  std::to_string(first.minor) + ", " + std::to_string(kLeastMajor) + ".0 is needed";
}

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
  std::size_t free = 0, total = 0;
  check_cuda(cudaSetDevice(static_cast<int>(gpu)), "choosing the device");
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  check_cuda(cudaSetDevice(0), "choosing the device");  // the one that the backend uses
  return free;
}

}  // namespace llm
