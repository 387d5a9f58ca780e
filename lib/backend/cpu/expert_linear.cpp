// Products with the experts that each token was routed to: routes are sorted by expert, so that an expert's weights are
// read once for all of its tokens, and all experts of the layer form one list of tasks.
#include <algorithm>

#include "backend/cpu/products.h"

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

class ExpertLinearInstruction final : public Instruction {
 public:
  explicit ExpertLinearInstruction(const InstructionSite& site)
      : ids_(site.in[1]),
        scratch_(site.scratch),
        top_k_(site.in_info(1).type.shape[0]),
        per_route_(site.in_info(0).type.shape.n_dims() == 3 ? top_k_ : 1),
        rows_(site.in_info(0).rows),
        plan_(site.in_info(2).type.shape[2], site.in_info(1).type.shape.elements()),
        products_(site) {}

  void run(const Frame& f, const Worker& w) override {
    const std::int64_t tokens = f.rows.count(rows_);
    std::byte* const memory = f.slots[scratch_].data;
    const RoutePlan::View routes = plan_.view(memory);
    std::byte* const quantized = memory + plan_.bytes();
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    if (w.thread == 0) plan_.build(routes, f.i32(ids_), tokens * top_k_, top_k_ / per_route_);
    products_.quantize(f, w, tokens * per_route_, quantized);
    w.sync();
    const std::int64_t active = routes.active[0];
    if (active == 0) return;
    const std::int64_t rows = task_rows(tokens * top_k_ / active, active * products_.rows(), w.n_threads);
    const std::int64_t of_expert = products_.parts(rows);
    for (std::int64_t task = queue.take(); task < active * of_expert; task = queue.take()) {
      const std::int32_t expert = routes.active[1 + task / of_expert], first = routes.first[expert];
      products_.compute(f, w, products_.part(task % of_expert, rows),
                        {.n = routes.first[expert + 1] - first,
                         .expert = expert,
                         .in_rows = routes.act_row + first,
                         .out_rows = routes.route + first},
                        quantized);
    }
  }

  std::string describe() const override {
    return "expert_linear" + products_.describe() + ", top " + std::to_string(top_k_);
  }

 private:
  int ids_, scratch_;
  std::int64_t top_k_;
  std::int64_t per_route_;  ///< input rows per token: 1, or top_k where each route has its own
  RowSpace rows_;
  RoutePlan plan_;
  Products products_;
  TaskQueues queues_;
};

}  // namespace

std::size_t expert_linear_scratch_bytes(const Graph& g, const Node& n) {
  const RoutePlan plan(g.info(n.in[2]).type.shape[2], g.info(n.in[1]).type.shape.elements());
  return plan.bytes() + Products::scratch_bytes(g, n);
}

std::unique_ptr<Instruction> make_expert_linear(const InstructionSite& site) {
  return std::make_unique<ExpertLinearInstruction>(site);
}

}  // namespace llm::cpu
