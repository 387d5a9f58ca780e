#include "workload.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include "graph/weight_parts.h"
#include "runtime/session.h"
#include "tensor/dtype.h"

namespace llm::bench {
namespace {

constexpr double kOpsPerWeight = 2;  ///< multiply and add

/// What the products of weights of a type count as.
double& kind_of(Multiplied& m, DType type, std::string_view backend) {
  const Bound bound = arithmetic_of(type, backend);
  return bound == Bound::F32Peak ? m.f32 : bound == Bound::Bf16Peak ? m.bf16 : m.int8;
}

/// Of `rows` rows each.
Multiplied products(const Workload& w, double rows, double wanted) {
  return {rows * w.all.int8 + wanted * w.wanted.int8, rows * w.all.bf16 + wanted * w.wanted.bf16,
          rows * w.all.f32 + wanted * w.wanted.f32};
}

/// Weights of the products of a node; biases and norms cost next to nothing.
bool is_matrix(const ValueInfo& v) { return v.kind == ValueKind::Weight && v.type.shape.n_dims() > 1; }

/// Expected share of the experts that `tokens` random routes touch.
double touched(const Workload::Experts& e, double tokens) { return 1 - std::pow(1 - e.share, tokens); }

double step_bytes(const Workload& w, double tokens) {
  double bytes = w.shared_bytes;
  for (const Workload::Experts& e : w.experts) bytes += e.bytes * touched(e, tokens);
  return bytes;
}

/// Time per test, in seconds, at each limit.
struct Costs {
  std::optional<double> reading, computing;
  Bound arithmetic = Bound::Int8Peak;
};

/// The arithmetic that takes longest names the limit.
void set_computing(Costs& costs, const Multiplied& m, const Limits& limits) {
  struct Kind {
    double weights;
    std::optional<double> ops;
    Bound bound;
  };
  double sum = 0, longest = -1;
  for (const Kind& kind :
       {Kind{m.int8, limits.int8_ops, Bound::Int8Peak}, Kind{m.bf16, limits.bf16_ops, Bound::Bf16Peak},
        Kind{m.f32, limits.f32_ops, Bound::F32Peak}}) {
    if (kind.weights > 0 && !kind.ops) return;
    const double seconds = kind.weights > 0 ? kOpsPerWeight * kind.weights / *kind.ops : 0;
    sum += seconds;
    if (seconds > longest) costs.arithmetic = kind.bound;
    longest = std::max(longest, seconds);
  }
  costs.computing = sum;
}

Costs costs_of(const Workload& w, const Test& test, const Limits& limits) {
  Costs costs;
  const auto tokens = static_cast<double>(test.tokens());
  set_computing(costs, products(w, tokens, test.kind == Test::Kind::Prompt ? 1 : tokens), limits);
  if (limits.read_bytes) costs.reading = read_bytes(w, test) / *limits.read_bytes;
  return costs;
}

}  // namespace

std::string Test::name() const {
  std::string text = (kind == Kind::Prompt ? "pp" : "tg") + std::to_string(n);
  if (depth > 0) text += "@d" + std::to_string(depth);
  if (parallel > 1) text += " x" + std::to_string(parallel);
  return text;
}

Workload measure_workload(const Model& model, const Session& session) {
  const std::string_view backend = model.backend().name();
  Workload w;
  w.step_tokens = session.batch_tokens();
  w.shared_bytes = static_cast<double>(model.weight_bytes_per_token());
  const Graph graph = model.graph(Bucket{});
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<Embed>(node.op)) continue;
    Multiplied& sum = graph.info(node.out[0]).rows == RowSpace::Outputs ? w.wanted : w.all;
    for (const std::uint32_t id : node.in) {
      const ValueInfo& v = graph.info(id);
      if (!is_matrix(v)) continue;
      const WeightParts parts = weight_parts(graph, node, id);
      const auto n = static_cast<double>(parts.n);
      kind_of(sum, v.type.dtype, backend) +=
          static_cast<double>(v.type.shape.elements()) / n * static_cast<double>(parts.uses);
      if (parts.per_token() == parts.n) continue;
      w.experts.push_back({static_cast<double>(v.type.bytes()), static_cast<double>(parts.per_token()) / n});
      w.shared_bytes -= static_cast<double>(parts.bytes_per_token());
    }
  }
  w.bytes_per_position = static_cast<double>(session.cache_bytes_per_position());
  w.bytes_per_state = static_cast<double>(session.bytes_per_state());
  return w;
}

double read_bytes(const Workload& w, const Test& test) {
  if (test.kind == Test::Kind::Prompt) {
    double bytes = 0;
    for (int done = 0; done < test.n; done += w.step_tokens)
      bytes += step_bytes(w, std::min(test.n - done, w.step_tokens)) + (test.depth + done) * w.bytes_per_position +
               (test.depth + done > 0 ? w.bytes_per_state : 0);
    return bytes;
  }
  const double mean_length = test.depth + (test.n + 1) / 2.0;
  return test.n * step_bytes(w, test.parallel) +
         static_cast<double>(test.tokens()) * (mean_length * w.bytes_per_position + w.bytes_per_state);
}

std::string_view name(Bound bound) {
  switch (bound) {
    case Bound::ReadBandwidth:
      return "read bandwidth";
    case Bound::Int8Peak:
      return "int8 peak";
    case Bound::Bf16Peak:
      return "bf16 peak";
    case Bound::F32Peak:
      return "f32 peak";
  }
  return "";
}

std::optional<Ceiling> ceiling(const Workload& w, const Test& test, const Limits& limits) {
  const bool prompt = test.kind == Test::Kind::Prompt;
  const Costs costs = costs_of(w, test, limits);
  if (!costs.reading || (prompt && !costs.computing)) return std::nullopt;
  const double reading = *costs.reading, computing = costs.computing.value_or(0);
  if (std::max(reading, computing) <= 0) return std::nullopt;
  return Ceiling{static_cast<double>(test.tokens()) / std::max(reading, computing),
                 reading >= computing ? Bound::ReadBandwidth : costs.arithmetic};
}

Bound arithmetic_of(DType type, std::string_view backend) {
  const ActFormat activation = backend == "blas" ? ActFormat::F32 : info(type).activation;
  return activation == ActFormat::F32    ? Bound::F32Peak
         : activation == ActFormat::BF16 ? Bound::Bf16Peak
                                         : Bound::Int8Peak;
}

std::optional<double> limit_of(const Limits& limits, Bound bound) {
  switch (bound) {
    case Bound::ReadBandwidth:
      return limits.read_bytes;
    case Bound::Int8Peak:
      return limits.int8_ops;
    case Bound::Bf16Peak:
      return limits.bf16_ops;
    case Bound::F32Peak:
      return limits.f32_ops;
  }
  return std::nullopt;
}

}  // namespace llm::bench
