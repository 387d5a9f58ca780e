// Which layers of a model compute where: from what was asked for, and from what fits, to the rules that cut its graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/partition.h"
#include "runtime/placement_options.h"
#include "runtime/tensor_overrides.h"

namespace llm {

/// Layers of a model, and whether they have experts.
struct ModelLayers {
  int count = 0;
  bool experts = false;
};

/// How many layers each device computes, in their order: the last one's include the head. What comes before is the
/// host's; nothing does, the embedding neither, where they are more than the model's layers.
struct LayerPlan {
  std::vector<int> layers;
  int host_experts = 0;
  /// In steps of so many tokens or more the first device computes the host's layers, too, of a device's own layers the
  /// experts as well. The embedding stays with the host, which keeps the weights and the caches. 0: never.
  int streamed_from = 0;
  /// Where each of the options' overrides goes: index of a device, or TensorOverride::kHost.
  std::vector<int> overrides = {};
};

/// Whether the host computes anything.
bool has_host_part(const LayerPlan&, ModelLayers);

/// For the plan's devices, behind which comes the host.
StepRules step_rules(const LayerPlan&, ModelLayers);
/// "cuda and cpu, cuda from layer 12, cpu the experts of layers 0-3": no two placements of a model have the same.
std::string plan_name(const LayerPlan&, ModelLayers, std::span<const TensorOverride>, std::string_view device,
                      std::string_view host);

/// As llama.cpp shares them out: layer i of n goes where i / n falls among the shares.
std::vector<int> share_layers(int layers, std::span<const double> shares);

using Fits = std::function<bool(const std::vector<int>& layers)>;
/// Layers of each device: `options.layers`, or with kFitting as many of `all` as fit. They are shared out by
/// `options.shares`; without these in proportion to what is free, and if that does not fit, the devices are filled from
/// the last one on. A wish that does not fit stays as it was asked for.
std::vector<int> plan_layers(const PlacementOptions&, int all, std::span<const double> free, const Fits&);

/// Whether a layer is to attend to keys and values that another device keeps, which no device can.
bool parts_caches(const LayerPlan&, ModelLayers, const Graph&);
/// Whether every device has room for its layers with their part of the cache and of the work that the largest step
/// takes. `devices` are the plan's and the host.
bool fits(const LayerPlan&, ModelLayers, const PlacementOptions::Room&,
          std::span<const std::unique_ptr<Backend>> devices, const Graph& largest, std::int64_t trained_context);

/// "GPU: 20 of 33 layers, 7.1 GiB; CPU: the rest", of the memories that hold the model: the devices', by their names,
/// then perhaps the host's.
std::string plan_text(const LayerPlan&, ModelLayers, std::span<const TensorOverride>,
                      std::span<const std::string> devices, std::span<const MemoryShare>);

}  // namespace llm
