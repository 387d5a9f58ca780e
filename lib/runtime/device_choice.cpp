#include "runtime/device_choice.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace llm {
namespace {

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& why) {
  throw Error(ErrorKind::Usage, "option " + std::string(option) + ": \"" + escaped(text) + "\" " + why);
}

/// f(part) for each part between separators.
template <class F>
void for_each_part(std::string_view text, std::string_view separators, const F& f) {
  for (;;) {
    const std::size_t end = text.find_first_of(separators);
    f(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string names_text(std::span<const int> gpus) {
  std::string text;
  for (const int gpu : gpus) text += (text.empty() ? "" : ", ") + gpu_name(gpu);
  return text;
}

std::string count_text(std::size_t gpus) { return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs"); }

/// The first with all but a hundredth of the most: what little others take changes from moment to moment.
int most_free(const std::vector<int>& gpus, const std::function<std::uint64_t(int)>& free) {
  std::vector<std::uint64_t> all;
  for (const int gpu : gpus) all.push_back(free(gpu));
  const std::uint64_t most = *std::max_element(all.begin(), all.end());
  const auto first = std::find_if(all.begin(), all.end(), [&](std::uint64_t f) { return f >= most - most / 100; });
  return static_cast<int>(first - all.begin());
}

void refuse_absent(const DeviceWish& wish, std::span<const int> usable) {
  for (const int gpu : wish.named) {
    if (std::find(usable.begin(), usable.end(), gpu) == usable.end())
      throw Error(ErrorKind::Device,
                  "option --device: " + gpu_name(gpu) + " cannot be used here, " + names_text(usable) + " can");
  }
}

void refuse_too_many(const DeviceWish& wish, std::span<const int> gpus) {
  if (wish.main && (*wish.main < 0 || *wish.main >= std::ssize(gpus))) {
    throw Error(ErrorKind::Device, "option --main-gpu " + std::to_string(*wish.main) + ": there " +
                                       (gpus.size() == 1 ? "is " : "are ") + count_text(gpus.size()) +
                                       ", counted from 0: " + names_text(gpus));
  }
  if (wish.shares.size() > gpus.size()) {
    throw Error(ErrorKind::Device, "option --tensor-split: " + std::to_string(wish.shares.size()) + " shares for " +
                                       count_text(gpus.size()) + ": " + names_text(gpus));
  }
}

}  // namespace

std::string gpu_name(int number) { return "CUDA" + std::to_string(number); }

std::optional<int> gpu_number(std::string_view name) {
  constexpr std::string_view kPrefix = "CUDA";
  const auto gpu = name.starts_with(kPrefix) ? number<int>(name.substr(kPrefix.size())) : std::nullopt;
  return gpu && *gpu >= 0 ? gpu : std::nullopt;
}

std::vector<int> parse_gpus(std::string_view option, std::string_view text) {
  std::vector<int> gpus;
  for_each_part(text, ",", [&](std::string_view name) {
    const auto gpu = gpu_number(name);
    if (!gpu) refuse(option, text, "is not none or GPUs that --list-devices names, such as CUDA0,CUDA1");
    if (std::find(gpus.begin(), gpus.end(), *gpu) != gpus.end()) refuse(option, text, "names a GPU twice");
    gpus.push_back(*gpu);
  });
  return gpus;
}

DeviceWish::Split parse_split(std::string_view option, std::string_view text) {
  if (text == "none") return DeviceWish::Split::None;
  if (text == "layer") return DeviceWish::Split::Layers;
  if (text == "row" || text == "tensor") {
    throw Error(ErrorKind::Usage, "option " + std::string(option) + " " + std::string(text) +
                                      " is recognised, not supported: the parts of one matrix stay together, whole "
                                      "layers go to different GPUs (layer)");
  }
  refuse(option, text, "is not none or layer");
}

std::vector<double> parse_shares(std::string_view option, std::string_view text) {
  std::vector<double> shares;
  for_each_part(text, ",/", [&](std::string_view part) {
    const auto share = number<double>(part);
    if (!share || !std::isfinite(*share) || *share < 0)
      refuse(option, text, "is not a list of shares such as 3,1: numbers, none below 0");
    shares.push_back(*share);
  });
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (all == 0) refuse(option, text, "gives no GPU a share");
  if (!std::isfinite(all)) refuse(option, text, "has shares that are too large to add up");
  return shares;
}

void refuse_contradictions(const DeviceWish& wish) {
  if (wish.split == DeviceWish::Split::None && !wish.shares.empty())
    throw Error(ErrorKind::Usage, "--split-mode none and --tensor-split contradict each other: give one of them");
  if (wish.main && (wish.split == DeviceWish::Split::Layers || !wish.shares.empty())) {
    throw Error(ErrorKind::Usage, "--main-gpu and " +
                                      std::string(wish.shares.empty() ? "--split-mode layer" : "--tensor-split") +
                                      " contradict each other: give one of them");
  }
}

void choose_devices(PlacementOptions& placement, const DeviceWish& wish, std::span<const int> usable,
                    const std::function<std::uint64_t(int)>& free) {
  using Split = DeviceWish::Split;
  refuse_absent(wish, usable);
  std::vector<int> gpus = wish.named.empty() ? std::vector<int>(usable.begin(), usable.end()) : wish.named;
  refuse_too_many(wish, gpus);
  placement.shares = wish.shares;
  if (!wish.shares.empty()) placement.shares.resize(gpus.size(), 0);  // those left out get nothing, as in llama.cpp
  const bool split = wish.split == Split::Layers || !wish.shares.empty();
  placement.split = split ? PlacementOptions::Split::Always : PlacementOptions::Split::WhereNeeded;
  placement.preferred = wish.main ? *wish.main : split || gpus.size() == 1 ? 0 : most_free(gpus, free);
  if (wish.split == Split::None) {
    gpus = {gpus[static_cast<std::size_t>(placement.preferred)]};
    placement.preferred = 0;
  }
  placement.devices = std::move(gpus);
}

}  // namespace llm
