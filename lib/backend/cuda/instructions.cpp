#include "backend/cuda/instructions.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "backend/cuda/fusions.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/finish.h"
#include "backend/cuda/kernels/grouped_products.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/rope_append.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/host/host.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

/// Prompts with fewer tokens a sequence are attended to token by token.
constexpr int kPromptTokens = 16;
/// Routes of a group where a step has many, of products that are not grouped_products().
constexpr int kWideGroup = 32, kNarrowGroup = 8;

using Emit = std::function<void(const StepLaunch&)>;

AttentionShape attention_shape(const Graph& graph, const Node& attention, const CacheView& cache) {
  const auto& op = std::get<Attention>(attention.op);
  return {.heads = static_cast<int>(graph.info(attention.in[0]).type.shape[1]),
          .scale = op.scale,
          .window = op.window,
          .query = info(cache.k_type).quantized() ? op.query : ActFormat::F32};
}

/// Makes the instructions of one node.
class NodeCompiler {
 public:
  /// `f32_reads`: values_read_as_f32(), or null where all f32 values are to be there.
  NodeCompiler(const Site& site, std::size_t index, const std::vector<bool>* f32_reads, Compiled& into)
      : site_(site),
        graph_(site.graph),
        node_(site.graph.nodes()[index]),
        index_(index),
        f32_reads_(f32_reads),
        into_(into) {}

  void operator()(const Embed&) {
    const CudaWeights::Matrix& table = matrix(0);
    add("gather " + type_text(table), [table, y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      gather_rows(table.type, table.data, step.tokens, step.drawn, s.tokens, y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const RmsNorm& op) {
    const std::uint32_t y = node_.out[0];
    const int n = width(y);
    add("rms_norm" + forms_text(y), [=, x = f32(in(0)), w = vector(1), forms = forms(y), count = counter(y)](
                                        const StepLaunch& s) { rms_norm(x, w, op.eps, n, count(s), forms, s.at); });
  }

  void operator()(const AddRmsNorm& op) {
    const std::uint32_t y = node_.out[1];
    const int n = width(y);
    add("add, rms_norm" + forms_text(y),
        [=, a = f32(in(0)), b = f32(in(1)), w = vector(2), sum = f32(out(0)), forms = forms(y),
         count = counter(y)](const StepLaunch& s) { add_rms_norm(a, b, w, op.eps, n, count(s), sum, forms, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const Glu& op) {
    const std::uint32_t y = node_.out[0];
    const int n = width(y);
    add("glu" + forms_text(y), [=, gate = f32(in(0)), up = f32(in(1)), forms = forms(y), count = counter(y)](
                                   const StepLaunch& s) { glu(op.activation, gate, up, n, count(s), forms, s.at); });
  }

  void operator()(const RopeTable& op) {
    const float* const factors = node_.in.size() > 1 ? site_.weights.host_vector(in(1).name).data() : nullptr;
    const host::RopeAngles angles(op, factors);
    const std::span<const double> theta = angles.theta();
    DeviceBuffer& constant = into_.constants.emplace_back(theta.size_bytes());
    check_cuda(cudaMemcpy(constant.data(), theta.data(), theta.size_bytes(), cudaMemcpyHostToDevice),
               "copying rotary angles");
    add("rope_table",
        [op, theta = reinterpret_cast<const double*>(constant.data()), magnitude = angles.magnitude(), y = f32(out(0)),
         step = site_.step](const StepLaunch& s) { rope_table(theta, magnitude, op.n_rot, step, s.tokens, y, s.at); });
  }

  void operator()(const Rope& op) {
    const ValueInfo& x = in(0);
    const int head_dim = static_cast<int>(x.type.shape[0]), heads = static_cast<int>(x.type.shape[1]);
    add("rope", [=, x = f32(x), table = f32(in(1)), y = f32(out(0)), count = tokens(out(0))](const StepLaunch& s) {
      rope(op, x, table, heads, head_dim, count(s), y, s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const KvAppend&) {
    const CacheView cache = site_.cache.view(in(2).cache.layer);
    add("append", [=, k = f32(in(0)), v = f32(in(1)), step = site_.step](const StepLaunch& s) {
      append_to_cache(k, v, cache, step, s.tokens, s.at);
    });
  }

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
    const CacheView cache = site_.cache.view(in(2).cache.layer);
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

  /// This node is the Glu of them.
  void token_gate_up(const TokenExpertsNodes& nodes) {
    const Node& linear = graph_.nodes()[nodes.gate_up];
    std::vector<Target> targets = make_targets(linear);
    if (node_.in[0] != linear.out[0]) std::swap(targets[0], targets[1]);
    const GatedResult gated{.y = f32(out(0)), .activation = std::get<Glu>(node_.op).activation};
    add("one token's experts, which it finds: " + few_text(targets) + ", glu behind",
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

  void operator()(const Attention&) {
    const AttentionSite at = attention_site();
    const bool tensor_cores =
        site_.prompt_attention && graph_.bucket().tokens > kMaxColumns && prompt_attention_refusal(at.cache) == nullptr;
    add(tensor_cores ? "attention: by tensor cores, single tokens in f32" : "attention in f32",
        [=, q = f32(in(0)), y = f32(out(0)), step = site_.step](const StepLaunch& s) {
          const bool prompt =
              tensor_cores && s.spans != nullptr && s.tokens >= kPromptTokens * static_cast<int>(s.spans->size());
          if (prompt) {
            attend_prompt(q, y, at.cache, at.shape, step, s.spans->data(), static_cast<int>(s.spans->size()), s.at);
          } else {
            attend(q, y, at.cache, at.shape, step, s.tokens, at.positions, at.scratch, at.arrivals, s.at);
          }
        });
    convert(node_.out[0]);
  }

  void operator()(const Route& op) {
    const int experts = width(node_.in[0]);
    auto* const ids = reinterpret_cast<std::int32_t*>(value_data(site_, node_.out[0]));
    float *const logits = f32(in(0)), *const weights = f32(out(1));
    const Count count = tokens(out(0));
    const auto route_alone = [=](const StepLaunch& s) { route(op, logits, experts, count(s), ids, weights, s.at); };
    std::byte* const memory = form(node_.out[0], Form::RouteGroups);
    if (memory == nullptr) return add("route", route_alone);
    const int columns = group_columns(node_.out[0]);
    StepView step = site_.step;
    if (out(0).rows == RowSpace::Outputs) ++step.counts;  // as many tokens as the step wants rows
    const auto groups = into_.routes[node_.out[0]] = std::make_shared<RouteGroups>();
    if (groups_while_routing(experts, static_cast<int>(row_capacity(out(0))), op.top_k)) {
      return add("route, grouped by expert", [=](const StepLaunch& s) {
        *groups = route_and_group(op, logits, experts, count(s), columns, step, ids, weights, memory, s.at);
      });
    }
    add("route", route_alone);
    add("group routes by expert", [=, top_k = op.top_k](const StepLaunch& s) {
      *groups = group_routes(ids, experts, count(s), top_k, columns, step, memory, s.at);
    });
  }

  void operator()(const Combine&) {
    const int n = width(node_.out[0]), top_k = static_cast<int>(in(1).type.shape[0]);
    add("combine", [=, x = f32(in(0)), weights = f32(in(1)), y = f32(out(0)),
                    count = tokens(out(0))](const StepLaunch& s) { combine(x, weights, top_k, n, count(s), y, s.at); });
    convert(node_.out[0]);
  }

  void operator()(const Add&) {
    add("add", [=, a = f32(in(0)), b = f32(in(1)), y = f32(out(0)), count = elements(out(0))](const StepLaunch& s) {
      cuda::add(a, b, y, count(s), s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const Scale& op) {
    add("scale", [=, x = f32(in(0)), y = f32(out(0)), count = elements(out(0))](const StepLaunch& s) {
      scale(x, op.factor, y, count(s), s.at);
    });
    convert(node_.out[0]);
  }

  void operator()(const Map&) { check(false, "a Map was refused when the model was loaded"); }

  void operator()(const Rows&) {
    const ValueInfo& x = in(0);
    const int n = static_cast<int>(x.type.shape.elements() / graph_.bucket().tokens);
    add("rows", [=, x = f32(x), y = f32(out(0)), step = site_.step](const StepLaunch& s) {
      select_rows(x, n, step, s.outputs, y, s.at);
    });
    convert(node_.out[0]);
  }

  /// The plan gives both sides the same bytes.
  void operator()(const Reshape&) { convert(node_.out[0]); }

  void operator()(const Linear&) {
    if (site_.plan.fusions.makes_column(index_))
      return own_column({.linear = index_, .norm = {}, .shared = false, .glu = {}});
    const std::vector<Target> targets = make_targets(node_);
    const bool library = uses_library(graph_, node_, site_.gemm != nullptr);
    const bool always = library && columns_of(graph_, node_.in[0]) == Columns::Many;
    const Emit few = always ? Emit() : few_columns(targets);
    const Emit many = library ? many_columns(targets) : Emit();
    std::string how = (always ? "" : "few columns: " + few_text(targets)) + (library && !always ? "; " : "");
    if (library) how += "decoded to F16, " + site_.gemm->describe();
    add(std::move(how), [=, count = counter(node_.in[0])](const StepLaunch& s) {
      const bool use_many = library && (always || count(s) > kMaxColumns);
      (use_many ? many : few)(s);
    });
    for (const std::uint32_t y : node_.out) convert(y);
  }

  void operator()(const ExpertLinear&) {
    const std::vector<Target> targets = make_targets(node_);
    const ValueInfo &x = in(0), &ids = in(1);
    const int per_row = x.type.shape.n_dims() == 3 ? 1 : static_cast<int>(ids.type.shape[0]);
    const auto routes = into_.routes.at(node_.in[1]);
    const auto groups_of_row = [=] {
      RouteGroups groups = *routes;
      groups.routes_per_row = per_row;
      return groups;
    };
    if (uses_grouped_products(graph_, node_.in[1], site_.gemm != nullptr)) {
      const std::byte* const f16 = form(node_.in[0], Form::F16);
      const auto* const unscale = reinterpret_cast<const float*>(form(node_.in[0], Form::F16Unscale));
      add("experts: decoded to F16, grouped on tensor cores",
          [=](const StepLaunch& s) { grouped_products(targets, f16, unscale, groups_of_row(), s.at); });
      for (const std::uint32_t y : node_.out) convert(y);
      return;
    }
    const Split split(*this, targets);
    add("experts: " + few_text(targets),
        [=, x = f32(x), capacity = static_cast<int>(row_capacity(x))](const StepLaunch& s) {
          const RouteGroups groups = groups_of_row();
          if (!split.q8x256.empty()) expert_tile_products(split.q8x256, split.x256, capacity, groups, s.at);
          if (!split.q8x32.empty()) expert_tile_products(split.q8x32, split.x32, capacity, groups, s.at);
          if (!split.plain.empty()) expert_float_products(split.plain, x, groups, s.at);
          if (!split.bf16.empty()) expert_float_products(split.bf16, split.rounded, groups, s.at);
        });
    for (const std::uint32_t y : node_.out) convert(y);
  }

 private:
  using Count = std::function<int(const StepLaunch&)>;

  /// The targets of a node by the form of x that they take.
  struct Split {
    Split(const NodeCompiler& c, const std::vector<Target>& targets) {
      const std::uint32_t x = c.node_.in[0];
      x256 = c.form(x, Form::Q8x256);
      x32 = c.form(x, Form::Q8x32);
      rounded = reinterpret_cast<const float*>(c.form(x, Form::RoundedBf16));
      for (const Target& t : targets) {
        const FewForm few = few_form(t.type.type);
        (!few.any ? plain : few.form == Form::Q8x256 ? q8x256 : few.form == Form::Q8x32 ? q8x32 : bf16).push_back(t);
      }
    }
    std::vector<Target> q8x256, q8x32, plain, bf16;
    const std::byte *x256, *x32;
    const float* rounded;
  };

  const ValueInfo& in(std::size_t i) const { return graph_.info(node_.in[i]); }
  const ValueInfo& out(std::size_t i) const { return graph_.info(node_.out[i]); }
  int width(std::uint32_t value) const { return static_cast<int>(graph_.info(value).type.shape[0]); }
  const CudaWeights::Matrix& matrix(std::size_t i) const { return site_.weights.matrix(in(i).name); }
  const float* vector(std::size_t i) const { return vector_of(node_.in[i]); }
  const float* vector_of(std::uint32_t weight) const {
    const float* const data = site_.weights.vector(graph_.info(weight).name);
    check(data != nullptr, "a vector lies as f32");
    return data;
  }
  float* f32(const ValueInfo& v) const {
    const auto id = static_cast<std::uint32_t>(&v - graph_.values().data());
    return reinterpret_cast<float*>(value_data(site_, id));
  }
  std::byte* form(std::uint32_t value, Form f) const {
    const std::uint64_t offset = site_.plan.form(value, f);
    return offset == MemoryPlan::kNone ? nullptr : site_.workspace.data() + offset;
  }
  static std::string type_text(const CudaWeights::Matrix& m) { return std::string(name(m.type.type)); }

  /// Rows of a value in a step; a token may have several.
  Count counter(std::uint32_t value) const {
    const ValueInfo& v = graph_.info(value);
    const RowSpace space = v.rows;
    const std::int64_t capacity =
        StepLaunch{.at = {}, .tokens = graph_.bucket().tokens, .outputs = graph_.bucket().outputs}.rows(space);
    const int per_row = static_cast<int>(row_capacity(v) / capacity);
    return [=](const StepLaunch& s) { return s.rows(space) * per_row; };
  }
  Count tokens(const ValueInfo& v) const {
    return [space = v.rows](const StepLaunch& s) { return s.rows(space); };
  }
  std::function<std::int64_t(const StepLaunch&)> elements(const ValueInfo& v) const {
    const auto id = static_cast<std::uint32_t>(&v - graph_.values().data());
    return [count = counter(id), n = v.type.shape[0]](const StepLaunch& s) { return count(s) * n; };
  }
  int group_columns(std::uint32_t ids) const {
    if (uses_grouped_products(graph_, ids, site_.gemm != nullptr)) return kGroupedColumns;
    return graph_.info(ids).type.shape.elements() > 256 ? kWideGroup : kNarrowGroup;
  }

  /// For any number of tokens that a step of this program may have: work is split the more, the fewer there are.
  AttentionMemory attention_memory(const CacheView& cache, const AttentionShape& shape) const {
    const int capacity = graph_.bucket().tokens;
    AttentionMemory most;
    for (int tokens = capacity > kMaxColumns ? 1 : capacity; tokens <= capacity; ++tokens) {
      const AttentionMemory m = cuda::attention_memory(cache, shape, tokens, site_.cache.most_positions());
      most = {std::max(most.scratch, m.scratch), std::max(most.arrivals, m.arrivals)};
      if (tokens > kMaxColumns && m.arrivals == 0) break;  // more tokens are split no more
    }
    return most;
  }

  /// What attention of this node has beside its operands.
  struct AttentionSite {
    CacheView cache;
    AttentionShape shape;
    std::int64_t positions;
    std::byte *scratch, *arrivals;
  };
  AttentionSite attention_site() const {
    const CacheView cache = site_.cache.view(in(1).cache.layer);
    const AttentionShape shape = attention_shape(graph_, node_, cache);
    const AttentionMemory memory = attention_memory(cache, shape);
    return {cache, shape, site_.cache.most_positions(), site_.cache.scratch(memory.scratch),
            site_.cache.arrivals(memory.arrivals)};
  }

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

  void add(std::string how, Emit launch) { into_.instructions.push_back({index_, std::move(how), std::move(launch)}); }

  /// That a value's own kernel writes.
  Forms forms(std::uint32_t value) const {
    const bool as_f32 = f32_reads_ == nullptr || (*f32_reads_)[value];
    return {.f32 = as_f32 ? f32(graph_.info(value)) : nullptr,
            .q8x256 = form(value, Form::Q8x256),
            .q8x32 = form(value, Form::Q8x32),
            .rounded_bf16 = reinterpret_cast<float*>(form(value, Form::RoundedBf16)),
            .f16 = form(value, Form::F16),
            .f16_unscale = reinterpret_cast<float*>(form(value, Form::F16Unscale)),
            .capacity = static_cast<int>(row_capacity(graph_.info(value)))};
  }
  std::string forms_text(std::uint32_t value) const {
    std::string text;
    const auto mention = [&](Form f, const char* words) {
      if (form(value, f) != nullptr) text += (text.empty() ? " as " : ", ") + std::string(words);
    };
    mention(Form::Q8x256, "int8 per 256");
    mention(Form::Q8x32, "int8 per 32");
    mention(Form::RoundedBf16, "bf16");
    mention(Form::F16, "f16");
    return text;
  }
  /// Forms of a value whose own kernel does not write them.
  void convert(std::uint32_t value) {
    const std::string text = forms_text(value);
    if (text.empty()) return;
    Forms wanted = forms(value);
    wanted.f32 = nullptr;
    add("rows" + text, [=, x = f32(graph_.info(value)), n = width(value), count = counter(value)](const StepLaunch& s) {
      make_forms(x, n, count(s), wanted, s.at);
    });
  }

  std::vector<Target> make_targets(const Node& node) const {
    std::vector<Target> targets;
    const auto operands = product_operands(node.op);
    const auto value = [&](std::size_t i) -> const ValueInfo& { return graph_.info(node.in[i]); };
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const ProductOperands& p = operands[i];
      const CudaWeights::Matrix& m = site_.weights.matrix(value(p.weight).name);
      targets.push_back({.type = m.type,
                         .matrix = m.data,
                         .bias = p.bias == 0 ? nullptr : vector_of(node.in[p.bias]),
                         .scale = p.scale == 0 ? nullptr : vector_of(node.in[p.scale]),
                         .y = f32(graph_.info(node.out[i]))});
    }
    return targets;
  }

  TokenRoute token_route(const TokenExpertsNodes& nodes) const {
    const Node& route = graph_.nodes()[nodes.route];
    return {.op = std::get<Route>(route.op),
            .experts = width(route.in[0]),
            .logits = f32(graph_.info(route.in[0])),
            .ids = reinterpret_cast<std::int32_t*>(value_data(site_, route.out[0])),
            .weights = f32(graph_.info(route.out[1]))};
  }

  static std::string few_text(const std::vector<Target>& targets) {
    std::string text;
    for (const Target& t : targets) {
      text += (text.empty() ? "" : ", ") + std::string(name(t.type.type)) +
              (has_tiles(t.type.type) ? " tiles x int8" : " x f32");
    }
    return text;
  }

  Emit few_columns(const std::vector<Target>& targets) const {
    const Split split(*this, targets);
    return [=, x = f32(in(0)), capacity = static_cast<int>(row_capacity(in(0))),
            count = counter(node_.in[0])](const StepLaunch& s) {
      const int columns = count(s);
      if (!split.q8x256.empty()) tile_products(split.q8x256, split.x256, capacity, columns, s.at);
      if (!split.q8x32.empty()) tile_products(split.q8x32, split.x32, capacity, columns, s.at);
      if (!split.plain.empty()) float_products(split.plain, x, columns, s.at);
      if (!split.bf16.empty()) float_products(split.bf16, split.rounded, columns, s.at);
    };
  }

  Emit many_columns(const std::vector<Target>& targets) const {
    const std::uint64_t at = site_.plan.memory.scratch_offset[index_];
    std::byte* const decoded = at == MemoryPlan::kNone ? nullptr : site_.workspace.data() + at;
    std::vector<std::int64_t> heights;
    for (const ProductOperands& p : product_operands(node_.op)) heights.push_back(decoded_rows(in(p.weight).type));
    const std::byte* const f16 = form(node_.in[0], Form::F16);
    const auto* const unscale = reinterpret_cast<const float*>(form(node_.in[0], Form::F16Unscale));
    return [=, gemm = site_.gemm, x = f32(in(0)), count = counter(node_.in[0])](const StepLaunch& s) {
      const int columns = count(s);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        const Target& t = targets[i];
        const int n = static_cast<int>(t.type.n), k = static_cast<int>(t.type.k);
        if (t.type.type == DType::F32) {
          gemm->run(DType::F32, t.matrix, x, t.y, n, columns, k, n, s.at.stream);
          finish_products(t.y, n, columns, nullptr, t.scale, t.bias, s.at);
          continue;
        }
        if (t.type.type == DType::F16) {
          gemm->run(DType::F16, t.matrix, f16, t.y, n, columns, k, n, s.at.stream);
        } else {
          for (std::int64_t row = 0; row < n; row += heights[i]) {
            const std::int64_t height = std::min<std::int64_t>(heights[i], n - row);
            decode_rows_f16(t.type, t.matrix, row, height, decoded, s.at);
            gemm->run(DType::F16, decoded, f16, t.y + row, static_cast<int>(height), columns, k, n, s.at.stream);
          }
        }
        finish_products(t.y, n, columns, unscale, t.scale, t.bias, s.at);
      }
    };
  }

  const Site& site_;
  const Graph& graph_;
  const Node& node_;
  std::size_t index_;
  const std::vector<bool>* f32_reads_;
  Compiled& into_;
};

}  // namespace

namespace {

/// Whether attention of one token turns its heads itself.
bool turns_heads(const Site& site, const Node& attention) {
  const CacheView cache = site.cache.view(site.graph.info(attention.in[1]).cache.layer);
  return attends_with_rope(cache, attention_shape(site.graph, attention, cache), site.cache.most_positions());
}

}  // namespace

std::byte* value_data(const Site& site, std::uint32_t value) {
  const std::uint64_t offset = site.plan.memory.offset[value];
  check(offset != MemoryPlan::kNone, "a result has memory");
  return site.workspace.data() + offset;
}

Compiled compile_nodes(const Site& site) {
  Compiled compiled;
  for (std::size_t i = 0; i < site.graph.nodes().size(); ++i) {
    NodeCompiler compiler(site, i, nullptr, compiled);
    std::visit(compiler, site.graph.nodes()[i].op);
  }
  return compiled;
}

Compiled compile_fused(const Site& site) {
  const std::span<const Node> nodes = site.graph.nodes();
  const Fusions& fusions = site.plan.fusions;
  std::vector<bool> f32_reads = values_read_as_f32(site.graph, site.gemm != nullptr);
  for (const TokenExpertsNodes& m : fusions.token_experts) f32_reads[nodes[m.gate_up].in[0]] = true;
  for (const OwnColumn& m : fusions.own_columns) {
    if (!m.norm) f32_reads[nodes[m.linear].in[0]] = true;
  }
  // What is compiled instead of a node: all that are fused at the last of them, nothing at the others.
  std::vector<std::function<void(NodeCompiler&)>> instead(nodes.size());
  const auto nothing = [](NodeCompiler&) {};
  if (appends_with_rope(site.cache.format().k, site.cache.format().v)) {
    for (const RopeAppendNodes& m : fusions.rope_appends) {
      instead[m.rope_q] = instead[m.rope_k] = nothing;
      if (m.norms) instead[m.norms->q] = instead[m.norms->k] = nothing;
      if (m.attention && turns_heads(site, nodes[*m.attention])) {
        instead[m.append] = nothing;
        instead[*m.attention] = [&m](NodeCompiler& c) { c.rope_append_attend(m); };
      } else {
        instead[m.append] = [&m](NodeCompiler& c) { c.rope_append(m); };
      }
    }
  }
  for (const CombineNormNodes& m : fusions.combine_norms) {
    instead[m.combine] = nothing;
    instead[m.norm] = [&m](NodeCompiler& c) { c.combine_norm(m); };
  }
  for (const TokenExpertsNodes& m : fusions.token_experts) {
    instead[m.route] = instead[m.gate_up] = instead[m.down] = nothing;
    instead[m.glu] = [&m](NodeCompiler& c) { c.token_gate_up(m); };
    instead[m.combine] = [&m](NodeCompiler& c) { c.token_down(m); };
  }
  for (const OwnColumn& m : fusions.own_columns) {
    if (m.norm) instead[*m.norm] = nothing;
    instead[m.linear] = nothing;
    instead[m.last()] = [&m](NodeCompiler& c) { c.own_column(m); };
  }
  Compiled compiled;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    NodeCompiler compiler(site, i, &f32_reads, compiled);
    if (instead[i]) {
      instead[i](compiler);
    } else {
      std::visit(compiler, nodes[i].op);
    }
  }
  return compiled;
}

std::string refusal(const Graph& graph, const Node& node) {
  if (std::holds_alternative<Map>(node.op)) return "Map runs a function of the program, which the GPU cannot call";
  if (std::holds_alternative<Attention>(node.op) && graph.info(node.in[0]).rows != RowSpace::Tokens)
    return "Attention needs a query for every token";
  for (const std::uint32_t id : node.in) {
    const ValueInfo& v = graph.info(id);
    if (v.kind != ValueKind::State) continue;
    // Types other than the default are the user's wish and refused when the cache is made.
    const char* reason = cache_refusal(DType::F16, DType::F16, v.cache.head_dim_k, v.cache.head_dim_v);
    if (reason != nullptr) return reason;
  }
  for (const ProductOperands& p : product_operands(node.op)) {
    const ValueInfo& w = graph.info(node.in[p.weight]);
    const DTypeInfo& type = info(w.type.dtype);
    if (type.use != DTypeUse::Weight)
      return "weight \"" + w.name + "\": type " + std::string(name(w.type.dtype)) + " cannot be a matrix";
    if (type.quantized() && !has_tiles(w.type.dtype))
      return "weight \"" + w.name + "\": the GPU has no kernels for type " + std::string(name(w.type.dtype));
    if (w.type.shape[0] % type.block_elems != 0)
      return "weight \"" + w.name + "\": rows of " + std::to_string(w.type.shape[0]) + " are not whole blocks of " +
             std::string(name(w.type.dtype));
  }
  return {};
}

}  // namespace llm::cuda
