#include "runtime/placement.h"

#include <algorithm>

#include "runtime/figures.h"
#include "runtime/memory_budget.h"
#include "runtime/placed_backend.h"

namespace llm {
namespace {

constexpr int kDevice = 0, kHost = 1;
/// Of a context that nobody asked for, what a placement makes room for.
constexpr std::int64_t kLeastContext = 4096;

bool is_whole(const PlacementOptions& o, ModelLayers m) { return o.layers > m.count; }
/// Of the layers that the device computes; the head's number if it computes that alone.
int first_layer(const PlacementOptions& o, ModelLayers m) { return is_whole(o, m) ? 0 : m.count + 1 - o.layers; }
/// One past the last layer whose experts the host computes for the device.
int experts_end(const PlacementOptions& o, ModelLayers m) { return m.experts ? std::min(o.host_experts, m.count) : 0; }

PlacementRule rule(int backend) {
  return {.first_layer = {}, .last_layer = {}, .role = {}, .tensor_pattern = {}, .backend = backend};
}

std::string layers_text(int first, int last) {
  return first == last ? "layer " + std::to_string(first)
                       : "layers " + std::to_string(first) + "-" + std::to_string(last);
}

}  // namespace

bool has_host_part(const PlacementOptions& o, ModelLayers m) {
  return o.layers == PlacementOptions::kFitting || !is_whole(o, m) || experts_end(o, m) > first_layer(o, m);
}

std::vector<PlacementRule> placement_rules(const PlacementOptions& o, ModelLayers m) {
  std::vector<PlacementRule> rules{rule(kDevice)};
  if (!is_whole(o, m)) {
    // What is outside the layers has the number -1: the embedding and the angles stay where the first layer is.
    PlacementRule before = rule(kHost), head = rule(kDevice);
    before.last_layer = first_layer(o, m) - 1;
    head.role = Role::Head;
    rules.insert(rules.end(), {before, head});
  }
  if (const int end = experts_end(o, m); end > 0) {
    PlacementRule experts = rule(kHost);
    experts.first_layer = 0;
    experts.last_layer = end - 1;
    experts.role = Role::Experts;
    rules.push_back(experts);
  }
  return rules;
}

std::string placement_name(const PlacementOptions& o, ModelLayers m, const Backend& device, const Backend& host) {
  const std::string on_device(device.name()), on_host(host.name());
  std::string text = on_device + " and " + on_host;
  const int first = first_layer(o, m), end = experts_end(o, m);
  if (!is_whole(o, m))
    text += ", " + on_device + (first == m.count ? " the head" : " from layer " + std::to_string(first));
  if (end > first) text += ", " + on_host + " the experts of " + layers_text(first, end - 1);
  return text;
}

int fitting_layers(const PlacementOptions& options, ModelLayers m, std::span<const std::unique_ptr<Backend>> devices,
                   const Graph& largest, std::int64_t trained_context) {
  const PlacementOptions::Room& room = options.room;
  const std::int64_t context = !room.context       ? std::min(trained_context, kLeastContext)
                               : *room.context > 0 ? *room.context
                                                   : trained_context;
  const auto fitting = [&](int layers) {
    PlacementOptions o = options;
    o.layers = layers;
    ContextRequest r{.context = context, .trained = trained_context, .sequences = room.sequences, .memories = {}};
    for (const MemoryShare& share : placed_memory(devices, placement_rules(o, m), {&largest, 1})) {
      // What stays in the host's memory is no reason to move more there.
      if (share.layout == Layout::Device) r.memories.push_back(needs_of(share, room.cache));
    }
    return fits(r, context);
  };
  int some = 0, too_many = m.count + 2;  // as far as is known
  if (fitting(too_many - 1)) return too_many - 1;
  --too_many;
  while (too_many - some > 1) {
    const int middle = some + (too_many - some) / 2;
    (fitting(middle) ? some : too_many) = middle;
  }
  return some;
}

std::string placement_text(const PlacementOptions& o, ModelLayers m, std::span<const MemoryShare> memories) {
  const std::string all = std::to_string(m.count + 1);
  std::string text = memories.front().name + ": ";
  text += is_whole(o, m) ? "all " + all + " layers" : std::to_string(o.layers) + " of " + all + " layers";
  const int first = first_layer(o, m), end = experts_end(o, m);
  if (end > first) text += " without the experts of " + layers_text(first, end - 1);
  text += ", " + bytes_text(memories.front().weights);
  return memories.size() == 1 ? text : text + "; " + memories.back().name + ": the rest";
}

}  // namespace llm
