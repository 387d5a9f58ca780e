// Which of a machine's GPUs a model may use: from --device, --split-mode, --tensor-split and --main-gpu.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/placement_options.h"

namespace llm {

struct DeviceWish {
  std::vector<int> named = {};  ///< --device, in this order; nothing: all
  enum class Split : std::uint8_t { Unsaid, None, Layers } split = Split::Unsaid;
  std::vector<double> shares = {};  ///< --tensor-split
  std::optional<int> main = {};     ///< --main-gpu: a place among those named, or a GPU's number
  bool operator==(const DeviceWish&) const = default;
};

/// "CUDA1", as --list-devices names them.
std::string gpu_name(int number);
/// Of such a name; nothing for others.
std::optional<int> gpu_number(std::string_view name);
/// "CUDA0,CUDA1". Throws ErrorKind::Usage for other names and for one that comes twice.
std::vector<int> parse_gpus(std::string_view option, std::string_view text);
/// "none" or "layer". Throws ErrorKind::Usage, for row and tensor with the reason.
DeviceWish::Split parse_split(std::string_view option, std::string_view text);
/// "3,1" or "3/1". Throws ErrorKind::Usage for what is no number, for negative ones, and where none is above zero.
std::vector<double> parse_shares(std::string_view option, std::string_view text);
/// Throws ErrorKind::Usage for wishes that contradict each other.
void refuse_contradictions(const DeviceWish&);

/// Fills in the devices. `usable`: the numbers of GPUs that can be used, one at least. `free` says how much memory is
/// free on one; it is asked only where that decides. Throws ErrorKind::Device for GPUs that are not there.
void choose_devices(PlacementOptions&, const DeviceWish&, std::span<const int> usable,
                    const std::function<std::uint64_t(int)>& free);

}  // namespace llm
