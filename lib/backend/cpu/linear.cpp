// Products with shared input: every weight's rows are shared out.
#include <algorithm>
#include <bit>

#include "backend/cpu/products.h"

namespace llm::cpu {
namespace {

/// Up to this many columns a product takes little longer than reading the weights, and each thread has one contiguous
/// range of rows: kernels fetch what comes next, and a task would begin with weights that nobody fetched.
constexpr std::int64_t kRangeColumns = 32;

bool any_non_finite(const float* x, std::int64_t n) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < n; ++i)
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(x[i]) & kExponent) == kExponent);
  return bad != 0;
}

class LinearInstruction final : public Instruction {
 public:
  explicit LinearInstruction(const InstructionSite& site)
      : scratch_(site.scratch),
        rows_(site.in_info(0).rows),
        looks_(looks_at_results(site.graph, site.node)),
        products_(site) {}

  void run(const Frame& f, const Worker& w) override {
    const std::int64_t cols = f.rows.count(rows_);
    std::byte* const scratch = scratch_ < 0 ? nullptr : f.slots[scratch_].data;
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    if (cols == 0) return;
    if (scratch != nullptr) {
      products_.quantize(f, w, cols, scratch);
      w.sync();
    }
    if (cols <= kRangeColumns) {
      for (const Products::Weight& weight : products_.weights()) {
        const auto [begin, end] = w.share(weight.n, kRowTile);
        if (begin < end) compute(f, w, {&weight, begin, end}, cols, scratch);
      }
      return;
    }
    const std::int64_t rows = task_rows(cols, products_.rows(), w.n_threads), tasks = products_.parts(rows);
    for (std::int64_t task = queue.take(); task < tasks; task = queue.take())
      compute(f, w, products_.part(task, rows), cols, scratch);
  }

  std::string describe() const override { return "linear" + products_.describe(); }

 private:
  void compute(const Frame& f, const Worker& w, const Products::Part& part, std::int64_t cols,
               const std::byte* scratch) const {
    products_.compute(f, w, part, {.n = cols}, scratch);
    if (!looks_) return;
    for (std::int64_t c = 0; c < cols; ++c) {
      const float* const y = f.f32(part.weight->y) + c * part.weight->n;
      if (any_non_finite(y + part.begin, part.end - part.begin)) f.non_finite->store(true, std::memory_order_relaxed);
    }
  }

  int scratch_;
  RowSpace rows_;
  bool looks_;
  Products products_;
  TaskQueues queues_;
};

}  // namespace

bool looks_at_results(const Graph& g, const Node& n) {
  if (!std::holds_alternative<Linear>(n.op) || n.layer >= 0) return false;
  return std::ranges::any_of(n.out,
                             [&](std::uint32_t v) { return std::ranges::find(g.outputs(), v) != g.outputs().end(); });
}

std::unique_ptr<Instruction> make_linear(const InstructionSite& site) {
  return std::make_unique<LinearInstruction>(site);
}

}  // namespace llm::cpu
