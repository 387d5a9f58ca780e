// Resolving values to memory and walking the nodes.
#include "backend/host/interpreter.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "backend/host/draw.h"
#include "backend/host/report.h"
#include "backend/host/step_check.h"
#include "base/clock.h"
#include "base/error.h"
#include "graph/memory_plan.h"
#include "tensor/activation.h"
#include "tensor/decode.h"

namespace llm::host {
namespace {

/// Where the memory of a value comes from.
enum class Place : std::uint8_t { Unknown, Weight, State, Workspace, StepInput, Bound };
struct Location {
  Place place = Place::Unknown;
  std::size_t binding = 0;     ///< Bound: index in bound_
  std::byte* fixed = nullptr;  ///< Weight, Workspace
  StepInput input = StepInput::None;
};

std::int64_t capacity(const Graph& graph, const ValueInfo& v) {
  return v.rows == RowSpace::Tokens ? graph.bucket().tokens : v.rows == RowSpace::Outputs ? graph.bucket().outputs : 1;
}

std::byte* bytes_of(std::span<const std::int32_t> values) {
  // Inputs are only read; one pointer type serves all operands.
  return reinterpret_cast<std::byte*>(const_cast<std::int32_t*>(values.data()));
}

/// What a program draws of its steps.
class Drawing {
 public:
  /// `last`: what the step before drew, whichever program ran it; null where the backend does not draw.
  Drawing(const Graph& graph, std::vector<std::int32_t>* last) : last_(last) {
    if (last == nullptr || graph.outputs().size() != 1) return;
    output_ = &graph.info(graph.outputs()[0]);
    if (output_->type.dtype != DType::F32 || output_->rows != RowSpace::Outputs) return;
    elements_ = static_cast<std::size_t>(output_->type.shape.elements());
    logits_ = std::make_unique_for_overwrite<float[]>(elements_);  // not touched before a step draws
    known_.reserve(static_cast<std::size_t>(graph.bucket().tokens));
  }

  Binding logits() const {
    if (logits_ == nullptr) return {};
    return {.value = output_->name,
            .data = reinterpret_cast<std::byte*>(logits_.get()),
            .bytes = elements_ * sizeof(float)};
  }

  /// The tokens, with those in place that the step before drew.
  std::span<const std::int32_t> known(std::span<const std::int32_t> tokens) {
    if (std::all_of(tokens.begin(), tokens.end(), [](std::int32_t t) { return t >= 0; })) return tokens;
    check(last_ != nullptr, "tokens that were drawn, of a backend that draws");
    known_.clear();
    for (const std::int32_t t : tokens) known_.push_back(t >= 0 ? t : last_->at(static_cast<std::size_t>(~t)));
    return known_;
  }

  void draw(std::span<const DrawRule> rules, std::uint64_t step) {
    Drawn& to = steps_[step % steps_.size()];
    to = {.step = step, .tokens = {}, .finite = true};
    const auto vocab = static_cast<std::size_t>(output_->type.shape[0]);
    for (const DrawRule& rule : rules) {
      const std::int32_t newest = rule.newest < 0 ? -1 : last_->at(static_cast<std::size_t>(rule.newest));
      const auto token = host::draw(rule, {logits_.get() + to.tokens.size() * vocab, vocab}, newest);
      to.finite = to.finite && token.has_value();
      to.tokens.push_back(token.value_or(0));
    }
    *last_ = to.tokens;
  }

  std::span<const std::int32_t> drawn(std::uint64_t step) const { return of(step).tokens; }
  bool may_be_non_finite(std::uint64_t step) const { return of(step).step != step || !of(step).finite; }

 private:
  struct Drawn {
    std::uint64_t step = 0;
    std::vector<std::int32_t> tokens;
    bool finite = false;
  };
  const Drawn& of(std::uint64_t step) const { return steps_[step % steps_.size()]; }

  const ValueInfo* output_ = nullptr;
  std::size_t elements_ = 0;
  std::unique_ptr<float[]> logits_;
  std::vector<std::int32_t>* last_;
  std::vector<std::int32_t> known_;
  std::array<Drawn, 2> steps_;
};

class Interpreter final : public Executable {
 public:
  Interpreter(const Graph& graph, const HostWeights& weights, const HostCache& cache, const HostWorkspace& workspace,
              std::vector<NodeKernel> kernels, const MemoryPlan& plan, std::function<void()> prologue,
              std::vector<std::int32_t>* drawn_last)
      : graph_(graph),
        cache_(cache),
        check_(graph_, cache.n_blocks(), cache.n_slots()),
        kernels_(std::move(kernels)),
        prologue_(std::move(prologue)),
        drawing_(graph_, drawn_last) {
    place_values(weights, workspace, plan);
    const std::size_t n_nodes = graph_.nodes().size();
    scratch_.resize(n_nodes, nullptr);
    runs_.resize(n_nodes);
    for (std::size_t i = 0; i < n_nodes; ++i) {
      if (plan.scratch_offset[i] != MemoryPlan::kNone) scratch_[i] = workspace.data() + plan.scratch_offset[i];
      const Node& node = graph_.nodes()[i];
      for (const std::uint32_t id : node.in) runs_[i].in.push_back(operand(id));
      for (const std::uint32_t id : node.out) runs_[i].out.push_back(operand(id));
    }
  }

  Ticket submit(const StepData& step, std::span<const Binding> in, std::span<const Binding> out) override {
    const StepRows rows = check_(step);
    StepData known = step;
    known.tokens = drawing_.known(step.tokens);
    const Binding logits = drawing_.logits();
    bind(rows, in, step.draws.empty() ? out : std::span(&logits, 1));
    prologue_();
    for (std::size_t i = 0; i < kernels_.size(); ++i) run_node(i, known, rows);
    ++submitted_;
    if (!step.draws.empty()) drawing_.draw(step.draws, submitted_);
    return {submitted_};
  }

  void wait(Ticket ticket) override { waited_ = ticket.id; }
  std::span<const std::int32_t> drawn() const override { return drawing_.drawn(waited_); }
  bool may_be_non_finite() const override { return drawing_.may_be_non_finite(waited_); }
  std::string describe() const override;
  void observe(Observer* observer) override { observer_ = observer; }

 private:
  struct NodeOperands {
    std::vector<Operand> in, out;
  };
  struct Bound {
    std::uint32_t value;
    std::byte* data = nullptr;
  };

  Operand operand(std::uint32_t id) const {
    const ValueInfo& v = graph_.info(id);
    Operand o;
    o.info = &v;
    o.data = locations_[id].fixed;
    o.rows = 1;
    o.row_elems = outlives_step(v.kind) ? 0 : v.type.shape.elements() / capacity(graph_, v);
    return o;
  }

  void place_values(const HostWeights& weights, const HostWorkspace& workspace, const MemoryPlan& plan) {
    locations_.resize(graph_.values().size());
    std::vector<bool> read(locations_.size(), false);  // passes leave values behind that no node uses any more
    for (const Node& node : graph_.nodes()) {
      for (const std::uint32_t id : node.in) read[id] = true;
    }
    for (std::uint32_t id = 0; id < locations_.size(); ++id) {
      const ValueInfo& v = graph_.info(id);
      Location& at = locations_[id];
      if (v.kind == ValueKind::Weight) {
        if (!read[id]) continue;
        // Reading is all that happens to weights; one pointer type serves all operands.
        at = {.place = Place::Weight, .fixed = const_cast<std::byte*>(weights.data(v.name))};
      } else if (outlives_step(v.kind)) {
        at.place = Place::State;
      } else if (v.kind == ValueKind::Input && v.input != StepInput::None) {
        at = {.place = Place::StepInput, .input = v.input};
      } else if (v.kind == ValueKind::Input) {
        if (read[id]) at = bound(id, n_inputs_++);
      } else if (plan.offset[id] != MemoryPlan::kNone) {
        at = {.place = Place::Workspace, .fixed = workspace.data() + plan.offset[id]};
      }
    }
    for (const std::uint32_t id : graph_.outputs()) locations_[id] = bound(id, bound_.size());
    share_reshapes();
  }

  Location bound(std::uint32_t id, std::size_t index) {
    bound_.push_back({id});
    return {.place = Place::Bound, .binding = index};
  }

  /// Both sides of a reshape are the same bytes: where the plan placed only one of them, the other follows.
  void share_reshapes() {
    const auto nodes = graph_.nodes();
    const auto follow = [&](std::uint32_t from, std::uint32_t to) {
      if (locations_[to].place == Place::Unknown) locations_[to] = locations_[from];
    };
    for (const Node& node : nodes) {
      if (std::holds_alternative<Reshape>(node.op)) follow(node.in[0], node.out[0]);
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (std::holds_alternative<Reshape>(node->op)) follow(node->out[0], node->in[0]);
    }
    for (const Node& node : nodes) {
      for (const std::uint32_t id : node.in) check(locations_[id].place != Place::Unknown, "an operand has memory");
      for (const std::uint32_t id : node.out) check(locations_[id].place != Place::Unknown, "a result has memory");
    }
  }

  void bind(const StepRows& rows, std::span<const Binding> in, std::span<const Binding> out) {
    for (std::size_t i = 0; i < bound_.size(); ++i) {
      const ValueInfo& v = graph_.info(bound_[i].value);
      const std::span<const Binding> from = i < n_inputs_ ? in : out;
      const auto found = std::find_if(from.begin(), from.end(), [&](const Binding& b) { return b.value == v.name; });
      check(found != from.end(), "every input and output of the graph is bound");
      const std::size_t bytes =
          v.type.bytes() / static_cast<std::size_t>(capacity(graph_, v)) * static_cast<std::size_t>(rows.count(v.rows));
      check(found->bytes >= bytes, "bound memory holds the step's rows");
      bound_[i].data = found->data;
    }
  }

  void resolve(Operand& o, std::uint32_t id, const StepData& step, const StepRows& rows) const {
    const Location& at = locations_[id];
    o.rows = rows.count(o.info->rows);
    if (at.place == Place::Bound) {
      o.data = bound_[at.binding].data;
    } else if (at.place == Place::StepInput) {
      o.data = bytes_of(at.input == StepInput::Tokens      ? step.tokens
                        : at.input == StepInput::Positions ? step.positions
                                                           : step.out_rows);
    }
  }

  void run_node(std::size_t i, const StepData& step, const StepRows& rows) {
    const Node& node = graph_.nodes()[i];
    NodeOperands& operands = runs_[i];
    for (std::size_t j = 0; j < node.in.size(); ++j) resolve(operands.in[j], node.in[j], step, rows);
    for (std::size_t j = 0; j < node.out.size(); ++j) resolve(operands.out[j], node.out[j], step, rows);
    const NodeRun run{operands.in, operands.out, scratch_[i], step};
    if (observer_ == nullptr) {
      kernels_[i].run(run);
    } else {
      run_observed(i, run, rows);
    }
  }

  void run_observed(std::size_t i, const NodeRun& run, const StepRows& rows) {
    const Node& node = graph_.nodes()[i];
    const auto begin = Clock::now();
    kernels_[i].run(run);
    const double taken = seconds_since(begin);
    const auto data = [&](std::uint32_t id) -> const std::byte* {
      for (const auto operands : {run.in, run.out}) {
        const auto found = std::ranges::find(operands, &graph_.info(id), &Operand::info);
        if (found != operands.end()) return found->data;
      }
      return nullptr;
    };
    report(*observer_, graph_, node, run.step, rows, cache_.format(), taken, data);
  }

  Graph graph_;  ///< a copy: operands point into it
  const HostCache& cache_;
  StepCheck check_;
  std::vector<NodeKernel> kernels_;
  std::function<void()> prologue_;
  std::vector<Location> locations_;  ///< per value
  std::vector<Bound> bound_;         ///< inputs from other segments, then outputs
  std::size_t n_inputs_ = 0;
  std::vector<NodeOperands> runs_;  ///< per node
  std::vector<std::byte*> scratch_;
  Observer* observer_ = nullptr;
  Drawing drawing_;
  std::uint64_t submitted_ = 0, waited_ = 0;
};

std::string Interpreter::describe() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    const std::string& how = kernels_[i].description;
    lines.push_back(std::string(name(graph_.nodes()[i].op)) + (how.empty() ? "" : ": " + how));
  }
  return std::to_string(kernels_.size()) + " nodes, one after another\n" + counted_lines(lines);
}

Support refuse(std::string reason) { return {false, std::move(reason)}; }

/// A matrix [k, n, ...] and the format that the other operand takes.
Support supports_matrix(const ValueInfo& w, ActFormat activation) {
  if (info(w.type.dtype).use != DTypeUse::Weight) {
    return refuse("weight \"" + w.name + "\": type " + std::string(name(w.type.dtype)) + " cannot be a matrix");
  }
  if (w.type.shape[0] % info(w.type.dtype).block_elems != 0 || w.type.shape[0] % act_block_elems(activation) != 0) {
    return refuse("weight \"" + w.name + "\": rows of " + std::to_string(w.type.shape[0]) +
                  " are not whole blocks of " + std::string(name(w.type.dtype)));
  }
  return {};
}

template <class T>
const T& as_host(const auto& store, std::string_view what) {
  const auto* host = dynamic_cast<const T*>(&store);
  check(host != nullptr, what);
  return *host;
}

}  // namespace

VectorWeight::VectorWeight(const ValueInfo& v, const HostWeights& weights) {
  const std::byte* const data = weights.data(v.name);
  if (v.type.dtype == DType::F32 && reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0) {
    in_place_ = reinterpret_cast<const float*>(data);
    return;
  }
  decoded_.resize(static_cast<std::size_t>(v.type.shape.elements()));
  decode(v.type.dtype, data, decoded_.data(), v.type.shape.elements());
}

Support supports_on_host(const Graph& graph, const Node& node) {
  if (std::holds_alternative<Embed>(node.op)) return supports_matrix(graph.info(node.in[0]), ActFormat::F32);
  const auto operands = product_operands(node.op);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Support s = supports_matrix(graph.info(node.in[operands[i].weight]), products(node.op)[i].activation);
    if (!s.ok) return s;
  }
  if (std::holds_alternative<Attention>(node.op) && graph.info(node.in[0]).rows != RowSpace::Tokens) {
    return refuse("Attention needs a query for every token");
  }
  if (const auto* map = std::get_if<Map>(&node.op); map != nullptr && (map->function == nullptr || !*map->function)) {
    return refuse("Map \"" + map->name + "\" has no function");
  }
  return {};
}

Support InterpretedBackend::supports(const Graph& graph, const Node& node) const {
  return supports_on_host(graph, node);
}

std::unique_ptr<WeightStore> InterpretedBackend::load(const WeightSource& source, std::span<const WeightPlan> plans) {
  return std::make_unique<HostWeights>(source, plans);
}

std::unique_ptr<StateStore> InterpretedBackend::allocate(const StateRequest& request) {
  return std::make_unique<HostCache>(request);
}

std::vector<std::uint64_t> InterpretedBackend::node_scratch(const Graph& graph) const {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes()) bytes.push_back(scratch_bytes(graph, node));
  return bytes;
}

std::uint64_t InterpretedBackend::workspace_bytes(std::span<const Graph> largest) const {
  std::uint64_t bytes = 0;
  for (const Graph& graph : largest) bytes = std::max(bytes, llm::workspace_bytes(graph, node_scratch(graph)));
  return bytes;
}

std::vector<MemoryShare> InterpretedBackend::memory(std::span<const Graph> largest) const {
  return {machine_memory(largest, workspace_bytes(largest))};
}

std::unique_ptr<Workspace> InterpretedBackend::make_workspace(std::span<const Graph> largest, int /*at_once*/) {
  return std::make_unique<HostWorkspace>(workspace_bytes(largest));
}

std::unique_ptr<Executable> InterpretedBackend::compile(const Graph& graph, const WeightStore& weights,
                                                        StateStore& state, Workspace& workspace) {
  const auto& host_weights = as_host<HostWeights>(weights, "weights were loaded by a backend over host memory");
  const auto& host_cache = as_host<HostCache>(state, "the cache was allocated by a backend over host memory");
  const auto& host_workspace =
      as_host<HostWorkspace>(workspace, "the workspace was made by a backend over host memory");
  const MemoryPlan plan = plan_memory(graph, node_scratch(graph));
  check(plan.bytes <= host_workspace.bytes(), "the workspace was made for a bucket at least as large");
  std::vector<NodeKernel> kernels;
  kernels.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes()) {
    if (const Support s = supports(graph, node); !s.ok) {
      throw Error(ErrorKind::Device, "backend " + std::string(this->name()) + " cannot run " +
                                         std::string(llm::name(node.op)) + ": " + s.reason);
    }
    kernels.push_back(make_kernel({graph, node, host_weights, host_cache}));
  }
  return std::make_unique<Interpreter>(graph, host_weights, host_cache, host_workspace, std::move(kernels), plan,
                                       step_prologue(), draws() ? &host_workspace.drawn() : nullptr);
}

}  // namespace llm::host
