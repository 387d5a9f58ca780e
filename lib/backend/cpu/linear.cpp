// Products with shared input: the input is quantised once per format, then every weight's rows are shared out.
#include <algorithm>
#include <bit>

#include "backend/cpu/isa.h"
#include "backend/cpu/quantized_input.h"
#include "backend/cpu/step.h"
#include "base/error.h"

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

struct Product {
  LinearFn linear;
  std::string type;
  int weight, bias, scale, y;  ///< slots; -1 for what is absent
  std::size_t input;           ///< which of the instruction's inputs
  std::size_t w_row_bytes;
  std::int64_t n;
};

class LinearInstruction final : public Instruction {
 public:
  explicit LinearInstruction(const InstructionSite& site)
      : kernels_(site.kernels),
        x_(site.in[0]),
        scratch_(site.scratch),
        k_(site.in_info(0).type.shape[0]),
        rows_(site.in_info(0).rows),
        looks_(looks_at_results(site.graph, site.node)) {
    const std::span<const llm::Product> products = llm::products(site.node.op);
    const auto operands = product_operands(site.node.op);
    for (std::size_t i = 0; i < products.size(); ++i) {
      const TensorType& w = site.in_info(operands[i].weight).type;
      all_rows_ += w.shape[1];
      products_.push_back({.linear = kernels_.linear[static_cast<int>(w.dtype)],
                           .type = std::string(name(w.dtype)),
                           .weight = site.in[operands[i].weight],
                           .bias = products[i].bias ? site.in[operands[i].bias] : -1,
                           .scale = products[i].scale ? site.in[operands[i].scale] : -1,
                           .y = site.out[i],
                           .input = inputs_.add(products[i].activation, k_, site.in_info(0).type.shape.rows()),
                           .w_row_bytes = w.row_bytes(),
                           .n = w.shape[1]});
    }
  }

  void run(const Frame& f, const Worker& w) override {
    const std::int64_t cols = f.rows.count(rows_);
    const float* x = f.f32(x_);
    std::byte* scratch = scratch_ < 0 ? nullptr : f.slots[scratch_].data;
    TaskQueue& queue = queues_.open(f.turn, w.thread);
    if (inputs_.quantized()) {
      inputs_.quantize(kernels_, x, cols, scratch, w);
      w.sync();
    }
    if (cols <= kRangeColumns) {
      for (const Product& p : products_) {
        const auto [begin, end] = w.share(p.n, kRowTile);
        compute(f, w, p, x, scratch, cols, begin, end);
      }
      return;
    }
    const std::int64_t rows = task_rows(cols, all_rows_, w.n_threads);
    for (std::int64_t task = queue.take(); run_task(f, w, task, rows, x, scratch, cols);) task = queue.take();
  }

  std::string describe() const override {
    std::string text = "linear";
    for (const Product& p : products_)
      text += " " + p.type + "[" + std::to_string(k_) + "x" + std::to_string(p.n) + "]";
    return text + inputs_.describe();
  }

 private:
  /// False if there are fewer tasks, each of `rows` weight rows.
  bool run_task(const Frame& f, const Worker& w, std::int64_t task, std::int64_t rows, const float* x,
                std::byte* scratch, std::int64_t cols) const {
    for (const Product& p : products_) {
      const std::int64_t tasks = (p.n + rows - 1) / rows;
      if (task < tasks) {
        compute(f, w, p, x, scratch, cols, task * rows, std::min(p.n, (task + 1) * rows));
        return true;
      }
      task -= tasks;
    }
    return false;
  }

  void compute(const Frame& f, const Worker& w, const Product& p, const float* x, std::byte* scratch, std::int64_t cols,
               std::int64_t begin, std::int64_t end) const {
    if (begin >= end) return;
    float* y = f.f32(p.y);
    const LinearArgs args{.w = f.slots[p.weight].data,
                          .w_row_bytes = p.w_row_bytes,
                          .k = k_,
                          .act = inputs_.data(p.input, x, scratch),
                          .layout = &inputs_.layout(p.input),
                          .n_cols = cols,
                          .y = y,
                          .ldy = p.n,
                          .ways = ways_};
    p.linear(args, begin, end, w.scratch);
    for (std::int64_t c = 0; c < cols; ++c) {
      float* part = y + c * p.n + begin;
      if (p.scale >= 0) kernels_.scale(part, part, end - begin, *f.f32(p.scale));
      if (p.bias >= 0) kernels_.add(part, f.f32(p.bias) + begin, part, end - begin);
      if (looks_ && any_non_finite(part, end - begin)) f.non_finite->store(true, std::memory_order_relaxed);
    }
  }

  const Kernels& kernels_;
  Ways ways_ = best_ways(kernels_);
  int x_, scratch_;
  std::int64_t k_;
  RowSpace rows_;
  bool looks_;
  QuantizedInputs inputs_;
  std::vector<Product> products_;
  std::int64_t all_rows_ = 0;  ///< of all products
  TaskQueues queues_;
};

}  // namespace

bool looks_at_results(const Graph& g, const Node& n) {
  if (!std::holds_alternative<Linear>(n.op) || n.layer >= 0) return false;
  return std::ranges::any_of(n.out,
                             [&](std::uint32_t v) { return std::ranges::find(g.outputs(), v) != g.outputs().end(); });
}

std::size_t linear_scratch_bytes(const Graph& g, const Node& n) {
  QuantizedInputs inputs;
  const TensorType& x = g.info(n.in[0]).type;
  for (const auto& p : std::get<Linear>(n.op).products) inputs.add(p.activation, x.shape[0], x.shape.rows());
  return inputs.scratch_bytes();
}

std::unique_ptr<Instruction> make_linear(const InstructionSite& site) {
  return std::make_unique<LinearInstruction>(site);
}

}  // namespace llm::cpu
