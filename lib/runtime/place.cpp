#include "runtime/place.h"

#include <algorithm>
#include <future>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/composite_backend.h"
#include "runtime/figures.h"
#include "runtime/memory_budget.h"
#include "runtime/session.h"

namespace llm {
namespace {

using Devices = std::vector<std::unique_ptr<Backend>>;  // the host is the last

MemoryShare memory_of(const Backend& device) { return device.memory({}).front(); }

/// All that may be used, in their order; made side by side, since drivers take their time.
void add_others(Devices& devices, const PlaceRequest& r) {
  std::unique_ptr<Backend> preferred = std::move(devices.front()), host = std::move(devices.back());
  devices.clear();
  std::vector<std::future<std::unique_ptr<Backend>>> others(r.wish.devices.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (static_cast<int>(i) != r.wish.preferred)
      others[i] = std::async([&r, device = r.wish.devices[i]] { return r.make_device(device); });
  }
  for (auto& other : others) devices.push_back(other.valid() ? other.get() : std::move(preferred));
  devices.push_back(std::move(host));
}

void leave_out_unused(Devices& devices, LayerPlan& plan) {
  for (std::size_t d = plan.layers.size(); d-- > 0;) {
    const int device = static_cast<int>(d);
    if (plan.layers[d] > 0 || std::ranges::find(plan.overrides, device) != plan.overrides.end()) continue;
    plan.layers.erase(plan.layers.begin() + device);
    devices.erase(devices.begin() + device);
    for (int& to : plan.overrides) to -= to > device ? 1 : 0;
  }
}

/// Where the overrides go among the devices with these numbers; nothing if one of them goes to another.
std::optional<std::vector<int>> override_places(const PlacementOptions& wish, std::span<const int> devices) {
  std::vector<int> places;
  for (const TensorOverride& o : wish.overrides) {
    const auto found = std::ranges::find(devices, o.device);
    if (o.device != TensorOverride::kHost && found == devices.end()) return std::nullopt;
    places.push_back(o.device == TensorOverride::kHost ? o.device : static_cast<int>(found - devices.begin()));
  }
  return places;
}

/// From how many tokens on the host's weights are brought to devices; 0 where they are not to be, no step has so many,
/// a device cannot compute with them, or layers read the keys and values of others, which are brought for their own
/// layer alone.
int streamed_from(const Devices& devices, const PlaceRequest& r, const Graph& largest) {
  const Backend& device = *devices.front();
  const int tokens = r.wish.streams ? device.streams_from(r.layers.experts) : 0;
  if (tokens == 0 || largest.bucket().tokens < tokens) return 0;
  const Graph graph = r.graph({.tokens = tokens, .sequences = 1, .outputs = 1});
  const auto nodes = graph.nodes();
  const bool all = std::all_of(nodes.begin(), nodes.end(),
                               [&](const Node& n) { return device.supports(graph, n).ok && !earlier_cache(graph, n); });
  return all ? tokens : 0;
}

/// Whether long steps find what a model with recurrent layers remembers where short ones left it. Recurrent states do
/// not move, and what such layers see again is read with keys and values that the step does not make, of which a device
/// that is brought them has but those before the step.
bool memory_stays(const LayerPlan& plan, ModelLayers layers, const Graph& graph) {
  if (recurrent_types(graph).empty()) return true;
  const StepRules rules = step_rules(plan, layers);
  return std::ranges::all_of(graph.nodes(), [&](const Node& n) {
    const bool remembers =
        std::ranges::any_of(n.in, [&](std::uint32_t v) { return outlives_step(graph.info(v).kind); });
    return !remembers || backend_of(n, rules.rules) == backend_of(n, rules.streaming);
  });
}

[[noreturn]] void refuse_any_part(const std::vector<MemoryShare>& memories, ModelLayers layers) {
  std::string where, free;
  for (const MemoryShare& m : memories) {
    where += (where.empty() ? "" : " or ") + owned_text(m.name);
    free += (free.empty() ? "" : ", ") + bytes_text(m.available);
  }
  throw Error(ErrorKind::Memory, "not one of the model's " + std::to_string(layers.count + 1) +
                                     " layers fits with its cache into " + where + ": " + free + " available");
}

bool is_nothing(const std::vector<int>& layers) {
  return std::all_of(layers.begin(), layers.end(), [](int n) { return n == 0; });
}

/// Layers for which there is room go to the host all the same where others attend to what they keep.
void keep_caches_together(LayerPlan& plan, ModelLayers layers, const Graph& graph) {
  while (!is_nothing(plan.layers) && parts_caches(plan, layers, graph))
    --*std::ranges::find_if(plan.layers, [](int n) { return n > 0; });
}

/// Of the preferred device alone if that is enough, else of all; adds these. Weights are brought to devices only where
/// there is room for them.
LayerPlan make_plan(Devices& devices, const PlaceRequest& r) {
  const SessionOptions session{.sequences = r.wish.room.sequences, .batch_tokens = r.wish.room.batch_tokens};
  const Graph largest = r.graph(largest_bucket(*devices.front(), session));
  LayerPlan plan{.layers = {},
                 .host_experts = r.wish.host_experts,
                 .streamed_from = streamed_from(devices, r, largest),
                 .overrides = {}};
  const Fits fit = [&](const std::vector<int>& layers) {
    LayerPlan trial = plan;
    trial.layers = layers;
    return fits(trial, r.layers, r.wish.room, devices, largest, r.context);
  };
  const auto alone = override_places(r.wish, {&r.wish.devices.at(static_cast<std::size_t>(r.wish.preferred)), 1});
  const auto among_all = override_places(r.wish, r.wish.devices);
  check(among_all.has_value(), "tensors go to devices that may be used");
  const int all = r.layers.count + 1;
  const bool fitting = r.wish.layers == PlacementOptions::kFitting;
  if (r.wish.devices.size() > 1) {
    if (r.wish.split == PlacementOptions::Split::WhereNeeded && alone) {
      plan.layers = {fitting ? all : std::min(r.wish.layers, all)};
      plan.overrides = *alone;
      if (fit(plan.layers)) return plan;
    }
    add_others(devices, r);
  }
  plan.overrides = *among_all;
  std::vector<double> free;
  std::vector<MemoryShare> memories;
  for (std::size_t d = 0; d + 1 < devices.size(); ++d) {
    memories.push_back(memory_of(*devices[d]));
    free.push_back(static_cast<double>(memories.back().available));
  }
  plan.layers = plan_layers(r.wish, all, free, fit);
  if (fitting) keep_caches_together(plan, r.layers, largest);
  if (plan.streamed_from > 0) {
    const LayerPlan bringing = plan;
    const bool possible = !is_nothing(plan.layers) && fit(plan.layers) && memory_stays(plan, r.layers, largest);
    plan.streamed_from = 0;
    plan.layers = plan_layers(r.wish, all, free, fit);
    if (possible && has_host_part(plan, r.layers)) plan = bringing;
  }
  if (is_nothing(plan.layers)) refuse_any_part(memories, r.layers);
  leave_out_unused(devices, plan);
  return plan;
}

}  // namespace

Placed place(std::unique_ptr<Backend> preferred, const PlaceRequest& r) {
  Devices devices;
  devices.push_back(std::move(preferred));
  devices.push_back(r.make_host());
  LayerPlan plan = make_plan(devices, r);
  const bool with_host = has_host_part(plan, r.layers);
  if (!with_host) plan.streamed_from = 0;
  const Graph graph = r.graph(Bucket{});
  std::vector<std::string> labels;
  for (std::size_t d = 0; d < plan.layers.size(); ++d) labels.push_back(memory_of(*devices[d]).name);
  Placed placed{.backend = nullptr, .devices = static_cast<int>(plan.layers.size()), .has_host_part = with_host};
  if (plan.layers.size() == 1 && !with_host) {
    placed.backend = std::move(devices.front());
  } else {
    std::string name = plan_name(plan, r.layers, r.wish.overrides, devices.front()->name(), devices.back()->name());
    if (!with_host) devices.pop_back();
    placed.backend = make_composite_backend(std::move(devices), step_rules(plan, r.layers), graph, std::move(name));
  }
  if (with_host || r.wish.devices.size() > 1)
    placed.text = plan_text(plan, r.layers, r.wish.overrides, labels, placed.backend->memory({&graph, 1}));
  return placed;
}

}  // namespace llm
