// The GPUs of this machine as CUDA shows them, and why the backend cannot use them where it cannot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace llm {

struct Gpu {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  std::uint64_t memory = 0;  ///< bytes in all
  std::string why_not = {};  ///< the backend cannot use it: why, in words that end a sentence
};

struct GpuReport {
  enum class State : std::uint8_t {
    NotBuilt,  ///< this program has no CUDA
    NoGpu,     ///< no GPU or no driver: nothing that could be used
    Unusable,  ///< there is one, and something stands in the way
    Usable,
  } state = State::NotBuilt;
  std::string reason = {};     ///< unless Usable: why not, in words that end a sentence
  std::string toolkit = {};    ///< the CUDA that the program was built with, "13.0"; empty: none
  std::string driver = {};     ///< the newest CUDA that the driver knows; empty: there is no driver
  std::vector<Gpu> gpus = {};  ///< by their numbers; where the report is Usable, one at least can be used
};

/// Number of the first that can be used; 0 where none can.
inline int first_usable_gpu(const GpuReport& report) {
  const auto first =
      std::find_if(report.gpus.begin(), report.gpus.end(), [](const Gpu& gpu) { return gpu.why_not.empty(); });
  return first == report.gpus.end() ? 0 : static_cast<int>(first - report.gpus.begin());
}

/// Starts the driver, but nothing on a GPU.
GpuReport look_for_gpus();

/// Bytes that are free on a GPU of the report, by its index. Asks the driver's management library, which starts nothing
/// there; without it CUDA, which takes a fraction of a second. Throws ErrorKind::Device.
std::uint64_t free_gpu_memory(std::size_t gpu);

}  // namespace llm
