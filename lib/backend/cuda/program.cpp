#include "backend/cuda/program.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cuda/instructions.h"
#include "backend/cuda/kernels/draw.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/screen.h"
#include "backend/cuda/recording.h"
#include "backend/cuda/step_buffer.h"
#include "backend/host/cost.h"
#include "backend/host/host.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

bool is_arrival(const Node& node) { return std::holds_alternative<Reshape>(node.op) && node.in[0] == node.out[0]; }

int table_stride(const CudaCache& cache) {
  return static_cast<int>((cache.most_positions() + kBlockPositions - 1) / kBlockPositions);
}

class CudaProgram final : public Executable {
 public:
  CudaProgram(const Graph& graph, const CudaWeights& weights, CudaCache& cache, CudaWorkspace& workspace, Gemm* gemm,
              const Stream& stream, ProgramOptions options)
      : device_(current_device()),
        graph_(keep_single_rows(graph)),
        cache_(cache),
        stream_(stream),
        overlap_(options.overlap),
        plan_(plan_step(graph_, options.many, token_kernels())),
        streams_(plan_streams(graph_)),
        streamed_(streams_, weights, workspace.stream()),
        fleeting_(fleeting_layers(graph_, cache)),
        workspace_(workspace),
        step_(graph_.bucket(), table_stride(cache), ends_in_logits(graph_) ? graph_.bucket().outputs : 0,
              workspace.draws(), workspace.staging()),
        view_(step_.view()),
        site_{graph_,    weights, cache, workspace,    plan_,
              streamed_, view_,   gemm,  options.many, options.prompt_attention} {
    check(plan_.bytes <= workspace.activation_bytes(), "the workspace was made for a bucket at least as large");
    for (const Node& node : graph_.nodes()) {
      uses_cache_ |= std::holds_alternative<Attention>(node.op);
      uses_states_ |= std::holds_alternative<ShortConv>(node.op) || std::holds_alternative<GatedDelta>(node.op) ||
                      std::holds_alternative<SelectiveScan>(node.op);
      if (is_arrival(node)) arrivals_.push_back(node.out[0]);
    }
    compiled_ = compile_fused(site_);
    if (ends_in_logits(graph_)) {
      prepare_screen();
      prepare_draws();
    }
    if (graph_.bucket().tokens > kMaxColumns) return;
    check(!brings(), "nothing is brought for a recorded step");
    const StepLaunch all = capacity();
    recording_.record(stream_.get(), [&] {
      launch_plain(all);
      launch_screen(all);
    });
    if (!draws_) return;
    drawing_.record(stream_.get(), [&] {
      launch_plain(all);
      launch_draws(all);
    });
  }

  Ticket submit(const StepData& step, std::span<const Binding> in, std::span<const Binding> out) override {
    use_device(device_);
    const host::StepRows rows = host::check_step(step, graph_.bucket());
    if (uses_cache_) host::check_blocks(step, cache_.n_blocks());
    if (uses_states_) host::check_states(step, cache_.n_slots());
    Pending& next = pending(++submitted_);
    next.ticket = submitted_;
    next.drawn = step.draws.size();
    next.turn = step.draws.empty() ? 0 : workspace_.next_turn();
    step_.upload(step, next.turn, stream_.get());
    for (const std::uint32_t id : arrivals_) {
      const Binding& from = bound_to(id, rows, in);
      check_cuda(cudaMemcpyAsync(value_data(site_, id), from.data, value_bytes(id, rows.tokens, rows.outputs),
                                 cudaMemcpyDefault, stream_.get()),
                 "copying what another segment computed");
    }
    if (!step.draws.empty()) {
      check(draws_.has_value() && step.draws.size() == step.out_rows.size(), "a rule for each row of logits");
      run(step, rows, drawing_, [&](const StepLaunch& at) { launch_draws(at); });
    } else {
      bind(rows, out);
      run(step, rows, recording_, [&](const StepLaunch& at) { launch_screen(at); });
      copy_results(next, rows);
    }
    check_cuda(cudaEventRecord(next.ended.get(), stream_.get()), "marking a step's end");
    return {submitted_};
  }

  bool begin_behind(const Executable& other, Ticket ticket) override {
    const auto* const before = dynamic_cast<const CudaProgram*>(&other);
    if (before == nullptr) return false;
    use_device(device_);
    const Pending& step = before->pending(ticket.id);
    check(step.ticket == ticket.id, "a step that was submitted");
    check_cuda(cudaStreamWaitEvent(stream_.get(), step.ended.get(), 0), "waiting for another segment");
    return true;
  }

  void wait(Ticket ticket) override {
    use_device(device_);
    waited_ = &pending(ticket.id);
    check(waited_->ticket == ticket.id, "a step that was submitted");
    check_cuda(cudaEventSynchronize(waited_->ended.get()), "running a step");
    if (waited_->drawn > 0) return;
    for (const Bound& b : bound_) {
      if (!b.ordered) check_cuda(cudaMemcpy(b.to, b.from, b.bytes, cudaMemcpyDeviceToHost), "copying results");
    }
  }

  bool may_be_non_finite() const override {
    if (!draws_) return true;
    const auto bad = [](std::int32_t f) { return f != 0; };
    if (waited_->drawn > 0) {
      const std::int32_t* const rows = draws_->bad + waited_->turn * draws_->capacity;
      return std::any_of(rows, rows + waited_->drawn, bad);
    }
    const auto* const found = reinterpret_cast<const std::int32_t*>(found_here(*waited_));
    return std::any_of(found, found + waited_->screened, bad);
  }

  std::span<const std::int32_t> drawn() const override {
    return {draws_->tokens + waited_->turn * draws_->capacity, waited_->drawn};
  }

  std::string describe() const override;
  void observe(Observer* observer) override {
    use_device(device_);
    observer_ = observer;
    if (observer_ != nullptr && observed_.instructions.empty()) observed_ = compile_nodes(site_);
  }

 private:
  struct Bound {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
    bool ordered;  ///< page-locked or a device's: copies run behind the step's kernels
  };

  /// A step on its way, or one that has ended.
  struct Pending {
    std::uint64_t ticket = 0;
    std::size_t drawn = 0;     ///< rows; 0: it does not draw
    std::size_t screened = 0;  ///< parts of rows
    int turn = 0;
    Event ended = {};
  };
  Pending& pending(std::uint64_t ticket) { return pending_[ticket % pending_.size()]; }
  const Pending& pending(std::uint64_t ticket) const { return pending_[ticket % pending_.size()]; }
  std::byte* found_here(const Pending& step) const {
    return found_here_.data() + static_cast<std::size_t>(&step - pending_.data()) * found_.bytes();
  }

  /// The step's kernels, as they were recorded where they were, and `last` behind them.
  template <class F>
  void run(const StepData& step, const host::StepRows& rows, const Recording& recorded, const F& last) {
    if (observer_ == nullptr && recorded.recorded()) return recorded.launch(stream_.get());
    const StepLaunch at = actual(rows);
    try {
      if (observer_ != nullptr) {
        run_observed(step, rows);
      } else if (brings()) {
        launch_bringing(step, at);
      } else {
        launch_plain(at);
      }
    } catch (...) {
      // What was launched still uses what is brought, and the next step brings to the same places.
      cudaStreamSynchronize(stream_.get());
      throw;
    }
    last(at);
  }

  /// Whether steps bring what the device does not keep.
  bool brings() const { return !streams_.uses.empty() || !fleeting_.empty(); }

  /// Of one step.
  struct Bringing {
    Bringing(const CudaProgram& p, const StepData& step) {
      if (!p.streams_.uses.empty()) weights.emplace(*p.workspace_.stream(), p.streamed_.uses);
      if (!p.fleeting_.empty()) caches.emplace(*p.cache_.stream(), p.fleeting_, step, p.stream_.get());
    }
    std::optional<WeightStream::Step> weights;
    std::optional<CacheStream::Step> caches;
    std::size_t use = 0;  ///< of weights, the next
  };

  void launch_plain(const StepLaunch& at) const {
    for (const Instruction& i : compiled_.instructions) i.launch(at);
  }

  void launch_bringing(const StepData& step, const StepLaunch& at) const {
    Bringing bringing(*this, step);
    for (auto i = compiled_.instructions.begin(); i != compiled_.instructions.end();) {
      const auto end = std::find_if(i, compiled_.instructions.end(),
                                    [&](const Instruction& other) { return other.node != i->node; });
      launch_node(i->node, i, end, at, bringing);
      i = end;
    }
    finish(bringing);
  }
  /// Instructions [begin, end), which are those of one node.
  template <class Iterator>
  void launch_node(std::size_t node, Iterator begin, Iterator end, const StepLaunch& at, Bringing& bringing) const {
    if (bringing.caches) bringing.caches->reach(node);
    const bool streamed = bringing.use < streams_.uses.size() && streams_.uses[bringing.use].node == node;
    StepLaunch own = at;
    // Kernels ask for what they read before the one before them has ended.
    if (streamed || bringing.caches) own.at.overlap = false;
    if (streamed) bringing.weights->arrive(bringing.use, stream_.get());
    for (; begin != end; ++begin) begin->launch(own);
    if (streamed) bringing.weights->leave(bringing.use++, stream_.get());
  }
  void finish(Bringing& bringing) const {
    if (bringing.caches) bringing.caches->finish();
    check(bringing.use == streams_.uses.size(), "all weights that were brought were read");
  }

  void copy_results(Pending& step, const host::StepRows& rows) {
    for (const Bound& b : bound_) {
      if (b.ordered)
        check_cuda(cudaMemcpyAsync(b.to, b.from, b.bytes, cudaMemcpyDefault, stream_.get()), "copying results");
    }
    if (!draws_) return;
    step.screened = static_cast<std::size_t>(rows.outputs) * kScreenParts;
    check_cuda(cudaMemcpyAsync(found_here(step), found_.data(), step.screened * sizeof(std::int32_t),
                               cudaMemcpyDeviceToHost, stream_.get()),
               "copying results");
  }

  void prepare_draws() {
    const int rows = graph_.bucket().outputs;
    check(rows <= workspace_.draws().rows, "the workspace was made for a bucket at least as large");
    drawn_here_ = PinnedBuffer(4 * static_cast<std::size_t>(rows) * sizeof(std::int32_t));
    auto* const here = reinterpret_cast<std::int32_t*>(drawn_here_.data());
    draws_ = {.tokens = here, .bad = here + 2 * rows, .capacity = rows};
  }
  void launch_draws(const StepLaunch& s) const {
    const std::uint32_t id = graph_.outputs()[0];
    draw_tokens({.logits = reinterpret_cast<const float*>(value_data(site_, id)),
                 .n = static_cast<int>(graph_.info(id).type.shape[0]),
                 .rules = view_.rules,
                 .data = view_.counts,
                 .used_rows = view_.counts + 1},
                s.outputs, workspace_.draws(), *draws_, s.at);
  }

  StepLaunch capacity() const {
    return {.at = {.stream = stream_.get(), .overlap = overlap_},
            .tokens = graph_.bucket().tokens,
            .outputs = graph_.bucket().outputs,
            .spans = nullptr};
  }
  StepLaunch actual(const host::StepRows& rows) const {
    StepLaunch s = capacity();
    if (recording_.recorded()) return s;  // observed: what the recording does
    s.tokens = static_cast<int>(rows.tokens);
    s.outputs = static_cast<int>(rows.outputs);
    s.spans = &step_.spans();
    return s;
  }

  /// The caller looks at other results itself.
  void prepare_screen() {
    found_ = DeviceBuffer(static_cast<std::size_t>(graph_.bucket().outputs) * kScreenParts * sizeof(std::int32_t));
    found_here_ = PinnedBuffer(found_.bytes() * pending_.size());
  }
  void launch_screen(const StepLaunch& s) const {
    if (!draws_) return;
    const std::uint32_t id = graph_.outputs().front();
    screen_rows(reinterpret_cast<const float*>(value_data(site_, id)), static_cast<int>(graph_.info(id).type.shape[0]),
                s.outputs, view_.counts + 1, reinterpret_cast<std::int32_t*>(found_.data()), s.at);
  }

  std::size_t value_bytes(std::uint32_t id, std::int64_t tokens, std::int64_t outputs) const {
    const ValueInfo& v = graph_.info(id);
    const std::int64_t all = host::StepRows{graph_.bucket().tokens, graph_.bucket().outputs}.count(v.rows);
    return v.type.bytes() / static_cast<std::size_t>(all) *
           static_cast<std::size_t>(host::StepRows{tokens, outputs}.count(v.rows));
  }

  void bind(const host::StepRows& rows, std::span<const Binding> out) {
    bound_.clear();
    for (const std::uint32_t id : graph_.outputs()) {
      std::byte* const to = bound_to(id, rows, out).data;
      const std::size_t bytes = value_bytes(id, rows.tokens, rows.outputs);
      if (bytes > 0) bound_.push_back({value_data(site_, id), to, bytes, is_ordered(to)});
    }
  }
  const Binding& bound_to(std::uint32_t id, const host::StepRows& rows, std::span<const Binding> bindings) const {
    const std::string& name = graph_.info(id).name;
    const auto found =
        std::find_if(bindings.begin(), bindings.end(), [&](const Binding& b) { return b.value == name; });
    check(found != bindings.end(), "every input and output of the graph is bound");
    check(found->bytes >= value_bytes(id, rows.tokens, rows.outputs), "bound memory holds the step's rows");
    return *found;
  }

  static bool is_ordered(const std::byte* memory) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, memory) == cudaSuccess &&
           (attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeDevice);
  }

  std::vector<std::byte> fetch(std::uint32_t id, const host::StepRows& rows) const {
    std::vector<std::byte> bytes(value_bytes(id, rows.tokens, rows.outputs));
    if (!bytes.empty())
      check_cuda(cudaMemcpy(bytes.data(), value_data(site_, id), bytes.size(), cudaMemcpyDeviceToHost),
                 "reading a value");
    return bytes;
  }

  /// Node by node, with the numbers of rows that an unobserved step has; only its fusions are taken apart.
  void run_observed(const StepData& step, const host::StepRows& rows) {
    const StepLaunch at = actual(rows);
    stream_.synchronize("copying a step's data");
    std::optional<Bringing> bringing;
    if (brings()) bringing.emplace(*this, step);
    auto next = observed_.instructions.begin();
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const auto end =
          std::find_if(next, observed_.instructions.end(), [&](const Instruction& other) { return other.node != i; });
      if (bringing)
        launch_node(i, next, end, at, *bringing);
      else
        for (auto each = next; each != end; ++each) each->launch(at);
      next = end;
      stream_.synchronize("running a node");
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (!is_arrival(graph_.nodes()[i])) report(graph_.nodes()[i], taken.count(), step, rows);
    }
    if (bringing) finish(*bringing);
  }

  void report(const Node& node, double seconds, const StepData& step, const host::StepRows& rows) {
    if (observer_->wants_timings()) {
      std::vector<std::byte> ids;
      if (std::holds_alternative<ExpertLinear>(node.op)) ids = fetch(node.in[1], rows);
      const auto* const experts = ids.empty() ? nullptr : reinterpret_cast<const std::int32_t*>(ids.data());
      const host::NodeCost cost = host::node_cost(graph_, node, step, rows, cache_.format(), experts);
      observer_->timing(
          {name(node.op), graph_.info(node.out[0]).name, node.layer, seconds, cost.bytes, cost.operations});
    }
    for (const std::uint32_t id : node.out) {
      const ValueInfo& v = graph_.info(id);
      if (v.kind == ValueKind::Cache || !observer_->wants_value(v.name)) continue;
      const std::vector<std::byte> bytes = fetch(id, rows);
      TensorType type = v.type;
      if (v.rows != RowSpace::None) {
        type.shape = {};
        for (int d = 0; d + 1 < v.type.shape.n_dims(); ++d) type.shape.push_back(v.type.shape[d]);
        type.shape.push_back(rows.count(v.rows));
      }
      observer_->value(v.name, {type, bytes.data()});
    }
  }

  int device_;
  Graph graph_;
  CudaCache& cache_;
  const Stream& stream_;
  bool overlap_;
  StepPlan plan_;
  StreamPlan streams_;
  StreamedWeights streamed_;
  std::vector<FleetingLayer> fleeting_;
  CudaWorkspace& workspace_;
  StepBuffer step_;
  StepView view_;
  Site site_;
  Compiled compiled_, observed_;
  Recording recording_, drawing_;  ///< of steps whose results are wanted, and of those that draw
  DeviceBuffer found_;             ///< per row of logits and part: not finite
  PinnedBuffer found_here_;        ///< of each pending step
  std::vector<std::uint32_t> arrivals_;
  std::vector<Bound> bound_;
  bool uses_cache_ = false, uses_states_ = false;
  Observer* observer_ = nullptr;
  PinnedBuffer drawn_here_;
  std::optional<DrawResults> draws_;  ///< in it, where the graph ends in logits
  std::array<Pending, kMostStepsAtOnce> pending_;
  const Pending* waited_ = pending_.data();
  std::uint64_t submitted_ = 0;
};

std::string CudaProgram::describe() const {
  std::vector<std::pair<std::string, int>> kinds;  // in the order of their first appearance
  for (const Instruction& i : compiled_.instructions) {
    const std::string line = std::string(name(graph_.nodes()[i.node].op)) + ": " + i.how;
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == line; });
    if (found == kinds.end()) {
      kinds.emplace_back(line, 1);
    } else {
      ++found->second;
    }
  }
  std::string text = recording_.recorded()
                         ? "one recorded step of " + std::to_string(recording_.kernels()) + " kernels, replayed\n"
                         : "launched kernel by kernel: products and attention "
                           "depend on the step's numbers of rows\n";
  if (!streams_.uses.empty())
    text += "weights of " + std::to_string(streams_.uses.size()) + " nodes are brought for each step, through " +
            std::to_string(streams_.size.slot * StreamPlan::kSlots >> 20) + " MiB\n";
  if (!fleeting_.empty())
    text += "keys and values of " + std::to_string(fleeting_.size()) + " layers are brought and sent back\n";
  for (const auto& [line, count] : kinds) text += std::to_string(count) + " x " + line + "\n";
  return text;
}

}  // namespace

bool ends_in_logits(const Graph& graph) {
  if (graph.outputs().size() != 1) return false;
  const ValueInfo& logits = graph.info(graph.outputs().front());
  return logits.type.dtype == DType::F32 && logits.rows == RowSpace::Outputs && logits.type.shape[0] <= kMostLogits;
}

Graph with_arrivals(const Graph& graph) {
  Graph g = graph;
  std::vector<Node> nodes;
  for (std::uint32_t id = 0; id < g.values().size(); ++id) {
    ValueInfo& v = g.mutable_values()[id];
    if (v.kind != ValueKind::Input || v.input != StepInput::None) continue;
    v.kind = ValueKind::Result;
    nodes.push_back({.op = Reshape{}, .in = {id}, .out = {id}});
  }
  nodes.insert(nodes.end(), g.nodes().begin(), g.nodes().end());
  g.mutable_nodes() = std::move(nodes);
  return g;
}

std::unique_ptr<Executable> make_program(const Graph& graph, const CudaWeights& weights, CudaCache& cache,
                                         CudaWorkspace& workspace, Gemm* gemm, const Stream& stream,
                                         ProgramOptions options) {
  return std::make_unique<CudaProgram>(graph, weights, cache, workspace, gemm, stream, options);
}

}  // namespace llm::cuda
