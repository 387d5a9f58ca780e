#include "backend/cuda/node_site.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace llm::cuda {

AttentionShape attention_shape(const Graph& graph, const Node& attention, const CacheView& cache) {
  const auto& op = std::get<Attention>(attention.op);
  return {.heads = static_cast<int>(graph.info(attention.in[0]).type.shape[1]),
          .scale = op.scale,
          .window = op.window,
          .query = info(cache.k_type).quantized() ? op.query : ActFormat::F32,
          .soft_cap = op.soft_cap,
          .max_bias = op.max_bias};
}

namespace {

/// The node that makes a value, if it is of this kind.
template <class Kind>
const Node* maker(const Graph& graph, std::uint32_t value) {
  for (const Node& n : graph.nodes()) {
    if (std::ranges::find(n.out, value) != n.out.end()) return std::holds_alternative<Kind>(n.op) ? &n : nullptr;
  }
  return nullptr;
}

}  // namespace

bool values_in_keys(const Graph& graph, const Node& attention, const CacheView& cache) {
  const Node* const append = maker<KvAppend>(graph, attention.in[1]);
  if (append != nullptr && append->in[0] == append->in[1]) return cache.k_type == cache.v_type;
  const Node* const key = append != nullptr ? maker<Concat>(graph, append->in[0]) : nullptr;
  return key != nullptr && key->in[0] == append->in[1] && cache.k_type == cache.v_type;
}

std::byte* value_data(const Site& site, std::uint32_t value) {
  const std::uint64_t offset = site.plan.memory.offset[value];
  check(offset != MemoryPlan::kNone, "a result has memory");
  return site.workspace.data() + offset;
}

/// The step's tokens have no memory of their own, of which a Reshape would be a part.
const std::int32_t* NodeSite::ids_of(std::uint32_t value) const {
  switch (graph_.info(value).input) {
    case StepInput::Tokens:
      return site_.step.tokens;
    case StepInput::Positions:
      return site_.step.positions;
    default:
      break;
  }
  const Node* const reshape = maker<Reshape>(graph_, value);
  const bool is_part =
      reshape != nullptr && reshape->in[0] != value;  // a value that arrives is its own (with_arrivals)
  return is_part ? ids_of(reshape->in[0]) : i32(value);
}

NodeSite::Count NodeSite::counter(std::uint32_t value) const {
  const ValueInfo& v = graph_.info(value);
  const RowSpace space = v.rows;
  const std::int64_t capacity =
      StepLaunch{.at = {}, .tokens = graph_.bucket().tokens, .outputs = graph_.bucket().outputs}.rows(space);
  const int per_row = static_cast<int>(row_capacity(v) / capacity);
  return [=](const StepLaunch& s) { return s.rows(space) * per_row; };
}

NodeSite::Count NodeSite::tokens(const ValueInfo& v) const {
  return [space = v.rows](const StepLaunch& s) { return s.rows(space); };
}

std::function<std::int64_t(const StepLaunch&)> NodeSite::elements(const ValueInfo& v) const {
  const auto id = static_cast<std::uint32_t>(&v - graph_.values().data());
  return [count = counter(id), n = v.type.shape[0]](const StepLaunch& s) { return count(s) * n; };
}

AttentionMemory NodeSite::attention_memory(const CacheView& cache, const AttentionShape& shape) const {
  // The same for all programs, which share the memory: what a larger one found too small would stay beside it, since
  // recorded steps know where it is.
  const int most_tokens = std::max(graph_.bucket().tokens, 4 * kMaxColumns);
  AttentionMemory most;
  for (int tokens = 1; tokens <= most_tokens; ++tokens) {
    const AttentionMemory m = cuda::attention_memory(cache, shape, tokens, site_.cache.most_positions());
    most = {std::max(most.scratch, m.scratch), std::max(most.arrivals, m.arrivals)};
    if (tokens > kMaxColumns && m.arrivals == 0 && m.scratch == 0) break;  // more tokens are split no more
  }
  return most;
}

Selected NodeSite::selected(std::uint32_t positions) const {
  const Node* const blocks = maker<SelectBlocks>(graph_, positions);
  return {.positions = reinterpret_cast<const std::int32_t*>(value_data(site_, positions)),
          .top_k = width(positions),
          .selections = static_cast<int>(selections_of(graph_.info(positions).type.shape)),
          .block = blocks != nullptr ? std::get<SelectBlocks>(blocks->op).block : 1};
}

NodeSite::AttentionSite NodeSite::attention_site() const {
  CacheView cache = site_.cache.view(in(1).cache);
  cache.values_in_keys = values_in_keys(graph_, node_, cache);
  AttentionShape shape = attention_shape(graph_, node_, cache);
  Selected keys;
  if (in(1).cache.access == CacheType::Access::Selected) {
    keys = selected(node_.in[2]);
  } else if (node_.in.size() > 2) {
    shape.sinks = vector(2);
  }
  const AttentionMemory memory = keys.top_k > 0 ? selected_attention_memory(cache, shape, keys, graph_.bucket().tokens)
                                                : attention_memory(cache, shape);
  return {cache,
          shape,
          keys,
          site_.cache.most_positions(),
          site_.cache.scratch(memory.scratch),
          site_.cache.arrivals(memory.arrivals)};
}

NodeSite::RouteSite NodeSite::route_site() const {
  Router router{.op = std::get<Route>(node_.op)};
  if (node_.in.size() == 3) {
    router.table = reinterpret_cast<const std::int32_t*>(matrix(1).data);
    router.tokens = ids_of(node_.in[2]);
    router.drawn = site_.step.drawn;
    router.vocab = in(1).type.shape[1];
  } else {
    router.bias = optional_vector(1);
  }
  return {.router = router,
          .experts = width(node_.in[0]),
          .logits = f32(in(0)),
          .ids = reinterpret_cast<std::int32_t*>(value_data(site_, node_.out[0])),
          .weights = f32(out(1)),
          .count = tokens(out(0))};
}

void NodeSite::route_alone() {
  add("route", [r = route_site()](const StepLaunch& s) {
    route(r.router, r.logits, r.experts, r.count(s), r.ids, r.weights, s.at);
  });
}

void NodeSite::add(std::string how, Emit launch) {
  into_.instructions.push_back({index_, std::move(how), std::move(launch)});
}

Forms NodeSite::forms(std::uint32_t value) const {
  const bool as_f32 = f32_reads_ == nullptr || (*f32_reads_)[value];
  return {.f32 = as_f32 ? f32(graph_.info(value)) : nullptr,
          .q8x256 = form(value, Form::Q8x256),
          .q8x32 = form(value, Form::Q8x32),
          .rounded_bf16 = reinterpret_cast<float*>(form(value, Form::RoundedBf16)),
          .f16 = form(value, Form::F16),
          .f16_rest = form(value, Form::F16Rest),
          .f16_panels = form(value, Form::F16Panels),
          .f16_unscale = reinterpret_cast<float*>(form(value, Form::F16Unscale)),
          .f8 = form(value, Form::F8),
          .f8_scale = reinterpret_cast<float*>(form(value, Form::F8Scale)),
          .capacity = static_cast<int>(row_capacity(graph_.info(value)))};
}

std::string NodeSite::forms_text(std::uint32_t value) const {
  std::string text;
  const auto mention = [&](Form f, const char* words) {
    if (form(value, f) != nullptr) text += (text.empty() ? " as " : ", ") + std::string(words);
  };
  mention(Form::Q8x256, "int8 per 256");
  mention(Form::Q8x32, "int8 per 32");
  mention(Form::RoundedBf16, "bf16");
  mention(Form::F16, "f16");
  mention(Form::F16Rest, "the rest of f16");
  mention(Form::F16Panels, "f16 panels");
  mention(Form::F8, "fp8");
  return text;
}

void NodeSite::convert(std::uint32_t value) {
  const std::string text = forms_text(value);
  if (text.empty()) return;
  Forms wanted = forms(value);
  wanted.f32 = nullptr;
  add("rows" + text, [=, x = f32(graph_.info(value)), n = width(value), count = counter(value)](const StepLaunch& s) {
    make_forms(x, n, count(s), wanted, s.at);
  });
}

std::vector<Target> NodeSite::make_targets(const Node& node) const {
  std::vector<Target> targets;
  const auto operands = product_operands(node.op);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const ProductOperands& p = operands[i];
    const CudaWeights::Matrix& m = matrix_of(node, p.weight);
    targets.push_back({.type = m.type,
                       .matrix = m.data,
                       .bias = p.bias == 0 ? nullptr : vector_of(node.in[p.bias]),
                       .scale = p.scale == 0 ? nullptr : vector_of(node.in[p.scale]),
                       .y = f32(graph_.info(node.out[i]))});
  }
  return targets;
}

std::string NodeSite::few_text(const std::vector<Target>& targets) {
  std::string text;
  for (const Target& t : targets) {
    const DType type = t.type.type;
    const char* const columns = has_tiles(type) ? " tiles x int8" : few_form(type).any ? " x bf16" : " x f32";
    text += (text.empty() ? "" : ", ") + std::string(name(type)) + columns;
  }
  return text;
}

}  // namespace llm::cuda
