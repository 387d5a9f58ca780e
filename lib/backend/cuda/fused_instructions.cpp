// Instructions of nodes that one kernel serves together (fusions.h). Each is made at the last of its nodes.
#include <algorithm>
#include <utility>
#include <variant>

#include "backend/cuda/fusions.h"
#include "backend/cuda/instructions.h"
#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/rope_append.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/token_experts.h"
#include "backend/cuda/node_site.h"

namespace llm::cuda {
namespace {

class FusedCompiler : NodeSite {
 public:
  using NodeSite::NodeSite;

  /// This node is the AddRmsNorm of them.
  void combine_norm(const CombineNormNodes& nodes) {
    const Node& combine = graph_.nodes()[nodes.combine];
    const ValueInfo& slots = graph_.info(combine.in[1]);
    const std::uint32_t y = node_.out[1];
    add("with the weighted sum of experts" + forms_text(y),
        [=, eps = std::get<AddRmsNorm>(node_.op).eps, x = f32(graph_.info(combine.in[0])), weights = f32(slots),
         top_k = static_cast<int>(slots.type.shape[0]), residual = f32(graph_.info(nodes.residual)), w = vector(2),
         n = width(y), sum = f32(out(0)), forms = forms(y), count = counter(y)](const StepLaunch& s) {
          combine_add_rms_norm(x, weights, top_k, residual, w, eps, n, count(s), sum, forms, s.at);
        });
    convert(node_.out[0]);
  }

  /// This node is the KvAppend of them.
  void rope_append(const RopeAppendNodes& nodes) {
    const RopeAppend fused = raw_heads(nodes);
    const CacheView cache = site_.cache.view(in(2).cache);
    add(fused.norm_q == nullptr ? "with both ropes" : "with both norms and ropes",
        [=, op = rope_of(nodes), step = site_.step](const StepLaunch& s) {
          cuda::rope_append(op, fused, cache, step, s.tokens, s.at);
        });
  }

  /// This node is the Attention of them.
  void rope_append_attend(const RopeAppendNodes& nodes) {
    const RopeAppend fused = raw_heads(nodes);
    const AttentionSite at = attention_site();
    add(fused.norm_q == nullptr ? "one token, with both ropes and the cache"
                                : "one token, with norms, ropes and the cache",
        [=, op = rope_of(nodes), y = f32(out(0)), step = site_.step](const StepLaunch& s) {
          cuda::rope_append_attend(op, fused, y, at.cache, at.shape, step, at.positions, at.scratch, at.arrivals, s.at);
        });
    convert(node_.out[0]);
  }

  /// This node is the last of them: a Linear that makes its column itself, or the gate behind it.
  void own_column(const OwnColumn& nodes) {
    const Node& linear = graph_.nodes()[nodes.linear];
    std::vector<Target> targets = make_targets(linear);
    ColumnSource source{.x = f32(graph_.info(linear.in[0]))};
    std::string how = "makes its column";
    if (nodes.norm) {
      const Node& norm = graph_.nodes()[*nodes.norm];
      source.x = f32(graph_.info(norm.in[0]));
      source.norm = vector_of(norm.in.back());
      if (nodes.shared) source.normed = f32(graph_.info(linear.in[0]));
      if (const auto* const add = std::get_if<AddRmsNorm>(&norm.op)) {
        source.added = f32(graph_.info(norm.in[1]));
        source.sum = f32(graph_.info(norm.out[0]));
        source.eps = add->eps;
        how += " with add, rms_norm";
      } else {
        source.eps = std::get<RmsNorm>(norm.op).eps;
        how += " with rms_norm";
      }
    }
    GatedResult gated;
    if (nodes.glu) {
      gated = {.y = f32(out(0)), .activation = std::get<Glu>(node_.op).activation};
      if (node_.in[0] != linear.out[0]) std::swap(targets[0], targets[1]);
      how += ", glu behind";
    }
    add(how + ": " + few_text(targets), [=, count = counter(linear.in[0])](const StepLaunch& s) {
      if (count(s) > 0) column_products(targets, source, s.at, gated);
    });
    if (source.sum != nullptr) convert(graph_.nodes()[*nodes.norm].out[0]);
    for (const std::uint32_t y : node_.out) convert(y);
  }

  /// This node is the Route of them, which the launch at the Glu does not choose by.
  void token_route() { route_alone(); }

  /// This node is the Glu of them.
  void token_gate_up(const TokenExpertsNodes& nodes) {
    const Node& linear = graph_.nodes()[nodes.gate_up];
    std::vector<Target> targets = make_targets(linear);
    if (node_.in[0] != linear.out[0]) std::swap(targets[0], targets[1]);
    const GatedResult gated{.y = f32(out(0)), .activation = std::get<Glu>(node_.op).activation};
    add("one token's experts, " + std::string(nodes.chooses ? "which it finds: " : "") + few_text(targets) +
            ", glu behind",
        [=, route = token_route(nodes), x = f32(graph_.info(linear.in[0])),
         count = tokens(out(0))](const StepLaunch& s) {
          if (count(s) > 0) cuda::token_gate_up(targets[0], targets[1], route, x, gated, s.at);
        });
  }

  /// This node is the Combine of them.
  void token_down(const TokenExpertsNodes& nodes) {
    const Node& linear = graph_.nodes()[nodes.down];
    Target down = make_targets(linear)[0];
    down.y = f32(out(0));
    add("one token's experts, with the weighted sum: " + few_text({down}),
        [=, route = token_route(nodes), x = f32(graph_.info(linear.in[0])),
         count = tokens(out(0))](const StepLaunch& s) {
          if (count(s) > 0) cuda::token_down(down, route, x, s.at);
        });
    convert(node_.out[0]);
  }

 private:
  const Rope& rope_of(const RopeAppendNodes& nodes) const { return std::get<Rope>(graph_.nodes()[nodes.rope_q].op); }
  RopeAppend raw_heads(const RopeAppendNodes& nodes) const {
    const Node &rope_q = graph_.nodes()[nodes.rope_q], &append = graph_.nodes()[nodes.append];
    const Node* const norm_q = nodes.norms ? &graph_.nodes()[nodes.norms->q] : nullptr;
    const Node* const norm_k = nodes.norms ? &graph_.nodes()[nodes.norms->k] : nullptr;
    const ValueInfo& q = graph_.info(nodes.q);
    return {.q = f32(q),
            .k = f32(graph_.info(nodes.k)),
            .v = f32(graph_.info(append.in[1])),
            .table = f32(graph_.info(rope_q.in[1])),
            .rotated_q = f32(graph_.info(rope_q.out[0])),
            .heads = static_cast<int>(q.type.shape[1]),
            .norm_q = norm_q == nullptr ? nullptr : vector_of(norm_q->in[1]),
            .norm_k = norm_k == nullptr ? nullptr : vector_of(norm_k->in[1]),
            .eps = norm_q == nullptr ? 0.0f : std::get<RmsNorm>(norm_q->op).eps};
  }
  TokenRoute token_route(const TokenExpertsNodes& nodes) const {
    const Node& route = graph_.nodes()[nodes.route];
    return {.op = std::get<Route>(route.op),
            .experts = width(route.in[0]),
            .logits = nodes.chooses ? f32(graph_.info(route.in[0])) : nullptr,
            .ids = reinterpret_cast<std::int32_t*>(value_data(site_, route.out[0])),
            .weights = f32(graph_.info(route.out[1]))};
  }
};

/// Whether attention of one token turns its heads itself.
bool turns_heads(const Site& site, const Node& attention) {
  const CacheView cache = site.cache.view(site.graph.info(attention.in[1]).cache);
  return attends_with_rope(cache, attention_shape(site.graph, attention, cache), site.cache.most_positions());
}

}  // namespace

Compiled compile_fused(const Site& site) {
  const std::span<const Node> nodes = site.graph.nodes();
  const Fusions& fusions = site.plan.fusions;
  std::vector<bool> f32_reads = values_read_as_f32(site.graph, site.many);
  for (const TokenExpertsNodes& m : fusions.token_experts) f32_reads[nodes[m.gate_up].in[0]] = true;
  for (const OwnColumn& m : fusions.own_columns) {
    if (!m.norm) f32_reads[nodes[m.linear].in[0]] = true;
  }
  // What is compiled instead of a node: all that are fused at the last of them, nothing at the others.
  std::vector<std::function<void(FusedCompiler&)>> instead(nodes.size());
  const auto nothing = [](FusedCompiler&) {};
  if (appends_with_rope(site.cache.format().k, site.cache.format().v)) {
    for (const RopeAppendNodes& m : fusions.rope_appends) {
      instead[m.rope_q] = instead[m.rope_k] = nothing;
      if (m.norms) instead[m.norms->q] = instead[m.norms->k] = nothing;
      if (m.attention && turns_heads(site, nodes[*m.attention])) {
        instead[m.append] = nothing;
        instead[*m.attention] = [&m](FusedCompiler& c) { c.rope_append_attend(m); };
      } else {
        instead[m.append] = [&m](FusedCompiler& c) { c.rope_append(m); };
      }
    }
  }
  for (const CombineNormNodes& m : fusions.combine_norms) {
    instead[m.combine] = nothing;
    instead[m.norm] = [&m](FusedCompiler& c) { c.combine_norm(m); };
  }
  for (const TokenExpertsNodes& m : fusions.token_experts) {
    if (m.chooses)
      instead[m.route] = nothing;
    else
      instead[m.route] = [](FusedCompiler& c) { c.token_route(); };
    instead[m.gate_up] = instead[m.down] = nothing;
    instead[m.glu] = [&m](FusedCompiler& c) { c.token_gate_up(m); };
    instead[m.combine] = [&m](FusedCompiler& c) { c.token_down(m); };
  }
  for (const OwnColumn& m : fusions.own_columns) {
    if (m.norm) instead[*m.norm] = nothing;
    instead[m.linear] = nothing;
    instead[m.last()] = [&m](FusedCompiler& c) { c.own_column(m); };
  }
  Compiled compiled;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (instead[i]) {
      FusedCompiler compiler(site, i, &f32_reads, compiled);
      instead[i](compiler);
    } else {
      compile_node(site, i, &f32_reads, compiled);
    }
  }
  return compiled;
}

}  // namespace llm::cuda
