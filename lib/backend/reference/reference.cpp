// The reference backend: the shared ops in double precision, and matrix products row by row of the decoded weights.
#include "backend/reference/reference.h"

#include <array>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/host/expert_groups.h"
#include "backend/host/interpreter.h"
#include "backend/host/node_ops.h"
#include "tensor/activation.h"
#include "tensor/decode.h"

namespace llm {
namespace {

using host::NodeKernel;
using host::NodeRun;
using host::NodeSite;
using host::Operand;

std::size_t index(ActFormat f) { return static_cast<std::size_t>(f); }

/// A weight [k, n] or one expert's part of [k, n, experts], where its operands are, and the format of what it is
/// multiplied with.
struct WeightProduct {
  TensorType type;
  ProductOperands operands;
  ActFormat activation = ActFormat::F32;

  std::int64_t k() const { return type.shape[0]; }
  std::int64_t n() const { return type.shape[1]; }
  std::size_t matrix_bytes() const { return type.row_bytes() * static_cast<std::size_t>(n()); }
  std::string describe() const { return std::string(name(type.dtype)) + " x " + std::string(name(activation)); }
};

std::vector<WeightProduct> weight_products(const Graph& graph, const Node& node) {
  std::vector<WeightProduct> all;
  for (const ProductOperands& o : product_operands(node.op))
    all.push_back({graph.info(node.in[o.weight]).type, o, products(node.op)[all.size()].activation});
  return all;
}

/// Scratch of a product node: one decoded weight row, then x in each quantised format that a weight asks for, then (for
/// experts) the groups.
struct ProductScratch {
  ProductScratch(const Graph& graph, const Node& node) {
    const TensorType& x = graph.info(node.in[0]).type;
    std::size_t end = static_cast<std::size_t>(x.shape[0]) * sizeof(float);
    for (const WeightProduct& p : weight_products(graph, node)) {
      if (p.activation == ActFormat::F32 || rounded[index(p.activation)] != 0) continue;
      rounded[index(p.activation)] = end;
      end += x.bytes();
    }
    groups = end;
    if (std::holds_alternative<ExpertLinear>(node.op)) {
      end +=
          host::ExpertGroups::bytes(graph.info(node.in[2]).type.shape[2], graph.info(node.in[1]).type.shape.elements());
    }
    bytes = end;
  }

  /// x as the products see it, per format; nothing is written for formats that no weight asks for.
  std::array<const float*, kActFormats> activations(const NodeRun& run) const {
    const Operand& x = run.in[0];
    std::array<const float*, kActFormats> seen{};
    seen[index(ActFormat::F32)] = x.f32();
    for (const ActFormat f : {ActFormat::BF16, ActFormat::Q8x32, ActFormat::Q8x256}) {
      if (rounded[index(f)] == 0) continue;
      float* const y = reinterpret_cast<float*>(run.scratch + rounded[index(f)]);
      round_trip_activation(f, x.f32(), y, x.elements());
      seen[index(f)] = y;
    }
    return seen;
  }

  std::array<std::size_t, kActFormats> rounded{};  ///< 0: none
  std::size_t groups = 0, bytes = 0;
};

/// The plain sum in the order of k: the definition, nothing to make it faster.
double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

/// Element `i` of an F32 weight, at any alignment; `absent` where the product has no such operand.
double element(const NodeRun& run, std::size_t operand, std::int64_t i, double absent) {
  if (operand == 0) return absent;
  float value = 0;
  decode(DType::F32, run.in[operand].data + static_cast<std::size_t>(i) * sizeof(float), &value, 1);
  return value;
}

std::function<void(const NodeRun&)> linear_kernel(const NodeSite& site) {
  return [scratch = ProductScratch(site.graph, site.node),
          all = weight_products(site.graph, site.node)](const NodeRun& run) {
    const auto x = scratch.activations(run);
    const std::int64_t rows = run.in[0].vectors();
    float* const w = reinterpret_cast<float*>(run.scratch);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const WeightProduct& p = all[i];
      const std::byte* const matrix = run.in[p.operands.weight].data;
      const double scale = element(run, p.operands.scale, 0, 1);
      for (std::int64_t n = 0; n < p.n(); ++n) {
        decode(p.type.dtype, matrix + static_cast<std::size_t>(n) * p.type.row_bytes(), w, p.k());
        const double bias = element(run, p.operands.bias, n, 0);
        for (std::int64_t row = 0; row < rows; ++row) {
          run.out[i].f32_out()[row * p.n() + n] =
              static_cast<float>(dot(w, x[index(p.activation)] + row * p.k(), p.k()) * scale + bias);
        }
      }
    }
  };
}

std::function<void(const NodeRun&)> expert_kernel(const NodeSite& site) {
  return [scratch = ProductScratch(site.graph, site.node),
          all = weight_products(site.graph, site.node)](const NodeRun& run) {
    const auto x = scratch.activations(run);
    const host::ExpertInput input(run.in[0], run.in[1]);
    float* const w = reinterpret_cast<float*>(run.scratch);
    const std::int64_t n_experts = all[0].type.shape[2];
    const host::ExpertGroups groups(run.in[1], n_experts, run.scratch + scratch.groups);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const WeightProduct& p = all[i];
      for (std::int64_t e = 0; e < n_experts; ++e) {
        if (groups.group(e).empty()) continue;
        const std::byte* const matrix = run.in[p.operands.weight].data + static_cast<std::size_t>(e) * p.matrix_bytes();
        const double scale = element(run, p.operands.scale, e, 1);
        for (std::int64_t n = 0; n < p.n(); ++n) {
          decode(p.type.dtype, matrix + static_cast<std::size_t>(n) * p.type.row_bytes(), w, p.k());
          const double bias = element(run, p.operands.bias, e * p.n() + n, 0);
          for (const std::int32_t route : groups.group(e)) {
            run.out[i].f32_out()[route * p.n() + n] =
                static_cast<float>(dot(w, x[index(p.activation)] + input.row_of(route) * p.k(), p.k()) * scale + bias);
          }
        }
      }
    }
  };
}

class ReferenceBackend final : public host::InterpretedBackend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string describe() const override { return "reference: scalar, double precision, 1 thread"; }
  bool draws() const override { return true; }

 protected:
  std::size_t scratch_bytes(const Graph& graph, const Node& node) const override {
    if (!weight_products(graph, node).empty()) return ProductScratch(graph, node).bytes;
    return host::common_scratch_bytes<double>(graph, node, 1);
  }

  NodeKernel make_kernel(const NodeSite& site) const override {
    std::string how;
    for (const WeightProduct& p : weight_products(site.graph, site.node))
      how += (how.empty() ? "" : ", ") + p.describe();
    return {std::visit(Kernels(site, {}), site.node.op), std::move(how)};
  }

 private:
  struct Kernels : host::CommonKernels<double, host::SerialLoop> {
    using CommonKernels::CommonKernels;
    using CommonKernels::operator();
    Run operator()(const Linear&) const { return linear_kernel(site_); }
    Run operator()(const ExpertLinear&) const { return expert_kernel(site_); }
  };
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace llm
