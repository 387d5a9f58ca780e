#include "runtime/layer_plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "runtime/composite_backend.h"
#include "runtime/figures.h"
#include "runtime/memory_budget.h"
#include "runtime/recurrent_states.h"

namespace llm {
namespace {

/// Of a context that nobody asked for, what a placement makes room for.
constexpr std::int64_t kLeastContext = 4096;

int sum(const std::vector<int>& layers) { return std::accumulate(layers.begin(), layers.end(), 0); }
bool is_whole(const LayerPlan& p, ModelLayers m) { return sum(p.layers) > m.count; }
/// Of the layers that a device computes; the head's number if it computes that alone.
int first_layer(const LayerPlan& p, ModelLayers m, std::size_t device = 0) {
  int first = m.count + 1 - sum(p.layers);
  for (std::size_t d = 0; d < device; ++d) first += p.layers[d];
  return first;
}
/// One past the last layer whose experts the host computes for the devices.
int experts_end(const LayerPlan& p, ModelLayers m) { return m.experts ? std::min(p.host_experts, m.count) : 0; }

PlacementRule rule(int backend) {
  return {.first_layer = {}, .last_layer = {}, .role = {}, .tensor_override = {}, .backend = backend};
}

PlacementRule layers_rule(int first, int last, int backend) {
  PlacementRule r = rule(backend);
  r.first_layer = first;
  r.last_layer = last;
  return r;
}

std::string layers_text(int first, int last) {
  return first == last ? "layer " + std::to_string(first)
                       : "layers " + std::to_string(first) + "-" + std::to_string(last);
}

/// "layers 12-31 and the head", of a device.
std::string part_text(const LayerPlan& p, ModelLayers m, std::size_t device) {
  const int first = first_layer(p, m, device), end = first + p.layers[device];
  if (end == first) return "no layer";
  if (first == m.count) return "the head";
  return layers_text(first, std::min(end, m.count) - 1) + (end > m.count ? " and the head" : "");
}

/// "; tensors by name: 96 on CPU, 3 on CUDA1".
std::string overrides_text(const LayerPlan& p, std::span<const TensorOverride> overrides,
                           std::span<const std::string> devices) {
  std::string text;
  for (int device = TensorOverride::kHost; device < std::ssize(devices); ++device) {
    int tensors = 0;
    for (std::size_t i = 0; i < overrides.size(); ++i) tensors += p.overrides[i] == device ? overrides[i].tensors : 0;
    if (tensors == 0) continue;
    const std::string name = device == TensorOverride::kHost ? "CPU" : devices[static_cast<std::size_t>(device)];
    text += (text.empty() ? "; tensors by name: " : ", ") + std::to_string(tensors) + " on " + name;
  }
  return text;
}

/// The largest of 0..most that `fitting` takes; a larger one takes no less.
int largest_fitting(int most, const std::function<bool(int)>& fitting) {
  if (most == 0 || fitting(most)) return most;
  int some = 0, too_many = most;
  while (too_many - some > 1) {
    const int middle = some + (too_many - some) / 2;
    (fitting(middle) ? some : too_many) = middle;
  }
  return some;
}

/// The last device gets as many as it has room for, then the one before.
std::vector<int> fill(int most, std::size_t devices, const Fits& fits) {
  std::vector<int> layers(devices, 0);
  for (std::size_t d = devices; d-- > 0;) {
    layers[d] = largest_fitting(most - sum(layers), [&, others = layers](int n) {
      std::vector<int> some = others;
      some[d] = n;
      return fits(some);
    });
  }
  return layers;
}

std::size_t first_used(const std::vector<int>& layers) {
  const auto used = std::find_if(layers.begin(), layers.end(), [](int n) { return n > 0; });
  return used == layers.end() ? 0 : static_cast<std::size_t>(used - layers.begin());
}

}  // namespace

bool has_host_part(const LayerPlan& p, ModelLayers m) {
  const auto on_host = [](int device) { return device == TensorOverride::kHost; };
  return !is_whole(p, m) || experts_end(p, m) > first_layer(p, m) || std::ranges::any_of(p.overrides, on_host);
}

StepRules step_rules(const LayerPlan& p, ModelLayers m) {
  const int host = static_cast<int>(p.layers.size());
  const int device = static_cast<int>(first_used(p.layers)), first = first_layer(p, m);
  // What is outside the layers has the number -1: the embedding and the angles stay where the first layer is.
  std::vector<PlacementRule> rules{rule(is_whole(p, m) ? device : host)}, streaming = rules;
  if (const int last = std::min(first, m.count) - 1; last >= 0) streaming.push_back(layers_rule(0, last, device));
  const auto add = [&](const PlacementRule& r) {
    for (auto* list : {&rules, &streaming}) list->push_back(r);
  };
  for (std::size_t d = 0; d < p.layers.size(); ++d) {
    const int begin = first_layer(p, m, d), last = std::min(begin + p.layers[d], m.count) - 1;
    if (last >= begin) add(layers_rule(begin, last, static_cast<int>(d)));
  }
  if (const auto last = std::find_if(p.layers.rbegin(), p.layers.rend(), [](int n) { return n > 0; });
      last != p.layers.rend()) {
    PlacementRule head = rule(static_cast<int>(p.layers.rend() - last) - 1);
    head.role = Role::Head;
    add(head);
  }
  if (const int end = experts_end(p, m); end > 0) {
    rules.push_back(layers_rule(0, end - 1, host));
    rules.back().role = Role::Experts;
  }
  for (std::size_t i = 0; i < p.overrides.size(); ++i) {
    const bool on_host = p.overrides[i] == TensorOverride::kHost;
    PlacementRule named = rule(on_host ? host : p.overrides[i]);
    named.tensor_override = static_cast<int>(i);
    rules.push_back(named);
    if (!on_host) streaming.push_back(named);
  }
  return {.rules = std::move(rules),
          .streamed_from = p.streamed_from,
          .streaming = std::move(streaming),
          .fleeting_layers = std::min(first, m.count)};
}

std::string plan_name(const LayerPlan& p, ModelLayers m, std::span<const TensorOverride> overrides,
                      std::string_view device, std::string_view host) {
  const std::string on_device(device), on_host(host);
  const std::size_t devices = p.layers.size();
  std::string text = devices == 1 ? on_device : std::to_string(devices) + " x " + on_device;
  if (has_host_part(p, m)) text += " and " + on_host;
  const int first = first_layer(p, m), end = experts_end(p, m);
  if (devices > 1) {
    text += ", " + on_device + " from layers";
    for (std::size_t d = 0; d < devices; ++d) text += (d == 0 ? " " : ", ") + std::to_string(first_layer(p, m, d));
  } else if (!is_whole(p, m)) {
    text += ", " + on_device + (first == m.count ? " the head" : " from layer " + std::to_string(first));
  }
  if (end > first) text += ", " + on_host + " the experts of " + layers_text(first, end - 1);
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const TensorOverride& o = overrides[i];
    text += ", " + (p.overrides[i] == TensorOverride::kHost ? on_host : on_device + std::to_string(p.overrides[i])) +
            " \"" + escaped(o.pattern) + "\"";
    if (o.layers < m.count) text += " of " + layers_text(0, o.layers - 1);
  }
  if (p.streamed_from > 0) text += ", weights of " + on_host + " brought for long steps";
  return text;
}

std::vector<int> share_layers(int layers, std::span<const double> shares) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  check(all > 0, "some device has a share");
  std::vector<double> ends;
  double before = 0;
  for (const double share : shares) ends.push_back((before += share) / all);
  std::vector<int> out(shares.size(), 0);
  for (int i = 0; i < layers; ++i) {
    const auto end = std::upper_bound(ends.begin(), ends.end(), static_cast<double>(i) / layers);
    ++out[static_cast<std::size_t>(std::min(end - ends.begin(), std::ssize(ends) - 1))];
  }
  return out;
}

std::vector<int> plan_layers(const PlacementOptions& o, int all, std::span<const double> free, const Fits& fits) {
  const bool fitting = o.layers == PlacementOptions::kFitting;
  const int wanted = fitting ? all : std::min(o.layers, all);
  if (!o.shares.empty() || free.size() == 1) {
    const std::vector<double> one{1};
    const std::span<const double> shares = o.shares.empty() ? std::span<const double>(one) : o.shares;
    if (!fitting) return share_layers(wanted, shares);
    return share_layers(largest_fitting(all, [&](int n) { return fits(share_layers(n, shares)); }), shares);
  }
  const bool any = std::any_of(free.begin(), free.end(), [](double f) { return f > 0; });
  if (any) {
    if (std::vector<int> balanced = share_layers(wanted, free); fits(balanced)) return balanced;
  }
  std::vector<int> filled = fill(wanted, free.size(), fits);
  if (fitting || sum(filled) == wanted || !any) return filled;
  return share_layers(wanted, free);
}

bool parts_caches(const LayerPlan& p, ModelLayers m, const Graph& graph) {
  const StepRules rules = step_rules(p, m);
  return std::ranges::any_of(graph.nodes(),
                             [&](const Node& n) { return cache_elsewhere(graph, n, rules.rules).has_value(); });
}

bool fits(const LayerPlan& p, ModelLayers m, const PlacementOptions::Room& room,
          std::span<const std::unique_ptr<Backend>> devices, const Graph& largest, std::int64_t trained_context) {
  const std::int64_t context = !room.context       ? std::min(trained_context, kLeastContext)
                               : *room.context > 0 ? *room.context
                                                   : trained_context;
  ContextRequest r{.context = context, .trained = trained_context, .sequences = room.sequences, .memories = {}};
  for (const MemoryShare& share : composite_memory(devices, step_rules(p, m), {&largest, 1})) {
    // What stays in the host's memory is no reason to move more there.
    if (share.layout == Layout::Device)
      r.memories.push_back(needs_of(share, room.cache, recurrent_slots(room.sequences, true)));
  }
  return fits(r, context);
}

std::string plan_text(const LayerPlan& p, ModelLayers m, std::span<const TensorOverride> overrides,
                      std::span<const std::string> devices, std::span<const MemoryShare> memories) {
  const auto weights_in = [&](const std::string& memory) {
    const auto share =
        std::find_if(memories.begin(), memories.end(), [&](const MemoryShare& s) { return s.name == memory; });
    return bytes_text(share == memories.end() ? 0 : share->weights);
  };
  const std::string all = std::to_string(m.count + 1);
  const int end = experts_end(p, m);
  std::string text;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const bool alone = devices.size() == 1;
    text += (d == 0 ? "" : "; ") + devices[d] + ": " +
            (!alone           ? part_text(p, m, d)
             : is_whole(p, m) ? "all " + all + " layers"
                              : std::to_string(sum(p.layers)) + " of " + all + " layers");
    const int from = first_layer(p, m, d), to = std::min(end, from + p.layers[d]);
    if (to > from) text += " without the experts of " + layers_text(from, to - 1);
    text += ", " + weights_in(devices[d]);
  }
  if (has_host_part(p, m)) {
    const std::string to = devices.front() == "GPU" ? "the GPU" : devices.size() > 1 ? "GPUs" : devices.front();
    text += "; " + memories.back().name + ": the rest" +
            (p.streamed_from > 0 ? ", whose weights long prompts bring to " + to : "");
  }
  return text + overrides_text(p, overrides, devices);
}

}  // namespace llm
