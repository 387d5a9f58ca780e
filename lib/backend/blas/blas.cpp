// The blas backend: panels of decoded weight rows, one sgemm or sgemv each; the other ops in f32, spread over threads
// by row.
#include "backend/blas/blas.h"

#include <omp.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backend/blas/openblas.h"
#include "backend/host/expert_groups.h"
#include "backend/host/interpreter.h"
#include "backend/host/node_ops.h"
#include "tensor/decode.h"

namespace llm {
namespace {

using host::NodeKernel;
using host::NodeRun;
using host::NodeSite;

/// Weight rows decoded at a time: enough for sgemm to reach its speed, few enough that a panel stays near the cores.
constexpr std::int64_t kPanelRows = 256;
/// Below about this many operations a parallel region costs more than it saves.
constexpr std::int64_t kParallelOperations = 20000;

struct OmpLoop {
  int threads = 1;

  template <class F>
  void run(std::int64_t n, std::int64_t cost, F&& f) const {
    if (threads == 1 || n < 2 || n * cost < kParallelOperations) {
      for (std::int64_t i = 0; i < n; ++i) f(i, 0);
      return;
    }
    // Causal attention's items grow along the prompt: small portions even that out.
    const std::int64_t portion = std::max<std::int64_t>(1, n / (threads * std::int64_t{16}));
#pragma omp parallel for num_threads(threads) schedule(dynamic, portion)
    for (std::int64_t i = 0; i < n; ++i) f(i, omp_get_thread_num());
  }
};

/// y [n, rows] = x [k, rows] times a weight [k, n], each row of y `ldy` apart.
class Multiplier {
 public:
  Multiplier(const TensorType& weight, OmpLoop loop)
      : type_(weight), decode_(decoder(weight.dtype)), k_(weight.shape[0]), n_(weight.shape[1]), loop_(loop) {}

  static std::size_t panel_bytes(const TensorType& weight) {
    return static_cast<std::size_t>(std::min(kPanelRows, weight.shape[1]) * weight.shape[0]) * sizeof(float);
  }

  void run(const std::byte* w, const float* x, std::int64_t rows, float* y, float* panel) const {
    if (rows == 0) return;
    if (in_place(w)) {
      multiply(reinterpret_cast<const float*>(w), n_, x, rows, y);
      return;
    }
    for (std::int64_t begin = 0; begin < n_; begin += kPanelRows) {
      const std::int64_t height = std::min(kPanelRows, n_ - begin);
      loop_.run(height, 2 * k_, [&](std::int64_t i, int) {
        decode_(w + static_cast<std::size_t>(begin + i) * type_.row_bytes(), panel + i * k_, k_);
      });
      multiply(panel, height, x, rows, y + begin);
    }
  }

  std::int64_t k() const { return k_; }
  std::int64_t n() const { return n_; }
  std::size_t matrix_bytes() const { return type_.row_bytes() * static_cast<std::size_t>(n_); }
  std::string describe() const {
    return std::string(name(type_.dtype)) + (type_.dtype == DType::F32 ? "" : " decoded");
  }

 private:
  bool in_place(const std::byte* w) const {
    return type_.dtype == DType::F32 && reinterpret_cast<std::uintptr_t>(w) % alignof(float) == 0;
  }

  void multiply(const float* w, std::int64_t height, const float* x, std::int64_t rows, float* y) const {
    const auto m = static_cast<blasint>(rows), n = static_cast<blasint>(height), k = static_cast<blasint>(k_);
    const auto ldy = static_cast<blasint>(n_);
    if (rows == 1) {
      openblas().sgemv(CblasRowMajor, CblasNoTrans, n, k, 1.0f, w, k, x, 1, 0.0f, y, 1);
    } else {
      openblas().sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, x, k, w, k, 0.0f, y, ldy);
    }
  }

  TensorType type_;
  DecodeFn decode_;
  std::int64_t k_, n_;
  OmpLoop loop_;
};

/// One product of a node with its scale and bias.
struct BlasProduct {
  Multiplier multiplier;
  std::size_t weight;  ///< operand
  host::VectorWeight scale, bias;

  /// Scale and bias of expert `e`, 0 for a Linear.
  void finish(float* y, std::int64_t rows, std::int64_t e) const {
    const std::int64_t n = multiplier.n();
    if (scale.data() != nullptr) {
      const float factor = scale.data()[e];
      for (std::int64_t i = 0; i < rows * n; ++i) y[i] *= factor;
    }
    if (bias.data() == nullptr) return;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < n; ++i) y[row * n + i] += bias.data()[e * n + i];
    }
  }
};

std::vector<BlasProduct> blas_products(const NodeSite& site, OmpLoop loop) {
  const auto vector = [&](std::size_t operand) {
    return operand == 0 ? host::VectorWeight() : host::VectorWeight(site.in(operand), site.weights);
  };
  std::vector<BlasProduct> all;
  for (const ProductOperands& o : product_operands(site.node.op))
    all.push_back({Multiplier(site.in(o.weight).type, loop), o.weight, vector(o.scale), vector(o.bias)});
  return all;
}

/// Scratch of a product node: the panel; for experts also the groups, and the gathered rows of one expert with their
/// results.
struct ProductScratch {
  ProductScratch(const Graph& graph, const Node& node) {
    std::int64_t widest = 0;
    for (const ProductOperands& o : product_operands(node.op)) {
      const TensorType& w = graph.info(node.in[o.weight]).type;
      gathered = std::max(gathered, Multiplier::panel_bytes(w));
      widest = std::max(widest, w.shape[1]);
    }
    results = groups = bytes = gathered;
    if (!std::holds_alternative<ExpertLinear>(node.op)) return;
    const std::int64_t routes = graph.info(node.in[1]).type.shape.elements();
    const auto floats = [&](std::int64_t width) { return static_cast<std::size_t>(width * routes) * sizeof(float); };
    results = gathered + floats(graph.info(node.in[0]).type.shape[0]);
    groups = results + floats(widest);
    bytes = groups + host::ExpertGroups::bytes(graph.info(node.in[2]).type.shape[2], routes);
  }
  std::size_t gathered = 0, results = 0, groups = 0, bytes = 0;  ///< offsets; the panel is at 0
};

std::function<void(const NodeRun&)> linear_kernel(const NodeSite& site, OmpLoop loop) {
  return [all = blas_products(site, loop)](const NodeRun& run) {
    const std::int64_t rows = run.in[0].vectors();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const BlasProduct& p = all[i];
      float* const y = run.out[i].f32_out();
      p.multiplier.run(run.in[p.weight].data, run.in[0].f32(), rows, y, reinterpret_cast<float*>(run.scratch));
      p.finish(y, rows, 0);
    }
  };
}

std::function<void(const NodeRun&)> expert_kernel(const NodeSite& site, OmpLoop loop) {
  return [all = blas_products(site, loop), scratch = ProductScratch(site.graph, site.node),
          n_experts = site.in(2).type.shape[2]](const NodeRun& run) {
    const host::ExpertInput input(run.in[0], run.in[1]);
    const host::ExpertGroups groups(run.in[1], n_experts, run.scratch + scratch.groups);
    float* const panel = reinterpret_cast<float*>(run.scratch);
    float* const gathered = reinterpret_cast<float*>(run.scratch + scratch.gathered);
    float* const results = reinterpret_cast<float*>(run.scratch + scratch.results);
    for (std::int64_t e = 0; e < n_experts; ++e) {
      const auto group = groups.group(e);
      if (group.empty()) continue;
      for (std::size_t j = 0; j < group.size(); ++j) {
        std::copy_n(input.x + input.row_of(group[j]) * input.k, input.k,
                    gathered + static_cast<std::int64_t>(j) * input.k);
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Multiplier& m = all[i].multiplier;
        const std::int64_t n = m.n();
        m.run(run.in[all[i].weight].data + static_cast<std::size_t>(e) * m.matrix_bytes(), gathered, std::ssize(group),
              results, panel);
        all[i].finish(results, std::ssize(group), e);
        for (std::size_t j = 0; j < group.size(); ++j) {
          std::copy_n(results + static_cast<std::int64_t>(j) * n, n, run.out[i].f32_out() + group[j] * n);
        }
      }
    }
  };
}

struct Kernels : host::CommonKernels<float, OmpLoop> {
  using CommonKernels::CommonKernels;
  using CommonKernels::operator();
  Run operator()(const Linear&) const { return linear_kernel(site_, loop_); }
  Run operator()(const ExpertLinear&) const { return expert_kernel(site_, loop_); }
};

class BlasBackend final : public host::InterpretedBackend {
 public:
  explicit BlasBackend(const BackendOptions& options) : loop_{std::max(1, options.threads)} {}

  std::string_view name() const override { return "blas"; }
  std::string describe() const override {
    return "blas: OpenBLAS for " + std::string(openblas().core_name()) + ", " + std::to_string(loop_.threads) +
           " threads";
  }

 protected:
  std::size_t scratch_bytes(const Graph& graph, const Node& node) const override {
    if (!products(node.op).empty()) return ProductScratch(graph, node).bytes;
    return host::common_scratch_bytes<float>(graph, node, loop_.threads);
  }

  NodeKernel make_kernel(const NodeSite& site) const override {
    std::string how;
    for (const BlasProduct& p : blas_products(site, loop_))
      how += (how.empty() ? "sgemm of " : ", ") + p.multiplier.describe();
    return {std::visit(Kernels(site, loop_), site.node.op), std::move(how)};
  }

  /// OpenBLAS keeps one count for the process, and its OpenMP build follows OpenMP's own.
  std::function<void()> step_prologue() const override {
    return [threads = loop_.threads] { openblas().set_threads(threads); };
  }

 private:
  OmpLoop loop_;
};

}  // namespace

std::unique_ptr<Backend> make_blas_backend(const BackendOptions& options) {
  if (options.deterministic)
    throw Error(ErrorKind::Usage, "backend blas cannot be deterministic: its library sums in an order of its own");
  openblas();
  return std::make_unique<BlasBackend>(options);
}

}  // namespace llm
