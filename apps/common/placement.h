// Where a model runs, on the CPU, on GPUs or both: the options -ngl, -cmoe, --device, -sm, --backend, and the choice
// that follows from them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/gpus.h"
#include "common/command.h"
#include "runtime/device_choice.h"
#include "runtime/placement_options.h"

namespace llm::app {

struct Placement {
  static constexpr int kAuto = PlacementOptions::kFitting, kAll = PlacementOptions::kAll;
  std::string backend;                         ///< --backend; empty: not given
  int gpu_layers = kAuto;                      ///< how many layers go to the GPU; 0: the CPU computes
  std::string option = "--gpu-layers";         ///< that said so
  int cpu_experts = 0;                         ///< layers, from the first, whose experts the CPU computes
  int cpu_ffn = 0;                             ///< layers whose dense feed-forward matrices it multiplies with
  std::vector<TensorOverride> overrides = {};  ///< --override-tensor
  std::string host_option = {};      ///< one that wants all in the host's memory, "--device none"; empty: none
  PlacementOptions::Room room = {};  ///< what the program will run
  DeviceWish gpus = {};              ///< which of several
  bool streams = true;               ///< long prompts bring the CPU's weights to the GPU
};

/// "NVIDIA H200, compute capability 9.0"
std::string gpu_text(const Gpu&);

/// -ngl, -cmoe, -ncmoe, -ncffn, -ot, --device, -sm, -ts, -mg, --no-kv-offload, --op-offload, --list-devices, --backend.
void add_placement_options(Command&, Placement&);

/// "5", "auto" or "all". Throws ErrorKind::Usage.
int parse_gpu_layers(std::string_view option, std::string_view text);

/// Of all times that an option of tensors' names was given. Throws ErrorKind::Usage.
std::vector<TensorOverride> all_overrides(std::string_view option, const std::vector<std::string>& texts);

struct BackendChoice {
  std::string name;
  PlacementOptions placement = {};
  enum class Failure {
    IsTheUsers,  ///< the backend was asked for
    MeansCpu,    ///< nobody asked: the CPU takes over, and a warning says why
  } failure = Failure::IsTheUsers;
};
/// Throws ErrorKind::Usage for options that contradict each other, ErrorKind::Device where a GPU is asked for that
/// cannot be used. Warns where there is one that cannot and none was asked for, and of options that do nothing on the
/// CPU.
BackendChoice choose_backend(const Placement&);

/// Why a model runs on the CPU although there is a GPU.
void warn_of_cpu(const std::string& reason);
/// Of a model that runs on the CPU: that options about several GPUs are for nothing. Said once.
void warn_of_idle_options(const Placement&);

}  // namespace llm::app
