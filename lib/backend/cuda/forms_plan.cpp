#include "backend/cuda/forms_plan.h"

#include <algorithm>
#include <string>
#include <variant>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/attend_masked.h"
#include "backend/cuda/kernels/grouped_products.h"
#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/wgmma_experts.h"

namespace llm::cuda {
namespace {

/// Decoded weights of one turn: some 32 MiB stay in the cache that the product reads them from.
constexpr std::int64_t kDecodedBytes = std::int64_t{32} << 20;

/// Of the products of a node.
Columns product_columns(const Graph& g, const Node& node, Many many) {
  if (std::holds_alternative<ExpertLinear>(node.op))
    return uses_grouped_products(g, node.in[1], many) ? Columns::Many : Columns::Few;
  return many == Many::AsFew ? Columns::Few : columns_of(g, node.in[0]);
}

/// A copy of the graph in which forms are values and inputs and outputs live as long as the step.
class Planning {
 public:
  Planning(const Graph& g, Many many, const TokenKernels& kernels)
      : g_(g), planned_(g), many_(many), fusions_(find_fusions(g, kernels)) {
    forms_.assign(g.values().size() * kForms, kNoValue);
    for (std::size_t i = 0; i < g.nodes().size(); ++i) {
      if (!fusions_.makes_column(i)) want(i);
    }
    for (const LateUse& late : late_uses(g, fusions_)) planned_.mutable_nodes()[late.node].in.push_back(late.value);
  }

  StepPlan run() {
    std::vector<std::uint64_t> scratch;
    for (const Node& node : g_.nodes()) scratch.push_back(node_scratch(node));
    hold_outputs();
    scratch.push_back(0);
    StepPlan plan;
    plan.memory = plan_memory(planned_, scratch);
    plan.bytes = plan.memory.bytes;
    plan.fusions = fusions_;
    for (const std::uint32_t value : forms_)
      plan.forms.push_back(value == kNoValue ? MemoryPlan::kNone : plan.memory.offset[value]);
    return plan;
  }

 private:
  static constexpr std::uint32_t kNoValue = ~std::uint32_t{0};

  std::uint64_t node_scratch(const Node& node) const {
    if (may_mask(g_, node)) return static_cast<std::uint64_t>(key_mask_bytes(g_.bucket().tokens));
    if (!has_many_columns(g_, node, many_)) return 0;
    std::uint64_t bytes = 0;
    for (const ProductOperands& p : product_operands(node.op))
      bytes = std::max(bytes, decoded_bytes(node, g_.info(node.in[p.weight]), many_));
    return bytes;
  }

  void want(std::size_t i) {
    const Node& node = g_.nodes()[i];
    const auto operands = product_operands(node.op);
    if (operands.empty()) return;
    const std::uint32_t x = node.in[0];
    const bool expert = std::holds_alternative<ExpertLinear>(node.op);
    if (expert) add(node.in[1], Form::RouteGroups, i);
    const Columns columns = product_columns(g_, node, many_);
    for (const ProductOperands& p : operands) {
      const ValueInfo& weight = g_.info(node.in[p.weight]);
      const DType type = device_type(weight.type.dtype);
      const FewForm few = few_form(type);
      if (columns != Columns::Many && few.any) add(x, few.form, i);
      if (columns == Columns::Few || type == DType::F32) continue;
      const bool f8 = takes_f8(node, weight, many_), panels = takes_panels(node, weight, many_);
      add(x, f8 ? Form::F8 : panels ? Form::F16Panels : Form::F16, i);
      add(x, f8 ? Form::F8Scale : Form::F16Unscale, i);
      if (takes_rest(g_, weight, many_)) add(x, Form::F16Rest, i);
    }
  }

  /// The form lives from the node that makes the value to the last that wants it.
  void add(std::uint32_t value, Form form, std::size_t reader) {
    std::uint32_t& id = forms_[std::size_t{value} * kForms + static_cast<std::size_t>(form)];
    if (id == kNoValue) {
      const auto bytes = static_cast<std::int64_t>(form_bytes(value, form, reader));
      id = planned_.add_value({.kind = ValueKind::Result,
                               .name = g_.info(value).name + " form " + std::to_string(static_cast<int>(form)),
                               .type = {DType::I8, {bytes}}});
      planned_.mutable_nodes()[maker(value)].out.push_back(id);
    }
    std::vector<std::uint32_t>& in = planned_.mutable_nodes()[reader].in;
    if (std::find(in.begin(), in.end(), id) == in.end()) in.push_back(id);
  }

  std::size_t maker(std::uint32_t value) const {
    for (std::size_t i = 0; i < g_.nodes().size(); ++i) {
      const auto& out = g_.nodes()[i].out;
      if (std::find(out.begin(), out.end(), value) != out.end()) return i;
    }
    return 0;  // an input of the graph
  }

  std::size_t form_bytes(std::uint32_t value, Form form, std::size_t reader) const {
    const ValueInfo& v = g_.info(value);
    const std::int64_t n = v.type.shape[0], rows = row_capacity(v);
    switch (form) {
      case Form::Q8x256:
        return quantized_bytes(ActFormat::Q8x256, n, rows);
      case Form::Q8x32:
        return quantized_bytes(ActFormat::Q8x32, n, rows);
      case Form::RoundedBf16:
        return static_cast<std::size_t>(n * rows) * sizeof(float);
      case Form::F16:
      case Form::F16Rest:
        return static_cast<std::size_t>(n * rows) * sizeof(std::uint16_t);
      case Form::F16Panels:
        return static_cast<std::size_t>(half_panels_bytes(n, rows));
      case Form::F8:
        return static_cast<std::size_t>(n * rows);
      case Form::F16Unscale:
      case Form::F8Scale:
        return static_cast<std::size_t>(rows) * sizeof(float);
      case Form::RouteGroups: {
        const auto experts = g_.info(g_.nodes()[reader].in[2]).type.shape[2];
        return route_groups_bytes(static_cast<int>(experts), static_cast<int>(rows), static_cast<int>(n));
      }
    }
    return 0;
  }

  /// Nothing may take the place of a result before the step has ended. Inputs are made by the first node.
  void hold_outputs() {
    Node last{.op = Map{}, .in = {g_.outputs().begin(), g_.outputs().end()}};
    planned_.set_outputs({});
    planned_.add_node(std::move(last));
  }

  const Graph& g_;
  Graph planned_;
  Many many_;
  Fusions fusions_;
  std::vector<std::uint32_t> forms_;  ///< value ids in planned_
};

}  // namespace

std::int64_t row_capacity(const ValueInfo& v) { return v.type.shape.elements() / v.type.shape[0]; }

Columns columns_of(const Graph& g, std::uint32_t activation) {
  if (g.bucket().tokens <= kMaxColumns) return Columns::Few;
  return g.info(activation).rows == RowSpace::Outputs ? Columns::Either : Columns::Many;
}

/// Elements of which expert_tile_products() has no more than a piece for each warp of a block: such a block takes much
/// longer than its weights take to come.
constexpr std::int64_t kShortRow = 2048;

bool uses_grouped_products(const Graph& g, std::uint32_t ids, Many many) {
  const bool is_short = g.bucket().tokens <= kMaxColumns;
  if (many == Many::AsFew || (is_short && (many != Many::Wgmma || g.bucket().sequences <= kFewSequences))) return false;
  const auto fits_f16 = [&](const Node& node) {
    const auto operands = product_operands(node.op);
    return std::all_of(operands.begin(), operands.end(), [&](const ProductOperands& p) {
      const ValueInfo& weight = g.info(node.in[p.weight]);
      return is_short ? takes_panels(node, weight, many) && weight.type.shape[0] <= kShortRow
                      : device_type(weight.type.dtype) != DType::F32;
    });
  };
  return std::all_of(g.nodes().begin(), g.nodes().end(), [&](const Node& node) {
    if (!std::holds_alternative<ExpertLinear>(node.op) || node.in[1] != ids) return true;
    return fits_f16(node) && grouped_products_take(g.info(node.in[0]).type.shape[0]);
  });
}

bool may_mask(const Graph& g, const Node& node) {
  return std::holds_alternative<Attention>(node.op) && g.bucket().tokens > kMaxColumns &&
         g.info(node.in[1]).cache.access == CacheType::Access::Selected;
}

bool has_many_columns(const Graph& g, const Node& node, Many many) {
  return many != Many::AsFew && std::holds_alternative<Linear>(node.op) && columns_of(g, node.in[0]) != Columns::Few;
}

FewForm few_form(DType type) {
  if (has_tiles(type)) {
    return {true, info(type).activation == ActFormat::Q8x256 ? Form::Q8x256 : Form::Q8x32};
  }
  return {type == DType::BF16, Form::RoundedBf16};
}

std::vector<bool> values_read_as_f32(const Graph& g, Many many) {
  std::vector<bool> read(g.values().size(), false);
  for (const std::uint32_t v : g.outputs()) read[v] = true;
  for (const Node& node : g.nodes()) {
    const auto operands = product_operands(node.op);
    for (std::size_t i = operands.empty() ? 0 : 1; i < node.in.size(); ++i) read[node.in[i]] = true;
    for (const ProductOperands& p : operands) {
      const DType type = device_type(g.info(node.in[p.weight]).type.dtype);
      const Columns columns = product_columns(g, node, many);
      const bool plain =
          (columns != Columns::Many && !few_form(type).any) || (columns != Columns::Few && type == DType::F32);
      if (plain) read[node.in[0]] = true;
    }
  }
  return read;
}

namespace {

std::int64_t decoded_element(const Node& node, const ValueInfo& weight, Many many) {
  return takes_f8(node, weight, many) ? 1 : 2;
}

}  // namespace

std::int64_t decoded_rows(const Shape& shape, std::int64_t element_bytes) {
  const std::int64_t rows = kDecodedBytes / (shape[0] * element_bytes) / kTileRows * kTileRows;
  return std::min<std::int64_t>(std::max<std::int64_t>(rows, kTileRows), shape[1]);
}
std::int64_t decoded_rows(const Node& node, const ValueInfo& weight, Many many) {
  return decoded_rows(weight.type.shape, decoded_element(node, weight, many));
}

std::uint64_t decoded_bytes(const Node& node, const ValueInfo& weight, Many many) {
  const DType type = device_type(weight.type.dtype);
  if (takes_panels(node, weight, many)) return 0;
  if (!takes_f8(node, weight, many) && (type == DType::F32 || type == DType::F16)) return 0;
  const std::int64_t elements = decoded_rows(node, weight, many) * weight.type.shape[0];
  return static_cast<std::uint64_t>(elements * decoded_element(node, weight, many));
}

bool takes_f8(const Node& node, const ValueInfo& weight, Many many) {
  if (many != Many::F8 || weight.streamed) return false;
  const DType type = device_type(weight.type.dtype);
  const std::int64_t k = weight.type.shape[0], n = weight.type.shape[1];
  if (std::holds_alternative<ExpertLinear>(node.op))
    return has_tiles(type) && wgmma_expert_products_f8_take(k) && k <= kFloat8MostK;
  constexpr std::int64_t kAligned = 16;  // the library's condition on rows of both operands
  return std::holds_alternative<Linear>(node.op) && node.role != Role::Head && type != DType::F32 &&
         k % kAligned == 0 && n % kAligned == 0;
}

bool takes_panels(const Node& node, const ValueInfo& weight, Many many) {
  const bool experts =
      std::holds_alternative<ExpertLinear>(node.op) && (many == Many::F8 || many == Many::WgmmaExperts);
  return (many == Many::Wgmma || experts) && has_tiles(device_type(weight.type.dtype)) && !takes_f8(node, weight, many);
}

bool takes_rest(const Graph& g, const ValueInfo& weight, Many many) {
  if (many == Many::F8 || device_type(weight.type.dtype) != DType::F16) return false;
  const auto routes = [](const Node& node) { return std::holds_alternative<Route>(node.op); };
  const auto has_quantized_experts = [&](const Node& node) {
    if (!std::holds_alternative<ExpertLinear>(node.op)) return false;
    const auto operands = product_operands(node.op);
    return std::any_of(operands.begin(), operands.end(), [&](const ProductOperands& p) {
      return has_tiles(device_type(g.info(node.in[p.weight]).type.dtype));
    });
  };
  return std::any_of(g.nodes().begin(), g.nodes().end(), routes) &&
         std::none_of(g.nodes().begin(), g.nodes().end(), has_quantized_experts);
}

StepPlan plan_step(const Graph& g, Many many, const TokenKernels& kernels) { return Planning(g, many, kernels).run(); }

}  // namespace llm::cuda
