#include "runtime/checked_backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "graph/partition.h"
#include "runtime/composite_stores.h"

namespace llm {
namespace {

/// Relative differences, root mean square, that roundings give at most. Of attention over quantised values it is more,
/// for the cpu backend rounds weights to 16 bits there: half of 2^-15 at most for each key, and of n keys' errors,
/// which are independent, sqrt(n) adds up. As much again is for keys with scales above the others'.
constexpr double kTolerance = 1e-4, kTolerancePerKey = 0x1p-15;

/// Of what there is two of each kind.
enum Part : std::uint8_t { kTested, kReference };

/// Keeps a copy of every value of a step, and passes everything on to the caller's observer.
class Recorder final : public Observer {
 public:
  explicit Recorder(Observer* next) : next_(next) {}
  bool wants_value(std::string_view) override { return true; }
  bool wants_timings() override { return next_ && next_->wants_timings(); }
  void timing(const StepTiming& t) override { next_->timing(t); }
  void value(std::string_view name, const TensorView& view) override {
    values_[std::string(name)].assign(view.data, view.data + view.type.bytes());
    if (next_ && next_->wants_value(name)) next_->value(name, view);
  }
  std::vector<std::byte>& at(const std::string& name) { return values_.at(name); }
  /// What the caller gives is a value like those that nodes make.
  void add(const Binding& given) { values_[std::string(given.value)].assign(given.data, given.data + given.bytes); }

 private:
  Observer* next_;
  std::unordered_map<std::string, std::vector<std::byte>> values_;
};

void compare(const ValueInfo& value, std::span<const std::byte> got_bytes, std::span<const std::byte> expected_bytes,
             double tolerance) {
  if (value.type.dtype != DType::F32) return;  // expert ids may differ where two are all but equal
  const auto* got = reinterpret_cast<const float*>(got_bytes.data());
  const auto* expected = reinterpret_cast<const float*>(expected_bytes.data());
  double difference = 0, scale = 0;
  for (std::size_t i = 0; i < got_bytes.size() / sizeof(float); ++i) {
    if (!std::isfinite(expected[i]) && (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))))
      continue;
    const double d = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    difference += d * d;
    scale += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  if (std::isfinite(difference) && std::sqrt(difference) <= tolerance * std::sqrt(scale)) return;
  char figures[96];
  std::snprintf(figures, sizeof figures, "relative difference %.3g, rounding gives at most %.3g",
                std::sqrt(difference / scale), tolerance);
  throw Error(ErrorKind::Internal, "value \"" + value.name + "\" diverges from the reference backend: " + figures);
}

/// One node as a graph of its own, so that the reference works on the tested backend's operands: otherwise a rounding
/// in the first layer moves a quantised activation in the next, and the two runs drift apart without any fault.
struct NodeCheck {
  Graph graph;
  double tolerance_per_key;
  std::unique_ptr<Executable> reference = nullptr;

  double tolerance(const StepData& step) const {
    double keys = 0;
    for (const SequenceSpan& s : step.sequences) keys = std::max<double>(keys, s.kv_len);
    return kTolerance + tolerance_per_key * std::sqrt(keys);
  }

  void run(const StepData& step, Recorder& recorded) const {
    std::vector<Binding> in, out;
    std::vector<std::vector<std::byte>> results;
    for (const ValueInfo& v : graph.values()) {
      if (v.kind != ValueKind::Input || v.input != StepInput::None) continue;
      std::vector<std::byte>& bytes = recorded.at(v.name);
      in.push_back({.value = v.name, .data = bytes.data(), .bytes = bytes.size()});
    }
    for (std::uint32_t id : graph.outputs()) results.emplace_back(recorded.at(graph.info(id).name).size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      out.push_back(
          {.value = graph.info(graph.outputs()[i]).name, .data = results[i].data(), .bytes = results[i].size()});
    }
    reference->wait(reference->submit(step, in, out));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const ValueInfo& value = graph.info(graph.outputs()[i]);
      compare(value, recorded.at(value.name), results[i], tolerance(step));
    }
  }
};

class CheckedExecutable final : public Executable {
 public:
  CheckedExecutable(std::unique_ptr<Executable> tested, std::vector<NodeCheck> checks)
      : tested_(std::move(tested)), checks_(std::move(checks)) {}

  Ticket submit(const StepData& step, std::span<const Binding> in, std::span<const Binding> out) override {
    Recorder recorder(observer_);
    for (const Binding& b : in) recorder.add(b);
    tested_->observe(&recorder);
    const Ticket ticket = tested_->submit(step, in, out);
    tested_->wait(ticket);
    tested_->observe(nullptr);
    for (const NodeCheck& check : checks_) check.run(step, recorder);
    return ticket;
  }
  void wait(Ticket) override {}
  std::string describe() const override {
    return tested_->describe() + "each node checked against the reference backend\n";
  }
  void observe(Observer* observer) override { observer_ = observer; }

 private:
  std::unique_ptr<Executable> tested_;
  std::vector<NodeCheck> checks_;
  Observer* observer_ = nullptr;
};

struct CheckedStates final : CompositeStates {
  CacheFormat format;
};

class CheckedBackend final : public Backend {
 public:
  CheckedBackend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference)
      : tested_(std::move(tested)), reference_(std::move(reference)) {}

  std::string_view name() const override { return tested_->name(); }
  std::string_view variant() const override { return tested_->variant(); }
  std::string lacks() const override { return tested_->lacks(); }
  std::string describe() const override { return tested_->describe() + ", checked against the reference backend"; }
  Support supports(const Graph& g, const Node& n) const override {
    const Support support = tested_->supports(g, n);
    return support.ok ? reference_->supports(g, n) : support;
  }
  Graph legalize(const Graph& g) const override { return tested_->legalize(g); }
  Layout choose_layout(const WeightUse& use) const override { return tested_->choose_layout(use); }
  std::unique_ptr<HostMemory> host_memory(std::size_t bytes) override { return tested_->host_memory(bytes); }
  /// The reference has values and states of its own; the weights that it reads are the file's.
  std::vector<MemoryShare> memory(std::span<const Graph> largest) const override {
    std::vector<MemoryShare> shares = tested_->memory(largest);
    MemoryShare own = reference_->memory(largest).front();
    const auto same = std::ranges::find(shares, own.name, &MemoryShare::name);
    if (same == shares.end()) {
      shares.push_back(std::move(own));
      return shares;
    }
    same->workspace += own.workspace;
    same->caches.insert(same->caches.end(), own.caches.begin(), own.caches.end());
    same->recurrent.insert(same->recurrent.end(), own.recurrent.begin(), own.recurrent.end());
    return shares;
  }
  int rows_at_once() const override { return tested_->rows_at_once(); }
  int most_step_tokens() const override { return tested_->most_step_tokens(); }

  std::unique_ptr<WeightStore> load(const WeightSource& source, std::span<const WeightPlan> plans) override {
    auto weights = std::make_unique<CompositeWeights>();
    for (Backend* backend : both()) weights->parts.push_back(backend->load(source, plans));
    return weights;
  }
  std::unique_ptr<StateStore> allocate(const StateRequest& request) override {
    auto states = std::make_unique<CheckedStates>();
    states->format = request.format;
    for (Backend* backend : both()) states->parts.push_back(backend->allocate(request));
    return states;
  }
  std::unique_ptr<Workspace> make_workspace(std::span<const Graph> largest, int at_once) override {
    auto workspace = std::make_unique<CompositeWorkspace>();
    for (Backend* backend : both()) workspace->parts.push_back(backend->make_workspace(largest, at_once));
    return workspace;
  }
  std::unique_ptr<Executable> compile(const Graph& g, const WeightStore& weights, StateStore& states,
                                      Workspace& workspace) override {
    const auto& w = dynamic_cast<const CompositeWeights&>(weights).parts;
    const auto& checked_states = dynamic_cast<CheckedStates&>(states);
    const auto& s = checked_states.parts;
    const double per_key = info(checked_states.format.v).quantized() ? kTolerancePerKey : 0;
    const auto& m = dynamic_cast<CompositeWorkspace&>(workspace).parts;
    // Legalised: the reference quantises the activations that the tested backend does, so that rounding is all that is
    // left.
    const Graph legal = tested_->legalize(g);
    std::vector<NodeCheck> checks;
    for (std::size_t i = 0; i < legal.nodes().size(); ++i) {
      const Op& op = legal.nodes()[i].op;
      if (std::holds_alternative<Reshape>(op)) continue;
      const bool attends = std::holds_alternative<Attention>(op) || std::holds_alternative<CompressedAttention>(op);
      checks.push_back({cut(legal, i, i + 1), attends ? per_key : 0});
    }
    for (NodeCheck& c : checks)
      c.reference = reference_->compile(c.graph, *w[kReference], *s[kReference], *m[kReference]);
    return std::make_unique<CheckedExecutable>(tested_->compile(g, *w[kTested], *s[kTested], *m[kTested]),
                                               std::move(checks));
  }

 private:
  std::array<Backend*, 2> both() const { return {tested_.get(), reference_.get()}; }  // in the order of Part

  std::unique_ptr<Backend> tested_, reference_;
};

}  // namespace

std::unique_ptr<Backend> make_checked_backend(std::unique_ptr<Backend> tested, std::unique_ptr<Backend> reference) {
  return std::make_unique<CheckedBackend>(std::move(tested), std::move(reference));
}

}  // namespace llm
