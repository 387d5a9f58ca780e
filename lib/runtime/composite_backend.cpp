#include "runtime/composite_backend.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "runtime/borders.h"
#include "runtime/composite_executable.h"
#include "runtime/composite_stores.h"

namespace llm {
namespace {

/// A graph as long steps are cut, whatever its bucket. What a device keeps for other steps it need not bring, and it
/// keeps what is small: routers, and all but matrices.
std::vector<Segment> streaming_segments(const Graph& graph, const StepRules& rules) {
  std::map<int, std::set<std::string>> kept;
  for (const Segment& s : partition(graph, rules.rules)) {
    for (const ValueInfo& v : s.graph.values()) {
      if (v.kind == ValueKind::Weight) kept[s.backend].insert(v.name);
    }
  }
  std::vector<Segment> segments = partition(with_fleeting_caches(graph, rules.fleeting_layers), rules.streaming);
  for (Segment& s : segments) {
    for (const Node& node : s.graph.nodes()) {
      if (node.role == Role::Router) continue;
      for (const ProductOperands& p : product_operands(node.op)) {
        ValueInfo& w = s.graph.mutable_values()[node.in[p.weight]];
        w.streamed = !kept[s.backend].contains(w.name);
      }
    }
  }
  return segments;
}

std::vector<Segment> segments_of(const Graph& graph, const StepRules& rules) {
  return rules.streams(graph.bucket()) ? streaming_segments(graph, rules) : partition(graph, rules.rules);
}

/// The segments of each device, of short and of long steps.
std::vector<std::vector<Graph>> by_device(std::size_t n_devices, const StepRules& rules,
                                          std::span<const Graph> graphs) {
  std::vector<std::vector<Graph>> parts(n_devices);
  const auto add = [&](std::vector<Segment> segments) {
    for (Segment& s : segments) parts[static_cast<std::size_t>(s.backend)].push_back(std::move(s.graph));
  };
  for (const Graph& graph : graphs) {
    add(partition(graph, rules.rules));
    if (rules.streams(graph.bucket())) add(streaming_segments(graph, rules));
  }
  return parts;
}

class CompositeBackend final : public Backend {
 public:
  CompositeBackend(std::vector<std::unique_ptr<Backend>> devices, StepRules rules, const Graph& model, std::string name)
      : devices_(std::move(devices)),
        rules_(std::move(rules)),
        name_(std::move(name)),
        at_once_(llm::steps_at_once(model, rules_, devices_)),
        contents_(devices_.size()) {
    add_contents(partition(model, rules_.rules));
    if (rules_.streamed_from > 0) add_contents(streaming_segments(model, rules_));
  }

  std::string_view name() const override { return name_; }
  std::string_view variant() const override { return devices_.front()->variant(); }
  std::string lacks() const override { return devices_.front()->lacks(); }
  std::string describe() const override {
    std::string text = name_;
    for (const auto& device : devices_) text += "\n" + device->describe();
    return text;
  }

  Support supports(const Graph& g, const Node& n) const override {
    if (const auto layer = cache_elsewhere(g, n, rules_.rules))
      return {.ok = false,
              .reason = "it reads the keys and values of layer " + std::to_string(*layer) +
                        ", which another device keeps: layers from there on belong to one device"};
    return device_of(g, n).supports(g, n);
  }

  Graph legalize(const Graph& g) const override {
    Graph legal = g;
    for (const Segment& s : segments_of(g, rules_)) {
      const Graph part = device(s).legalize(s.graph);
      for (std::size_t i = 0; i < s.nodes.size(); ++i) legal.mutable_nodes()[s.nodes[i]].op = part.nodes()[i].op;
    }
    return legal;
  }

  /// Of a weight that lies on several devices, the first one's.
  Layout choose_layout(const WeightUse& use) const override {
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      if (contents_[d].weights.contains(use.name)) return devices_[d]->choose_layout(use);
    }
    return devices_.front()->choose_layout(use);
  }

  std::vector<MemoryShare> memory(std::span<const Graph> largest) const override {
    return composite_memory(devices_, rules_, largest);
  }

  /// Of the first device: results and what crosses borders are copied to and from it.
  std::unique_ptr<HostMemory> host_memory(std::size_t bytes) override { return devices_.front()->host_memory(bytes); }

  int steps_at_once() const override { return at_once_; }
  /// Segments before the last one run before the caller has seen a token that was drawn: a host's would hold it back.
  bool draws() const override {
    return std::all_of(devices_.begin(), devices_.end(), [](const auto& device) { return device->draws(); });
  }
  int rows_at_once() const override {
    int rows = devices_.front()->rows_at_once();
    for (const auto& device : devices_) rows = std::min(rows, device->rows_at_once());
    return rows;
  }
  int most_step_tokens() const override {
    int most = 0;
    for (const auto& device : devices_) most = std::max(most, device->most_step_tokens());
    return most;
  }
  /// Where devices work on several steps at once, enough of these that the last device does not wait long for the first
  /// one, nor this one for the last, of lengths that products like (docs/cuda.md).
  int step_tokens(std::int64_t all) const override {
    constexpr std::int64_t kStepsOfEach = 4, kLeastTokens = 512;
    const int most = most_step_tokens();
    if (at_once_ == 1 || devices_.size() == 1) return most;
    const std::int64_t steps = kStepsOfEach * (at_once_ - 1);
    const auto tokens = std::bit_floor(static_cast<std::uint64_t>(std::max(all / steps, kLeastTokens)));
    return static_cast<int>(std::min(tokens, static_cast<std::uint64_t>(most)));
  }

  std::unique_ptr<WeightStore> load(const WeightSource& source, std::span<const WeightPlan> plans) override {
    std::vector<std::future<std::unique_ptr<WeightStore>>> loading;  // side by side: each device has its own way there
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      std::vector<WeightPlan> own;
      for (const WeightPlan& plan : plans) {
        if (contents_[d].weights.contains(plan.name))
          own.push_back({plan.name, plan.type, devices_[d]->choose_layout({plan.name, plan.type})});
        else if (contents_[d].streamed.contains(plan.name))
          own.push_back({plan.name, plan.type, Layout::Streamed});
      }
      loading.push_back(
          std::async([&device = *devices_[d], &source, own = std::move(own)] { return device.load(source, own); }));
    }
    auto weights = std::make_unique<CompositeWeights>();
    for (auto& part : loading) weights->parts.push_back(part.get());
    return weights;
  }

  std::unique_ptr<StateStore> allocate(const StateRequest& request) override {
    auto states = std::make_unique<CompositeStates>();
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      std::vector<CacheType> caches;
      std::vector<RecurrentType> recurrent;
      for (const CacheType& type : request.caches) {
        if (contents_[d].layers.contains(type.layer)) caches.push_back(type);
      }
      caches.insert(caches.end(), contents_[d].fleeting.begin(), contents_[d].fleeting.end());
      for (const RecurrentType& type : request.recurrent) {
        if (std::ranges::find(contents_[d].recurrent, type) != contents_[d].recurrent.end()) recurrent.push_back(type);
      }
      StateRequest own = request;
      own.caches = caches;
      own.recurrent = recurrent;
      states->parts.push_back(devices_[d]->allocate(own));
    }
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      if (!contents_[d].fleeting.empty()) states->parts[d]->keep_fleeting_in(keeper(*states));
    }
    return states;
  }

  std::unique_ptr<Workspace> make_workspace(std::span<const Graph> largest, int at_once) override {
    auto workspace = std::make_unique<BorderedWorkspace>();
    const auto parts = by_device(devices_.size(), rules_, largest);
    for (std::size_t d = 0; d < devices_.size(); ++d)
      workspace->parts.push_back(parts[d].empty() ? nullptr : devices_[d]->make_workspace(parts[d], at_once));
    workspace->border_bytes = border_bytes(largest, rules_, devices_);
    workspace->at_once = at_once;
    for (const auto& [memory, of_step] : workspace->border_bytes) {
      const std::uint64_t bytes = of_step * static_cast<std::uint64_t>(workspace->at_once);
      if (memory == kHostMemory) {
        workspace->border = host_memory(bytes + kBorderAlign);
      } else {
        workspace->device_borders[memory] = devices_[static_cast<std::size_t>(memory)]->device_memory(bytes);
      }
    }
    return workspace;
  }

  std::unique_ptr<Executable> compile(const Graph& g, const WeightStore& weights, StateStore& states,
                                      Workspace& workspace) override {
    const Parts parts{dynamic_cast<const CompositeWeights&>(weights), dynamic_cast<CompositeStates&>(states),
                      dynamic_cast<BorderedWorkspace&>(workspace)};
    auto program = std::make_unique<CompositeExecutable>(segments_of(g, rules_), g, parts.workspace, devices_);
    for (std::size_t i = 0; i < program->segments().size(); ++i) {
      const Segment& segment = program->segments()[i];
      const auto d = static_cast<std::size_t>(segment.backend);
      program->set_program(i,
                           devices_[d]->compile(segment.graph, *parts.weights.parts[d], *parts.states.parts[d],
                                                *parts.workspace.parts[d]),
                           label(d));
    }
    return program;
  }

 private:
  struct Contents {
    std::set<std::string> weights, streamed;
    std::set<int> layers;             ///< that keep keys and values there
    std::vector<CacheType> fleeting;  ///< of layers that another device keeps
    std::vector<RecurrentType> recurrent;
  };

  struct Parts {
    const CompositeWeights& weights;
    const CompositeStates& states;
    BorderedWorkspace& workspace;
  };
  void add_contents(std::span<const Segment> segments) {
    for (const Segment& s : segments) {
      Contents& there = contents_[static_cast<std::size_t>(s.backend)];
      for (const ValueInfo& v : s.graph.values()) {
        if (v.kind == ValueKind::Weight) (v.streamed ? there.streamed : there.weights).insert(v.name);
        if (v.kind == ValueKind::Cache && !v.cache.fleeting()) there.layers.insert(v.cache.layer);
        if (v.kind == ValueKind::Cache && v.cache.fleeting() &&
            std::ranges::find(there.fleeting, v.cache) == there.fleeting.end())
          there.fleeting.push_back(v.cache);
        if (v.kind == ValueKind::Recurrent) there.recurrent.push_back(v.recurrent);
      }
    }
  }

  /// The host, which is the last device.
  static CacheKeeper& keeper(CompositeStates& states) {
    CacheKeeper* const host = states.parts.back()->keeper();
    check(host != nullptr, "the host keeps the caches of its layers");
    return *host;
  }

  /// Of several of one kind by their memories.
  std::string label(std::size_t d) const {
    const std::string_view kind = devices_[d]->name();
    const auto alike =
        std::count_if(devices_.begin(), devices_.end(), [&](const auto& b) { return b->name() == kind; });
    return alike > 1 ? devices_[d]->memory({}).front().name : std::string(kind);
  }
  const Backend& device_of(const Graph& g, const Node& n) const {
    const auto& rules = rules_.streams(g.bucket()) ? rules_.streaming : rules_.rules;
    return *devices_[static_cast<std::size_t>(backend_of(n, rules))];
  }
  const Backend& device(const Segment& s) const { return *devices_[static_cast<std::size_t>(s.backend)]; }

  std::vector<std::unique_ptr<Backend>> devices_;
  StepRules rules_;
  std::string name_;
  int at_once_;                     ///< steps
  std::vector<Contents> contents_;  ///< per device
};

void merge(std::vector<MemoryShare>& all, MemoryShare&& share) {
  const auto same = std::find_if(all.begin(), all.end(), [&](const MemoryShare& s) { return s.name == share.name; });
  if (same == all.end()) {
    all.push_back(std::move(share));
    return;
  }
  same->weights += share.weights;
  same->workspace += share.workspace;
  same->caches.insert(same->caches.end(), share.caches.begin(), share.caches.end());
  same->recurrent.insert(same->recurrent.end(), share.recurrent.begin(), share.recurrent.end());
}

}  // namespace

std::vector<MemoryShare> composite_memory(std::span<const std::unique_ptr<Backend>> devices, const StepRules& rules,
                                          std::span<const Graph> largest) {
  const auto parts = by_device(devices.size(), rules, largest);
  std::vector<MemoryShare> all;
  std::vector<std::string> names;  // of each device's own memory
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::vector<MemoryShare> shares = devices[d]->memory(parts[d]);
    names.push_back(shares.front().name);
    for (MemoryShare& share : shares) merge(all, std::move(share));
  }
  const int at_once = largest.empty() ? 1 : steps_at_once(largest.front(), rules, devices);
  for (const auto& [memory, of_step] : border_bytes(largest, rules, devices)) {
    const std::uint64_t bytes = of_step * static_cast<std::uint64_t>(at_once);
    const auto d = static_cast<std::size_t>(memory);
    for (MemoryShare& share : all) {
      const bool here = memory == kHostMemory ? share.layout == Layout::File : share.name == names[d];
      if (here) share.workspace += bytes;
    }
  }
  return all;
}

std::unique_ptr<Backend> make_composite_backend(std::vector<std::unique_ptr<Backend>> devices, StepRules rules,
                                                const Graph& model, std::string name) {
  check(!devices.empty(), "a model is placed on something");
  return std::make_unique<CompositeBackend>(std::move(devices), std::move(rules), model, std::move(name));
}

}  // namespace llm
