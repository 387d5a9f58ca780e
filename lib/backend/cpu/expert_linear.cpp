// Products with the experts that each token was routed to: routes are sorted by expert, so that an expert's weights are
// read once for all of its tokens, and all experts of the layer form one list of tasks.
#include <algorithm>

#include "backend/cpu/isa.h"
#include "backend/cpu/quantized_input.h"
#include "backend/cpu/step.h"

namespace llm::cpu {
namespace {

std::size_t aligned(std::size_t n) { return (n + 63) / 64 * 64; }

/// Routes of a step grouped by expert, in scratch memory. A route is a (token, choice) pair, numbered token * top_k +
/// choice.
class RoutePlan {
 public:
  RoutePlan(std::int64_t experts, std::int64_t routes) : experts_(experts), routes_(routes) {}
  std::size_t bytes() const {
    return aligned(static_cast<std::size_t>(2 * experts_ + 2 + 2 * routes_) * sizeof(std::int32_t));
  }

  struct View {
    std::int32_t* first;    ///< [experts + 1] where each expert's routes start in `route`
    std::int32_t* active;   ///< [1 + experts] count, then the experts that have routes
    std::int32_t* route;    ///< [routes] ascending within an expert
    std::int32_t* act_row;  ///< [routes] row of the input
  };
  View view(std::byte* memory) const {
    auto* p = reinterpret_cast<std::int32_t*>(memory);
    return {p, p + experts_ + 1, p + 2 * experts_ + 2, p + 2 * experts_ + 2 + routes_};
  }

  /// Counting sort; `routes_per_row` routes share one input row.
  void build(const View& v, const std::int32_t* ids, std::int64_t routes, std::int64_t routes_per_row) const {
    std::fill(v.first, v.first + experts_ + 1, 0);
    for (std::int64_t r = 0; r < routes; ++r) ++v.first[ids[r] + 1];
    std::int32_t n_active = 0;
    for (std::int64_t e = 0; e < experts_; ++e) {
      if (v.first[e + 1]) v.active[1 + n_active++] = static_cast<std::int32_t>(e);
      v.first[e + 1] += v.first[e];
    }
    v.active[0] = n_active;
    for (std::int64_t r = 0; r < routes; ++r) {
      const std::int32_t at = v.first[ids[r]]++;
      v.route[at] = static_cast<std::int32_t>(r);
      v.act_row[at] = static_cast<std::int32_t>(r / routes_per_row);
    }
    for (std::int64_t e = experts_; e > 0; --e) v.first[e] = v.first[e - 1];
    v.first[0] = 0;
  }

 private:
  std::int64_t experts_, routes_;
};

struct ExpertProduct {
  LinearFn linear;
  std::string type;
  int weight, bias, scale, y;  ///< slots; -1 for what is absent
  std::size_t input;
  std::size_t w_row_bytes, expert_bytes;
  std::int64_t n;
};

class ExpertLinearInstruction final : public Instruction {
 public:
  explicit ExpertLinearInstruction(const InstructionSite& site)
      : kernels_(site.kernels),
        x_(site.in[0]),
        ids_(site.in[1]),
        scratch_(site.scratch),
        k_(site.in_info(0).type.shape[0]),
        top_k_(site.in_info(1).type.shape[0]),
        per_route_(site.in_info(0).type.shape.n_dims() == 3 ? top_k_ : 1),
        rows_(site.in_info(0).rows),
        plan_(site.in_info(2).type.shape[2], site.in_info(1).type.shape.elements()) {
    const std::span<const llm::Product> products = llm::products(site.node.op);
    const auto operands = product_operands(site.node.op);
    for (std::size_t i = 0; i < products.size(); ++i) {
      const TensorType& w = site.in_info(operands[i].weight).type;
      const std::size_t row = w.row_bytes();
      rows_of_expert_ += w.shape[1];
      products_.push_back({.linear = kernels_.linear[static_cast<int>(w.dtype)],
                           .type = std::string(name(w.dtype)),
                           .weight = site.in[operands[i].weight],
                           .bias = products[i].bias ? site.in[operands[i].bias] : -1,
                           .scale = products[i].scale ? site.in[operands[i].scale] : -1,
                           .y = site.out[i],
                           .input = inputs_.add(products[i].activation, k_, site.in_info(0).type.shape.rows()),
                           .w_row_bytes = row,
                           .expert_bytes = row * static_cast<std::size_t>(w.shape[1]),
                           .n = w.shape[1]});
    }
  }

  void run(const Frame& f, const Worker& w) override {
    const std::int64_t tokens = f.rows.count(rows_);
    std::byte* memory = f.slots[scratch_].data;
    const RoutePlan::View routes = plan_.view(memory);
    std::byte* quantized = memory + plan_.bytes();
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    if (w.thread == 0) plan_.build(routes, f.i32(ids_), tokens * top_k_, top_k_ / per_route_);
    if (inputs_.quantized()) inputs_.quantize(kernels_, f.f32(x_), tokens * per_route_, quantized, w);
    w.sync();
    const std::int64_t active = routes.active[0];
    if (active == 0) return;
    const std::int64_t rows = task_rows(tokens * top_k_ / active, active * rows_of_expert_, w.n_threads);
    std::int64_t per_expert = 0;
    for (const ExpertProduct& p : products_) per_expert += (p.n + rows - 1) / rows;
    for (std::int64_t task = queue.take(); task < active * per_expert; task = queue.take()) {
      run_task(f, w, routes, routes.active[1 + task / per_expert], task % per_expert, rows, quantized);
    }
  }

  std::string describe() const override {
    std::string text = "expert_linear";
    for (const ExpertProduct& p : products_)
      text += " " + p.type + "[" + std::to_string(k_) + "x" + std::to_string(p.n) + "]";
    return text + inputs_.describe() + ", top " + std::to_string(top_k_);
  }

 private:
  void run_task(const Frame& f, const Worker& w, const RoutePlan::View& routes, std::int32_t expert, std::int64_t task,
                std::int64_t rows, const std::byte* quantized) const {
    std::size_t i = 0;
    for (std::int64_t n; task >= (n = (products_[i].n + rows - 1) / rows); ++i) task -= n;
    const ExpertProduct& p = products_[i];
    const std::int32_t first = routes.first[expert];
    const LinearArgs args{.w = f.slots[p.weight].data + p.expert_bytes * static_cast<std::size_t>(expert),
                          .w_row_bytes = p.w_row_bytes,
                          .k = k_,
                          .act = inputs_.data(p.input, f.f32(x_), quantized),
                          .layout = &inputs_.layout(p.input),
                          .n_cols = routes.first[expert + 1] - first,
                          .act_rows = routes.act_row + first,
                          .out_rows = routes.route + first,
                          .y = f.f32(p.y),
                          .ldy = p.n,
                          .ways = ways_};
    const std::int64_t begin = task * rows, end = std::min(p.n, begin + rows);
    p.linear(args, begin, end, w.scratch);
    for (std::int64_t c = 0; c < args.n_cols; ++c) {
      float* part = args.y + args.out_rows[c] * p.n + begin;
      if (p.scale >= 0) kernels_.scale(part, part, end - begin, f.f32(p.scale)[expert]);
      if (p.bias >= 0) kernels_.add(part, f.f32(p.bias) + expert * p.n + begin, part, end - begin);
    }
  }

  const Kernels& kernels_;
  Ways ways_ = best_ways(kernels_);
  int x_, ids_, scratch_;
  std::int64_t k_, top_k_;
  std::int64_t per_route_;  ///< input rows per token: 1, or top_k where each route has its own
  RowSpace rows_;
  RoutePlan plan_;
  QuantizedInputs inputs_;
  std::vector<ExpertProduct> products_;
  std::int64_t rows_of_expert_ = 0;  ///< of all products
  TaskQueues queues_;
};

}  // namespace

std::size_t expert_linear_scratch_bytes(const Graph& g, const Node& n) {
  QuantizedInputs inputs;
  const Shape& x = g.info(n.in[0]).type.shape;
  for (const llm::Product& p : products(n.op)) inputs.add(p.activation, x[0], x.rows());
  const RoutePlan plan(g.info(n.in[2]).type.shape[2], g.info(n.in[1]).type.shape.elements());
  return plan.bytes() + inputs.scratch_bytes();
}

std::unique_ptr<Instruction> make_expert_linear(const InstructionSite& site) {
  return std::make_unique<ExpertLinearInstruction>(site);
}

}  // namespace llm::cpu
