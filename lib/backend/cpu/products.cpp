#include "backend/cpu/products.h"

#include <algorithm>

namespace llm::cpu {

Products::Products(const InstructionSite& site)
    : kernels_(site.kernels), x_(site.in[0]), k_(site.in_info(0).type.shape[0]) {
  const std::span<const Product> products = llm::products(site.node.op);
  const std::vector<ProductOperands> operands = product_operands(site.node.op);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const TensorType& w = site.in_info(operands[i].weight).type;
    rows_ += w.shape[1];
    weights_.push_back({.linear = kernels_.linear[static_cast<int>(w.dtype)],
                        .type = std::string(name(w.dtype)),
                        .w = site.in[operands[i].weight],
                        .bias = products[i].bias ? site.in[operands[i].bias] : -1,
                        .scale = products[i].scale ? site.in[operands[i].scale] : -1,
                        .y = site.out[i],
                        .input = inputs_.add(products[i].activation, k_, site.in_info(0).type.shape.rows()),
                        .row_bytes = w.row_bytes(),
                        .n = w.shape[1]});
  }
}

std::size_t Products::scratch_bytes(const Graph& g, const Node& n) {
  QuantizedInputs inputs;
  const Shape& x = g.info(n.in[0]).type.shape;
  for (const Product& p : products(n.op)) inputs.add(p.activation, x[0], x.rows());
  return inputs.scratch_bytes();
}

std::int64_t Products::parts(std::int64_t rows) const {
  std::int64_t parts = 0;
  for (const Weight& w : weights_) parts += (w.n + rows - 1) / rows;
  return parts;
}

Products::Part Products::part(std::int64_t index, std::int64_t rows) const {
  auto w = weights_.begin();
  for (std::int64_t n; index >= (n = (w->n + rows - 1) / rows); ++w) index -= n;
  return {&*w, index * rows, std::min(w->n, (index + 1) * rows)};
}

void Products::quantize(const Frame& f, const Worker& w, std::int64_t rows, std::byte* scratch) const {
  inputs_.quantize(kernels_, f.f32(x_), rows, scratch, w);
}

void Products::compute(const Frame& f, const Worker& worker, const Part& part, const Columns& columns,
                       const std::byte* scratch) const {
  const auto& [weight, begin, end] = part;
  const std::int64_t first = columns.expert * weight->n;  // row of all experts' weights
  const LinearArgs args{.w = f.slots[weight->w].data + weight->row_bytes * static_cast<std::size_t>(first),
                        .w_row_bytes = weight->row_bytes,
                        .k = k_,
                        .act = inputs_.data(weight->input, f.f32(x_), scratch),
                        .layout = &inputs_.layout(weight->input),
                        .n_cols = columns.n,
                        .act_rows = columns.in_rows,
                        .out_rows = columns.out_rows,
                        .y = f.f32(weight->y),
                        .ldy = weight->n,
                        .ways = ways_};
  weight->linear(args, begin, end, worker.scratch);
  if (weight->scale < 0 && weight->bias < 0) return;
  for (std::int64_t c = 0; c < columns.n; ++c) {
    float* const y = args.y + (columns.out_rows == nullptr ? c : columns.out_rows[c]) * weight->n + begin;
    if (weight->scale >= 0) kernels_.scale(y, y, end - begin, f.f32(weight->scale)[columns.expert]);
    if (weight->bias >= 0) kernels_.add(y, f.f32(weight->bias) + first + begin, y, end - begin);
  }
}

std::string Products::describe() const {
  std::string text;
  for (const Weight& w : weights_) text += " " + w.type + "[" + std::to_string(k_) + "x" + std::to_string(w.n) + "]";
  return text + inputs_.describe();
}

}  // namespace llm::cpu
