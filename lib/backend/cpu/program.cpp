#include "backend/cpu/program.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>

#include "backend/host/report.h"
#include "base/clock.h"
#include "base/error.h"
#include "graph/needs.h"
#include "graph/weight_parts.h"

namespace llm::cpu {
namespace {

class RopeTableInstruction final : public Instruction {
 public:
  RopeTableInstruction(const RopeTable& op, const float* factors, int positions, int y)
      : angles_(op, factors), n_rot_(op.n_rot), positions_(positions), y_(y) {}
  void run(const Frame& f, const Worker& w) override {
    const auto [begin, end] = w.share(f.rows.tokens);
    for (std::int64_t r = begin; r < end; ++r) angles_.row(f.i32(positions_)[r], f.f32(y_) + r * n_rot_);
  }
  std::string describe() const override { return "rope_table n_rot=" + std::to_string(n_rot_); }

 private:
  host::RopeAngles angles_;
  std::int64_t n_rot_;
  int positions_, y_;
};

bool writes_cache(const Node& n) { return std::holds_alternative<KvAppend>(n.op); }
bool reads_cache(const Node& n) { return !writes_cache(n); }

/// Bytes of a position in the caches that nodes read, or that they write.
std::uint64_t position_bytes(const Graph& g, bool (*is_counted)(const Node&), CacheFormat format) {
  std::uint64_t bytes = 0;
  for (const Node& n : g.nodes()) {
    if (!is_counted(n)) continue;
    const auto cache = std::ranges::find_if(n.in, [&](std::uint32_t v) { return g.info(v).kind == ValueKind::Cache; });
    if (cache == n.in.end()) continue;
    const CacheType& c = g.info(*cache).cache;
    bytes += TensorType{format.k, {c.head_dim_k, c.kv_heads}}.bytes() +
             TensorType{format.v, {c.head_dim_v, c.kv_heads}}.bytes();
  }
  return bytes;
}

/// Bytes of weights in the products of one token: of experts, those that it is routed to.
std::uint64_t product_bytes(const Graph& g) {
  std::uint64_t bytes = 0;
  for (const Node& n : g.nodes()) {
    if (!std::holds_alternative<Linear>(n.op) && !std::holds_alternative<ExpertLinear>(n.op)) continue;
    for (const std::uint32_t v : n.in)
      if (g.info(v).kind == ValueKind::Weight) bytes += weight_parts(g, n, v).bytes_per_token();
  }
  return bytes;
}

/// Half-open byte range in the workspace.
struct Range {
  std::uint64_t begin, end;
  bool overlaps(const Range& o) const { return begin < o.end && o.begin < end; }
};

/// What instructions since the last barrier touched.
class Touched {
 public:
  void clear() {
    read_.clear();
    written_.clear();
  }
  bool conflicts(const Touched& next) const {
    return overlap(written_, next.read_) || overlap(written_, next.written_) || overlap(read_, next.written_);
  }
  void add(const Touched& o) {
    read_.insert(read_.end(), o.read_.begin(), o.read_.end());
    written_.insert(written_.end(), o.written_.begin(), o.written_.end());
  }
  void read(Range r) { read_.push_back(r); }
  void write(Range r) { written_.push_back(r); }

 private:
  static bool overlap(const std::vector<Range>& a, const std::vector<Range>& b) {
    return std::any_of(a.begin(), a.end(), [&](const Range& x) {
      return std::any_of(b.begin(), b.end(), [&](const Range& y) { return x.overlaps(y); });
    });
  }
  std::vector<Range> read_, written_;
};

bool looks_at_outputs(const Graph& g) {
  std::size_t seen = 0;
  for (const Node& n : g.nodes()) {
    if (!looks_at_results(g, n)) continue;
    for (const std::uint32_t v : n.out) seen += static_cast<std::size_t>(std::ranges::count(g.outputs(), v));
  }
  return seen == g.outputs().size();
}

std::vector<std::uint64_t> node_scratch(const Graph& g, int threads) {
  std::vector<std::uint64_t> bytes;
  for (const Node& n : g.nodes()) bytes.push_back(scratch_bytes(g, n, threads));
  return bytes;
}

const std::byte* as_bytes(std::span<const std::int32_t> s) { return reinterpret_cast<const std::byte*>(s.data()); }

}  // namespace

CpuWorkspace::CpuWorkspace(std::size_t bytes, int threads)
    : activations_(bytes), scratch_(static_cast<std::size_t>(threads) * kScratchBytes) {}

std::uint64_t program_workspace_bytes(const Graph& largest, int threads) {
  return workspace_bytes(largest, node_scratch(largest, threads));
}

Program::Program(Graph graph, const host::HostWeights& weights, const host::HostCache& cache,
                 const CpuWorkspace& workspace, const Kernels& kernels, const BackendOptions& options,
                 std::shared_ptr<Team> team)
    : graph_(std::move(graph)),
      cache_(cache),
      check_(graph_, cache.n_blocks(), cache.n_slots()),
      workspace_(workspace),
      threads_(options.threads),
      prompt_threads_(options.prompt_threads > 0 ? options.prompt_threads : options.threads),
      bytes_per_thread_(options.bytes_per_thread),
      weight_bytes_(product_bytes(graph_)),
      read_position_bytes_(position_bytes(graph_, reads_cache, cache.format())),
      stored_position_bytes_(position_bytes(graph_, writes_cache, cache.format())),
      team_(std::move(team)) {
  const MemoryPlan memory = plan_memory(graph_, node_scratch(graph_, most_threads()));
  check(memory.bytes <= workspace.activation_bytes(), "a program needs more than its workspace holds");
  roots_.resize(graph_.values().size());
  std::iota(roots_.begin(), roots_.end(), 0u);
  for (const Node& n : graph_.nodes()) {
    if (std::holds_alternative<Reshape>(n.op)) roots_[n.out[0]] = roots_[n.in[0]];
    if (!std::holds_alternative<Embed>(n.op) || graph_.info(n.in[1]).type.shape.n_dims() > 1) continue;
    std::int64_t& ids = graph_.info(n.in[1]).input == StepInput::Positions ? positions_ : vocab_;
    ids = std::min(ids, graph_.info(n.in[0]).type.shape[1]);
  }
  looks_at_outputs_ = looks_at_outputs(graph_);
  needed_from_ = needed_from(graph_);
  std::vector<std::uint64_t> hashes;
  for (const LayerRange& range : layer_ranges(graph_)) add_layer(range, memory, weights, kernels, hashes);
}

Program::~Program() = default;

Slot Program::place(std::uint32_t value, const MemoryPlan& memory, const host::HostWeights& weights) const {
  const ValueInfo& v = graph_.info(value);
  switch (v.kind) {
    case ValueKind::Weight:
      return {.data = const_cast<std::byte*>(weights.data(v.name)), .values = nullptr};  // only read
    case ValueKind::Cache:
      return {.data = cache_.k(v.cache.layer, v.cache.part), .values = cache_.v(v.cache.layer, v.cache.part)};
    case ValueKind::Recurrent:
      return {.data = cache_.recurrent(v.recurrent), .values = nullptr};
    case ValueKind::Input:
      return {};
    case ValueKind::Result:
      break;
  }
  if (memory.offset[value] == MemoryPlan::kNone) return {};
  return {.data = workspace_.activations() + memory.offset[value], .values = nullptr};
}

void Program::add_layer(const LayerRange& range, const MemoryPlan& memory, const host::HostWeights& weights,
                        const Kernels& kernels, std::vector<std::uint64_t>& hashes) {
  const auto needed = needed_from_.begin();
  Layer layer{.range = range,
              .plan = nullptr,
              .turn = 0,
              .slots = {},
              .sync_before = find_barriers(range, memory),
              .needed_from = {needed + static_cast<std::ptrdiff_t>(range.begin),
                              needed + static_cast<std::ptrdiff_t>(range.end)}};
  std::vector<int> slot_of(graph_.values().size(), -1);
  for (std::uint32_t v : range_values(graph_, range)) {
    slot_of[v] = static_cast<int>(layer.slots.size());
    layer.slots.push_back(place(v, memory, weights));
    if (layer.slots.back().data != nullptr) continue;
    const std::uint32_t root = roots_[v];  // a reshape of a bound value is the same bytes
    auto bound = std::find_if(bound_.begin(), bound_.end(), [&](const Bound& b) { return b.value == root; });
    if (bound == bound_.end()) bound = bound_.insert(bound_.end(), Bound{root, {}});
    bound->slots.emplace_back(layers_.size(), slot_of[v]);
  }
  for (std::size_t i = range.begin; i < range.end; ++i) {  // scratch slots follow, one per node
    const std::uint64_t at = memory.scratch_offset[i];
    layer.slots.push_back(
        {.data = at == MemoryPlan::kNone ? nullptr : workspace_.activations() + at, .values = nullptr});
  }
  // A rope table holds angles made from its own weights, so nothing outside the layers is shared.
  std::uint64_t key = structural_hash(graph_, range);
  if (range.layer < 0) key ^= 0x9e3779b97f4a7c15ull * (1 + hashes.size());
  hashes.push_back(key);
  std::unique_ptr<Plan>& plan = plans_[key];
  if (!plan) plan = make_plan(range, slot_of, memory, weights, kernels);
  layer.plan = plan.get();
  layer.turn = plan->users++;
  meetings_ += 1 + static_cast<std::uint64_t>(std::ranges::count(layer.sync_before, true));
  layers_.push_back(std::move(layer));
}

std::unique_ptr<Program::Plan> Program::make_plan(const LayerRange& range, const std::vector<int>& slot_of,
                                                  const MemoryPlan& memory, const host::HostWeights& weights,
                                                  const Kernels& kernels) const {
  auto plan = std::make_unique<Plan>();
  const auto n_values = static_cast<int>(range_values(graph_, range).size());
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const Node& n = graph_.nodes()[i];
    InstructionSite site{
        .graph = graph_,
        .node = n,
        .in = {},
        .out = {},
        .scratch = memory.scratch_offset[i] == MemoryPlan::kNone ? -1 : n_values + static_cast<int>(i - range.begin),
        .kernels = kernels,
        .cache = cache_.format(),
        .threads = most_threads()};
    for (std::uint32_t v : n.in) site.in.push_back(slot_of[v]);
    for (std::uint32_t v : n.out) site.out.push_back(slot_of[v]);
    if (const auto* table = std::get_if<RopeTable>(&n.op)) {
      const float* factors =
          n.in.size() > 1 ? reinterpret_cast<const float*>(weights.data(graph_.info(n.in[1]).name)) : nullptr;
      plan->instructions.push_back(std::make_unique<RopeTableInstruction>(*table, factors, site.in[0], site.out[0]));
    } else {
      plan->instructions.push_back(make_instruction(site));
    }
  }
  return plan;
}

/// Instructions that touch nothing in common run without a barrier between them: rotating q and k, for one.
std::vector<bool> Program::find_barriers(const LayerRange& range, const MemoryPlan& memory) const {
  constexpr std::uint64_t kOutside = std::uint64_t{1} << 62;  // caches and bound values: places of their own
  auto range_of = [&](std::uint32_t v) -> Range {
    const ValueInfo& info = graph_.info(v);
    if (info.kind == ValueKind::Cache) {
      const std::uint64_t at =
          kOutside + static_cast<std::uint64_t>(info.cache.layer) * 2 + static_cast<std::uint64_t>(info.cache.part);
      return {at, at + 1};
    }
    if (info.kind == ValueKind::Recurrent) return {kOutside, kOutside};  // of one node
    if (memory.offset[v] == MemoryPlan::kNone) return {2 * kOutside + roots_[v], 2 * kOutside + roots_[v] + 1};
    return {memory.offset[v], memory.offset[v] + info.type.bytes()};
  };
  std::vector<bool> sync;
  Touched since;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const Node& n = graph_.nodes()[i];
    Touched now;
    if (!std::holds_alternative<Reshape>(n.op)) {
      for (std::uint32_t v : n.in) now.read(range_of(v));
      for (std::uint32_t v : n.out) now.write(range_of(v));
      if (const std::uint64_t at = memory.scratch_offset[i]; at != MemoryPlan::kNone) {
        now.write({at, at + scratch_bytes(graph_, n, most_threads())});
      }
    }
    sync.push_back(i > range.begin && since.conflicts(now));
    if (sync.back()) since.clear();
    since.add(now);
  }
  return sync;
}

std::byte* Program::binding(const ValueInfo& v, const host::StepRows& rows, std::span<const Binding> in,
                            std::span<const Binding> out) const {
  for (const auto list : {in, out}) {
    for (const Binding& b : list) {
      if (b.value != v.name) continue;
      const auto elems = static_cast<std::size_t>(row_elems(v) * rows.count(v.rows));
      check(b.bytes >= elems * info(v.type.dtype).block_bytes, "bound memory holds the step's rows");
      return b.data;
    }
  }
  check(false, "every input and output of the graph is bound: " + v.name + " is not");
  return nullptr;
}

void Program::bind(const StepData& step, const host::StepRows& rows, std::span<const Binding> in,
                   std::span<const Binding> out) {
  for (const Bound& b : bound_) {
    const ValueInfo& v = graph_.info(b.value);
    const std::byte* data = nullptr;
    switch (v.input) {
      case StepInput::Tokens:
        data = as_bytes(step.tokens);
        break;
      case StepInput::Positions:
        data = as_bytes(step.positions);
        break;
      case StepInput::OutRows:
        data = as_bytes(step.out_rows);
        break;
      case StepInput::None:
        data = binding(v, rows, in, out);
        break;
    }
    for (const auto& [layer, slot] : b.slots)
      layers_[layer].slots[static_cast<std::size_t>(slot)].data = const_cast<std::byte*>(data);
  }
}

Ticket Program::submit(const StepData& step, std::span<const Binding> in, std::span<const Binding> out) {
  const host::StepRows rows = check_(step);
  for (std::int32_t t : step.tokens) check(t >= 0 && t < vocab_, "token ids are rows of the embedding");
  for (std::int32_t p : step.positions) check(p < positions_, "positions are rows of their embedding");
  bind(step, rows, in, out);
  non_finite_.store(false, std::memory_order_relaxed);
  const int team = team_size(step, rows);
  barrier_.set_threads(team);
  std::exception_ptr failure;  // of code that is not ours, on thread 0
  team_->run(team, [&](int thread) {
    const Worker worker{
        .thread = thread, .n_threads = team, .scratch = workspace_.scratch(thread), .barrier = &barrier_};
    const std::exception_ptr caught = execute(step, rows, worker);
    if (thread == 0) failure = caught;
  });
  for (auto& [key, plan] : plans_) plan->runs += plan->users;  // their queues were used, whatever failed
  if (failure) std::rethrow_exception(failure);
  return {++submitted_};
}

/// Threads that have enough to do. Sixteen tokens cost about as much again as reading the weights, or the cache, once.
int Program::team_size(const StepData& step, const host::StepRows& rows) const {
  const int threads = rows.tokens > kFewTokens ? prompt_threads_ : threads_;
  if (bytes_per_thread_ == 0) return threads;
  const auto of_tokens = [](std::uint64_t bytes, std::int64_t tokens) {
    return bytes + bytes / 16 * static_cast<std::uint64_t>(tokens - 1);
  };
  constexpr std::uint64_t kStoring = 16;  // times what reading takes: rows are converted, keys transposed
  std::uint64_t work = of_tokens(weight_bytes_, rows.tokens) +
                       kStoring * stored_position_bytes_ * static_cast<std::uint64_t>(rows.tokens);
  for (const SequenceSpan& s : step.sequences)
    work += of_tokens(read_position_bytes_ * static_cast<std::uint64_t>(s.kv_len), s.n_tokens);
  const std::uint64_t shares = work / meetings_ / bytes_per_thread_;
  constexpr std::uint64_t kSharesWorthWaking = 8;
  return shares < kSharesWorthWaking ? 1 : static_cast<int>(std::min(shares, static_cast<std::uint64_t>(threads)));
}

std::exception_ptr Program::execute(const StepData& step, const host::StepRows& rows, const Worker& w) {
  std::exception_ptr failure;  // the other threads wait at barriers: go on and report at the end
  const std::int32_t furthest = *std::ranges::max_element(step.positions);
  for (const Layer& layer : layers_) {
    const Frame frame{.slots = layer.slots.data(),
                      .step = &step,
                      .rows = rows,
                      .turn = layer.plan->runs + layer.turn,
                      .failure = &failure,
                      .non_finite = &non_finite_};
    Frame idle = frame;  // what no token of the step needs is run for none: its queues go on
    idle.rows = {};
    w.sync();
    for (std::size_t i = 0; i < layer.plan->instructions.size(); ++i) {
      Instruction* instruction = layer.plan->instructions[i].get();
      if (layer.sync_before[i]) w.sync();
      const Clock::time_point begin = observer_ ? Clock::now() : Clock::time_point{};
      const bool needed = layer.needed_from[i] <= furthest || observer_ != nullptr;
      if (instruction) instruction->run(needed ? frame : idle, w);
      if (!observer_) continue;
      w.sync();
      if (w.thread == 0 && !failure) {
        try {
          const std::chrono::duration<double> taken = Clock::now() - begin;
          observe_node(graph_.nodes()[layer.range.begin + i], frame, layer, taken.count());
        } catch (...) {
          failure = std::current_exception();
        }
      }
      w.sync();
    }
  }
  return failure;
}

void Program::observe_node(const Node& n, const Frame& f, const Layer& layer, double seconds) {
  const std::vector<std::uint32_t> values = range_values(graph_, layer.range);
  const auto data = [&](std::uint32_t v) -> const std::byte* {
    return layer.slots[static_cast<std::size_t>(std::find(values.begin(), values.end(), v) - values.begin())].data;
  };
  host::report(*observer_, graph_, n, *f.step, f.rows, cache_.format(), seconds, data);
}

std::string Program::describe() const {
  std::string text;
  const Plan* last = nullptr;
  for (const Layer& layer : layers_) {
    const std::string where =
        layer.range.layer < 0 ? "outside the layers" : "layer " + std::to_string(layer.range.layer);
    if (layer.plan == last) {
      text += where + ": as before\n";
      continue;
    }
    last = layer.plan;
    text += where + ":\n";
    for (std::size_t i = 0; i < layer.plan->instructions.size(); ++i) {
      if (!layer.plan->instructions[i]) continue;
      text += (layer.sync_before[i] ? "  | " : "    ") + layer.plan->instructions[i]->describe() + "\n";
    }
  }
  return text;
}

}  // namespace llm::cpu
