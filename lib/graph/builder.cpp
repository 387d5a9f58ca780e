#include "graph/builder.h"

#include <algorithm>

#include "base/error.h"
#include "graph/shape_rules.h"
#include "graph/verify.h"

namespace llm {

GraphBuilder::GraphBuilder(Bucket bucket) { graph_.set_bucket(bucket); }

void GraphBuilder::set_place(int layer, Role role, std::string prefix) {
  layer_ = layer;
  role_ = role;
  prefix_ = std::move(prefix);
}

Index GraphBuilder::step_input(StepInput input) {
  for (std::uint32_t id = 0; id < graph_.values().size(); ++id) {
    if (graph_.info(id).kind == ValueKind::Input && graph_.info(id).input == input) return {{id}};
  }
  ValueInfo info{.kind = ValueKind::Input, .input = input};
  const Bucket& b = graph_.bucket();
  switch (input) {
    case StepInput::Tokens:
      info.name = "tokens";
      break;
    case StepInput::Positions:
      info.name = "positions";
      break;
    case StepInput::OutRows:
      info.name = "out_rows";
      break;
    case StepInput::None:
      check(false, "a step input without a kind");
  }
  info.rows = input == StepInput::OutRows ? RowSpace::Outputs : RowSpace::Tokens;
  info.type = {DType::I32, {input == StepInput::OutRows ? b.outputs : b.tokens}};
  return {{graph_.add_value(std::move(info))}};
}

Act GraphBuilder::given(std::string name, std::int64_t n) {
  return {{graph_.add_value({.kind = ValueKind::Input,
                             .name = std::move(name),
                             .type = {DType::F32, {n, graph_.bucket().tokens}},
                             .rows = RowSpace::Tokens})}};
}

Weight GraphBuilder::weight(std::string name, TensorType type) {
  if (const auto found = weights_.find(name); found != weights_.end()) return {{found->second}};
  const std::uint32_t id = graph_.add_value({.kind = ValueKind::Weight, .name = name, .type = type});
  weights_.emplace(std::move(name), id);
  return {{id}};
}

Cache GraphBuilder::cache(CacheType type) {
  const std::string name = std::string(llm::name(type.part)) + "." + std::to_string(type.layer);
  return {{graph_.add_value({.kind = ValueKind::Cache, .name = name, .cache = type})}};
}

Recurrent GraphBuilder::recurrent(RecurrentType type) {
  const std::string label = std::string(name(type.part)) + "_state." + std::to_string(type.layer);
  return {{graph_.add_value({.kind = ValueKind::Recurrent, .name = label, .recurrent = type})}};
}

Act GraphBuilder::result(TensorType type, RowSpace rows, std::string_view name) {
  return {{graph_.add_value({.kind = ValueKind::Result, .name = full_name(name), .type = type, .rows = rows})}};
}

void GraphBuilder::node(Op op, std::vector<std::uint32_t> in, std::vector<std::uint32_t> out) {
  graph_.add_node({.op = std::move(op),
                   .in = std::move(in),
                   .out = std::move(out),
                   .layer = static_cast<std::int16_t>(layer_),
                   .role = role_});
}

/// Results of `op` over these operands, named by `names`, as one appended node.
template <std::size_t N>
std::array<std::uint32_t, N> GraphBuilder::append(Op op, std::vector<std::uint32_t> in,
                                                  const std::array<std::string_view, N>& names) {
  const std::vector<std::uint32_t> ids = append_all(std::move(op), std::move(in), names);
  std::array<std::uint32_t, N> out{};
  std::copy_n(ids.begin(), N, out.begin());
  return out;
}

std::vector<std::uint32_t> GraphBuilder::append_all(Op op, std::vector<std::uint32_t> in,
                                                    std::span<const std::string_view> names) {
  std::vector<const ValueInfo*> operands;
  for (std::uint32_t id : in) operands.push_back(&graph_.info(id));
  const std::vector<ResultType> types = infer(op, operands, graph_.bucket());
  check(types.size() == names.size(), "a name for each result of " + std::string(llm::name(op)));
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < names.size(); ++i) out.push_back(result(types[i].type, types[i].rows, names[i]).id);
  node(std::move(op), std::move(in), out);
  return out;
}

Act GraphBuilder::append_one(Op op, std::vector<std::uint32_t> in, std::string_view name) {
  return {{append<1>(std::move(op), std::move(in), {name})[0]}};
}

Act GraphBuilder::embed(Weight table, Index tokens, std::string_view name) {
  return append_one(Embed{}, {table.id, tokens.id}, name);
}

Index GraphBuilder::hash_ids(Index tokens, Recurrent state, HashIds attributes, std::string_view name) {
  return {{append<1>(std::move(attributes), {tokens.id, state.id}, {name})[0]}};
}

template <class Op>
Act GraphBuilder::product(std::vector<std::uint32_t> in, const LinearOperand& operand) {
  in.push_back(operand.weight.id);
  if (operand.bias) in.push_back(operand.bias->id);
  if (operand.scale) in.push_back(operand.scale->id);
  return append_one(Op{{{.bias = operand.bias != nullptr, .scale = operand.scale != nullptr}}}, std::move(in),
                    operand.name);
}

Act GraphBuilder::linear(Act x, LinearOperand operand) { return product<Linear>({x.id}, operand); }

Act GraphBuilder::layer_norm(Act x, Weight w, const Weight* bias, float eps, std::string_view name) {
  std::vector<std::uint32_t> in{x.id, w.id};
  if (bias) in.push_back(bias->id);
  return append_one(LayerNorm{eps}, std::move(in), name);
}

Act GraphBuilder::unit_layer_norm(Act x, float eps, std::string_view name) {
  return append_one(LayerNorm{eps}, {x.id}, name);
}

Act GraphBuilder::rms_norm(Act x, Weight w, float eps, std::string_view name) {
  return append_one(RmsNorm{eps}, {x.id, w.id}, name);
}

Act GraphBuilder::unit_rms_norm(Act x, float eps, std::string_view name) {
  return append_one(RmsNorm{eps}, {x.id}, name);
}

Act GraphBuilder::glu(const Glu& attributes, Act gate, Act up, std::string_view name) {
  return append_one(attributes, {gate.id, up.id}, name);
}

Act GraphBuilder::activate(const Activate& attributes, Act x, std::string_view name) {
  return append_one(attributes, {x.id}, name);
}

Act GraphBuilder::rope_table(const RopeTable& attributes, Index positions, const Weight* factors,
                             std::string_view name) {
  std::vector<std::uint32_t> in{positions.id};
  if (factors) in.push_back(factors->id);
  return append_one(attributes, std::move(in), name);
}

Act GraphBuilder::position_scale(const PositionScale& attributes, Index positions, std::string_view name) {
  return append_one(attributes, {positions.id}, name);
}

Act GraphBuilder::rope(Act x, Act table, RopePairing pairing, std::string_view name) {
  return append_one(Rope{pairing, static_cast<int>(type(table).shape[0])}, {x.id, table.id}, name);
}

/// `in`: the rows, then the cache.
Cache GraphBuilder::append_rows(std::vector<std::uint32_t> in, std::string_view name) {
  std::vector<const ValueInfo*> operands;
  for (const std::uint32_t id : in) operands.push_back(&graph_.info(id));
  infer(KvAppend{}, operands, graph_.bucket());
  const CacheType type = operands.back()->cache;
  const Cache stored{{graph_.add_value({.kind = ValueKind::Cache, .name = full_name(name), .cache = type})}};
  node(KvAppend{}, std::move(in), {stored.id});
  return stored;
}

Cache GraphBuilder::kv_append(Act k, Act v, Cache cache, std::string_view name) {
  return append_rows({k.id, v.id, cache.id}, name);
}

Cache GraphBuilder::index_append(Act k, Cache index, std::string_view name) {
  return append_rows({k.id, index.id}, name);
}

Index GraphBuilder::select_keys(Act q, Act w, Cache index, int top_k, std::string_view name) {
  return {{append<1>(SelectKeys{.top_k = top_k}, {q.id, w.id, index.id}, {name})[0]}};
}

Index GraphBuilder::select_keys(Act q, Cache index, int top_k, std::string_view name) {
  return {{append<1>(SelectKeys{.top_k = top_k}, {q.id, index.id}, {name})[0]}};
}

Index GraphBuilder::choose_keys(Act q, Act w, Cache index, int top_k, std::string_view name) {
  const SelectKeys attributes{.top_k = top_k, .choice = SelectKeys::Choice::Keys};
  return {{append<1>(attributes, {q.id, w.id, index.id}, {name})[0]}};
}

Act GraphBuilder::compressed_attention(const CompressedOperands& o, const CompressedAttention& attributes,
                                       std::string_view name) {
  std::vector<std::uint32_t> in{o.q.id, o.cache.id, o.compressed.id, o.sinks.id};
  if (o.keys) in.push_back(o.keys->id);
  return append_one(attributes, std::move(in), name);
}

Index GraphBuilder::select_blocks(Act q, Cache index, const SelectBlocks& attributes, std::string_view name) {
  return {{append<1>(attributes, {q.id, index.id}, {name})[0]}};
}

Act GraphBuilder::selected_attention(Act q, Cache cache, Index positions, const Attention& attributes,
                                     std::string_view name) {
  return append_one(attributes, {q.id, cache.id, positions.id}, name);
}

Act GraphBuilder::attention(Act q, Cache cache, const Attention& attributes, std::string_view name,
                            const Weight* sinks) {
  std::vector<std::uint32_t> in{q.id, cache.id};
  if (sinks) in.push_back(sinks->id);
  return append_one(attributes, std::move(in), name);
}

Act GraphBuilder::short_conv(Act x, Weight w, Recurrent state, std::string_view name, const ShortConv& attributes,
                             const Weight* bias) {
  std::vector<std::uint32_t> in{x.id, w.id, state.id};
  if (bias) in.push_back(bias->id);
  return append_one(attributes, std::move(in), name);
}

Act GraphBuilder::window_mean(Act x, Recurrent state, int width, std::string_view name) {
  return append_one(WindowMean{width}, {x.id, state.id}, name);
}

Act GraphBuilder::compress(const CompressOperands& o, std::string_view name) {
  return append_one(Compress{}, {o.x.id, o.scores.id, o.places.id, o.positions.id, o.state.id}, name);
}

Act GraphBuilder::gated_delta(const DeltaOperands& o, const GatedDelta& attributes, std::string_view name) {
  return append_one(attributes, {o.qkv.id, o.alpha.id, o.beta.id, o.a.id, o.bias.id, o.state.id}, name);
}

Act GraphBuilder::selective_scan(const ScanOperands& o, const SelectiveScan& attributes, std::string_view name) {
  return append_one(attributes, {o.xbc.id, o.dt.id, o.a.id, o.d.id, o.bias.id, o.state.id}, name);
}

Act GraphBuilder::token_shift(Act x, Recurrent state, std::string_view name) {
  return append_one(TokenShift{}, {x.id, state.id}, name);
}

std::vector<Act> GraphBuilder::lerp(Act x, Act d, Weight w, const Act* more, std::span<const std::string> names) {
  std::vector<std::uint32_t> in{x.id, d.id, w.id};
  if (more) in.push_back(more->id);
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::vector<Act> results;
  for (const std::uint32_t id : append_all(Lerp{}, std::move(in), views)) results.push_back({{id}});
  return results;
}

Act GraphBuilder::wkv6(const Wkv6Operands& o, std::string_view name) {
  std::vector<std::uint32_t> in{o.r.id, o.k.id, o.v.id, o.w.id, o.state.id};
  if (o.first) in.push_back(o.first->id);
  return append_one(Wkv6{}, std::move(in), name);
}

WkvResults GraphBuilder::wkv7(const Wkv7Operands& o, std::string_view name) {
  std::vector<std::uint32_t> in{o.r.id, o.k.id, o.v.id, o.w.id, o.a.id, o.k_k.id, o.k_a.id, o.r_k.id, o.state.id};
  if (o.first) in.insert(in.end(), {o.first->v.id, o.first->mix.id});
  const std::string own = std::string(name) + "_own";
  const auto out = append<2>(Wkv7{}, std::move(in), {name, own});
  return {{{out[0]}}, {{out[1]}}};
}

Routes GraphBuilder::route(Act logits, const Route& attributes, std::string_view name, const Weight* bias) {
  const std::string weights = std::string(name) + "_weights";
  std::vector<std::uint32_t> in{logits.id};
  if (bias) in.push_back(bias->id);
  const auto out = append<2>(attributes, std::move(in), {name, weights});
  return {.expert = {{out[0]}}, .weight = {{out[1]}}};
}

Routes GraphBuilder::route_by_table(Act logits, Weight table, Index tokens, const Route& attributes,
                                    std::string_view name) {
  const std::string weights = std::string(name) + "_weights";
  const auto out = append<2>(attributes, {logits.id, table.id, tokens.id}, {name, weights});
  return {.expert = {{out[0]}}, .weight = {{out[1]}}};
}

Act GraphBuilder::expert_linear(Act x, Index expert, LinearOperand operand) {
  return product<ExpertLinear>({x.id, expert.id}, operand);
}

Act GraphBuilder::combine(Act x, Act weights, std::string_view name) {
  return append_one(Combine{}, {x.id, weights.id}, name);
}
Act GraphBuilder::stream_mix(Act x, Act w, std::string_view name) {
  return append_one(StreamMix{}, {x.id, w.id}, name);
}
Act GraphBuilder::stream_add(Act x, Act y, const Act* w, const StreamAdd& attributes, std::string_view name) {
  std::vector<std::uint32_t> in{x.id, y.id};
  if (w) in.push_back(w->id);
  return append_one(attributes, std::move(in), name);
}
StreamShares GraphBuilder::stream_weights(Act x, Weight scales, Weight biases, const StreamWeights& attributes,
                                          std::string_view name) {
  const std::string bare(name), read = bare + "_read", write = bare + "_write", mix = bare + "_mix";
  const auto out = append<3>(attributes, {x.id, scales.id, biases.id}, {read, write, mix});
  return {{{out[0]}}, {{out[1]}}, {{out[2]}}};
}
Act GraphBuilder::stream_read(Act x, Weight scale, Weight biases, const StreamWeights& attributes,
                              std::string_view name) {
  return append_one(attributes, {x.id, scale.id, biases.id}, name);
}
Act GraphBuilder::stream_mean(Act x, Act gate, std::string_view name) {
  return append_one(StreamMean{}, {x.id, gate.id}, name);
}
Act GraphBuilder::stream_blend(Act x, Act last, Weight w, const StreamBlend& attributes, std::string_view name) {
  return append_one(attributes, {x.id, last.id, w.id}, name);
}
Act GraphBuilder::match_gate(Act a, Act b, std::string_view name) {
  return append_one(MatchGate{}, {a.id, b.id}, name);
}
Act GraphBuilder::gaussian_top(Act x, float deviations, std::string_view name) {
  return append_one(GaussianTop{deviations}, {x.id}, name);
}
Act GraphBuilder::add(Act a, Act b, std::string_view name) { return append_one(Add{}, {a.id, b.id}, name); }
Act GraphBuilder::scale(Act x, float factor, std::string_view name) { return append_one(Scale{factor}, {x.id}, name); }
Act GraphBuilder::scale(Act x, Weight w, std::string_view name) { return append_one(Scale{}, {x.id, w.id}, name); }
Act GraphBuilder::soft_cap(Act x, float cap, std::string_view name) { return append_one(SoftCap{cap}, {x.id}, name); }
Act GraphBuilder::map(Act x, Map function, std::string_view name) {
  return append_one(std::move(function), {x.id}, name);
}
Act GraphBuilder::rows(Act x, Index out_rows, std::string_view name) {
  return append_one(Rows{}, {x.id, out_rows.id}, name);
}

Act GraphBuilder::slice(Act x, const Slice& attributes, std::string_view name) {
  return append_one(attributes, {x.id}, name);
}
Act GraphBuilder::concat(Act a, Act b, std::string_view name) { return append_one(Concat{}, {a.id, b.id}, name); }
Index GraphBuilder::head_ids(Act x, std::string_view name) { return {{append<1>(HeadIds{}, {x.id}, {name})[0]}}; }
Index GraphBuilder::group_ids(Index ids, int size, std::string_view name) {
  return {{append<1>(GroupIds{size}, {ids.id}, {name})[0]}};
}
Act GraphBuilder::silence(Act x, const Silence& attributes, std::string_view name) {
  return append_one(attributes, {x.id}, name);
}

Act GraphBuilder::reshape(Act x, Shape shape, std::string_view name) {
  check(type(x).shape.elements() == shape.elements(),
        "reshape of " + graph_.info(x).name + " changes the number of elements");
  const Act y = result({type(x).dtype, shape}, graph_.info(x).rows, name);
  node(Reshape{}, {x.id}, {y.id});
  return y;
}

Act GraphBuilder::split_heads(Act x, int heads, std::string_view name) {
  const Shape& s = type(x).shape;
  check(s.n_dims() == 2 && s[0] % heads == 0,
        "split_heads of " + graph_.info(x).name + ": width is not a multiple of the heads");
  return reshape(x, {s[0] / heads, heads, s[1]}, name);
}

Act GraphBuilder::flatten_heads(Act x, std::string_view name) {
  const Shape& s = type(x).shape;
  check(s.n_dims() == 3, "flatten_heads of " + graph_.info(x).name + ": not [head_dim, heads, rows]");
  return reshape(x, {s[0] * s[1], s[2]}, name);
}

Graph GraphBuilder::finish(std::span<const Act> outputs) && {
  std::vector<std::uint32_t> ids;
  for (const Act& a : outputs) ids.push_back(a.id);
  graph_.set_outputs(std::move(ids));
  verify(graph_);
  return std::move(graph_);
}

}  // namespace llm
