#include "runtime/tensor_overrides.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/name_pattern.h"
#include "model/stored_weight.h"
#include "runtime/device_choice.h"

namespace llm {
namespace {

/// CUDA_Host is what llama.cpp calls the host's memory that a GPU can read.
std::optional<int> device_named(std::string_view name) {
  if (name == "CPU" || name == "CUDA_Host") return TensorOverride::kHost;
  return gpu_number(name);
}

/// The = between a pattern and its device. Names of tensors have none, so that a pattern's stand in look-aheads alone.
std::size_t device_sign(std::string_view text) {
  constexpr std::string_view kLookAhead = "(?=";
  std::size_t at = text.find('=');
  while (at != std::string_view::npos && text.substr(0, at + 1).ends_with(kLookAhead)) at = text.find('=', at + 1);
  return at;
}

/// Up to a comma behind a device: patterns have commas, too, as in {1,2}.
std::string_view first_part(std::string_view text) {
  const std::size_t equals = device_sign(text);
  return equals == std::string_view::npos ? text : text.substr(0, text.find(',', equals));
}

/// N of "blk.N.attn_q.weight"; -1 outside the layers.
int layer_of(std::string_view tensor) {
  constexpr std::string_view kPrefix = "blk.";
  int layer = -1;
  if (tensor.starts_with(kPrefix))
    std::from_chars(tensor.data() + kPrefix.size(), tensor.data() + tensor.size(), layer);
  return layer;
}

/// The model's tensor that a weight is, is a part of, or changes as an adapter's.
std::string_view model_tensor(std::string_view weight) {
  const std::string_view tensor = tensor_of(weight);
  return tensor.substr(0, tensor.find(".lora_"));
}

bool names(const TensorOverride& o, const NamePattern& pattern, std::string_view tensor) {
  if (o.layers != std::numeric_limits<int>::max()) {
    const int layer = layer_of(tensor);
    if (layer < 0 || layer >= o.layers) return false;
  }
  return pattern.matches(tensor);
}

}  // namespace

std::vector<TensorOverride> parse_tensor_overrides(std::string_view option, std::string_view text) {
  const auto refuse = [&](std::string_view part, const std::string& why) {
    throw Error(ErrorKind::Usage, "option " + std::string(option) + ": \"" + escaped(part) + "\" " + why);
  };
  std::vector<TensorOverride> overrides;
  for (;;) {
    const std::string_view part = first_part(text);
    const std::size_t equals = device_sign(part);
    if (equals == std::string_view::npos || equals == 0)
      refuse(part, "is not a pattern and where its tensors go, such as exps=CPU");
    const std::optional<int> device = device_named(part.substr(equals + 1));
    if (!device) refuse(part, "does not end in CPU or a GPU that --list-devices names, such as CUDA0");
    overrides.push_back({.pattern = std::string(part.substr(0, equals)),
                         .device = *device,
                         .given = std::string(option) + " " + escaped(part)});
    try {
      const NamePattern pattern(overrides.back().pattern);
    } catch (const Error& e) {
      throw Error(ErrorKind::Usage, "option " + std::string(option) + ": " + e.what());
    }
    if (part.size() == text.size()) return overrides;
    text.remove_prefix(part.size() + 1);
  }
}

TensorOverride host_ffn(int layers) {
  return {.pattern = R"(\.ffn_(gate|up|down)\.)", .layers = layers, .given = "--n-cpu-ffn " + std::to_string(layers)};
}

OverriddenWeights overridden_weights(std::vector<TensorOverride>& overrides, const Graph& graph) {
  std::vector<NamePattern> patterns;
  for (const TensorOverride& o : overrides) patterns.emplace_back(o.pattern);
  OverriddenWeights all;
  std::set<std::string_view> counted;
  for (const ValueInfo& v : graph.values()) {
    if (v.kind != ValueKind::Weight) continue;
    const std::string_view tensor = model_tensor(v.name);
    for (std::size_t i = 0; i < overrides.size(); ++i) {
      if (!names(overrides[i], patterns[i], tensor)) continue;
      all.emplace(v.name, static_cast<int>(i));
      overrides[i].tensors += counted.insert(tensor).second ? 1 : 0;
      break;
    }
  }
  return all;
}

}  // namespace llm
