#include "model/net.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "tensor/dtype.h"

namespace llm {
namespace {

/// Other ways in which files keep what a tensor should hold, told apart so that the message can say what to do.
struct Alternative {
  std::string_view missing, found, problem;
};
constexpr Alternative kAlternatives[] = {
    {"attn_q.weight", "attn_qkv.weight", "fused attention projections are not supported for this architecture"},
    {"attn_qkv.weight", "ssm_in.weight",
     "projections in the order of the first converters; convert the model again to get them in order"},
    {"ffn_gate_exps.weight", "ffn_gate.0.weight",
     "experts in tensors of their own are an old form of the format; convert the model again to get stacked ones"},
};

void require_matrix_type(const GgufFile& file, const TensorInfo& t) {
  if (info(t.type.dtype).use != DTypeUse::Weight)
    file.fail(t, "has type " + std::string(name(t.type.dtype)) + ", which cannot be the type of a matrix");
}

std::string prefix_of(int layer) { return layer < 0 ? "" : "blk." + std::to_string(layer) + "."; }

}  // namespace

std::string Scope::full_name(std::string_view name) const { return prefix_of(weights_of_) + std::string(name); }

GraphBuilder& Scope::place() {
  net_.builder_.set_place(layer_, role_, prefix_of(layer_));
  return net_.builder_;
}

bool Scope::has(std::string_view name) const { return has_tensor(std::string(name) + ".weight"); }

std::int64_t Scope::rows(std::string_view name) const {
  const TensorInfo* t = net_.file_.tensors().find(full_name(name) + ".weight");
  return t ? t->type.shape[1] : 0;
}

bool Scope::has_tensor(std::string_view name) const { return net_.has(full_name(name)); }

Act Scope::linear(std::string_view name, Act x, std::int64_t n) {
  const Weight w = net_.matrix(full_name(name) + ".weight", {net_.builder_.type(x).shape[0], n});
  return net_.linear(*this, x, net_.product(*this, name, w, {n}, {1}));
}

Act Scope::unscaled_linear(std::string_view name, Act x, std::int64_t n) {
  const Weight w = net_.matrix(full_name(name) + ".weight", {net_.builder_.type(x).shape[0], n});
  return net_.linear(*this, x, {.weight = w, .bias = {}, .scale = {}, .name = name});
}

Act Scope::biased_linear(std::string_view name, Act x, std::int64_t n, std::string_view bias) {
  const Weight w = net_.matrix(full_name(name) + ".weight", {net_.builder_.type(x).shape[0], n});
  return net_.linear(*this, x,
                     {.weight = w, .bias = net_.f32(full_name(bias) + ".weight", {n}), .scale = {}, .name = name});
}

Act Scope::linear_rows(std::string_view name, std::string_view fused, std::int64_t all, Act x, RowRange rows) {
  const std::string full = full_name(fused);
  const Shape shape{net_.builder_.type(x).shape[0], all};
  const TensorInfo& matrix = net_.require(full + ".weight", shape);
  require_matrix_type(net_.file_, matrix);
  const Weight weight =
      net_.builder_.weight(rows_name(full + ".weight", rows), {matrix.type.dtype, {shape[0], rows.n}});
  const std::optional<Weight> scale = net_.optional_f32(full + ".scale", {1});
  net_.used_.insert(full + ".input_scale");  // as in product()
  std::optional<Weight> bias;
  if (net_.has(full + ".bias")) {
    net_.require_f32(full + ".bias", {all});
    bias = net_.builder_.weight(rows_name(full + ".bias", rows), {DType::F32, {rows.n}});
  }
  const auto multiply = [&](Act in, const GraphBuilder::LinearOperand& operand) { return place().linear(in, operand); };
  const auto pairs = net_.adaptations(full + ".weight", shape, &LoraAdapter::require_product, rows);
  const Act y = multiply(
      x, {.weight = weight, .bias = bias ? &*bias : nullptr, .name = name, .scale = scale ? &*scale : nullptr});
  return net_.adapted(
      name, y, pairs, [&](const auto& a) { return multiply(x, a); }, multiply);
}

Act Scope::head_linear(std::string_view name, Act x, std::int64_t n) {
  const Shape shape = net_.builder_.type(x).shape;
  const Weight w = expert_weight(name, shape[0], n, static_cast<int>(shape[1]));
  const Index ids = place().head_ids(x, std::string(name) + "_ids");
  return expert_linear(name, x, {.expert = ids, .weight = {}}, w);
}

Act Scope::group_linear(std::string_view name, Act x, std::int64_t n) {
  const Shape shape = net_.builder_.type(x).shape;
  const Weight w = net_.matrix_as(full_name(name) + ".weight", {shape[0], n, shape[1]}, {shape[0], n * shape[1]});
  const Index ids = place().head_ids(x, std::string(name) + "_ids");
  return expert_linear(name, x, {.expert = ids, .weight = {}}, w);
}

Act Scope::rms_norm(std::string_view name, Act x, float eps) {
  return rms_norm(name, x, eps, std::string(name) + ".weight");
}

Act Scope::rms_norm(std::string_view name, Act x, float eps, std::string_view tensor) {
  const Weight w = net_.f32(full_name(tensor), {net_.builder_.type(x).shape[0]});
  return place().rms_norm(x, w, eps, name);
}

Act Scope::unit_rms_norm(std::string_view name, Act x, float eps) { return place().unit_rms_norm(x, eps, name); }

Act Scope::layer_norm(std::string_view name, Act x, float eps) {
  const std::string full = full_name(name);
  const Shape shape{net_.builder_.type(x).shape[0]};
  const Weight w = net_.f32(full + ".weight", shape);
  const std::optional<Weight> bias = net_.optional_f32(full + ".bias", shape);
  return place().layer_norm(x, w, bias ? &*bias : nullptr, eps, name);
}

Act Scope::unit_layer_norm(std::string_view name, Act x, float eps) { return place().unit_layer_norm(x, eps, name); }

Act Scope::head_rms_norm(std::string_view name, Act x, float eps) {
  const Shape s = net_.builder_.type(x).shape;
  const Weight w = net_.f32_as(full_name(name) + ".weight", {s[0], s[1]}, {s[0] * s[1]});
  return place().rms_norm(x, w, eps, name);
}

Act Scope::head_layer_norm(std::string_view name, Act x, float eps) {
  const Shape s = net_.builder_.type(x).shape;
  const Shape by_heads{s[0], s[1]}, flat{s[0] * s[1]};
  const Weight w = net_.f32_as(full_name(name) + ".weight", by_heads, flat);
  std::optional<Weight> bias;
  if (const std::string b = full_name(name) + ".bias"; net_.has(b)) bias = net_.f32_as(b, by_heads, flat);
  return place().layer_norm(x, w, bias ? &*bias : nullptr, eps, name);
}

Shape Scope::shape(Value v) const { return net_.builder_.type(v).shape; }

Act Scope::split_heads(std::string_view name, Act x, int heads) { return place().split_heads(x, heads, name); }

Act Scope::flatten_heads(std::string_view name, Act x) { return place().flatten_heads(x, name); }

Act Scope::slice(std::string_view name, Act x, const Slice& attributes) { return place().slice(x, attributes, name); }

Act Scope::concat(std::string_view name, Act a, Act b) { return place().concat(a, b, name); }

Act Scope::rope(std::string_view name, Act x, const Rotary& rotary) {
  return place().rope(x, rotary.table, rotary.pairing, name);
}

CacheType Scope::cache_of(Act k, Act v) const {
  const Shape ks = net_.builder_.type(k).shape;
  const Shape vs = net_.builder_.type(v).shape;
  return {.layer = layer_,
          .kv_heads = static_cast<int>(ks[1]),
          .head_dim_k = static_cast<int>(ks[0]),
          .head_dim_v = static_cast<int>(vs[0])};
}

Cache Scope::kv_append(Act k, Act v) {
  const Cache cache = net_.builder_.cache(cache_of(k, v));
  return place().kv_append(k, v, cache, "kv");
}

Cache Scope::selected_kv_append(Act k, Act v) {
  CacheType type = cache_of(k, v);
  type.access = CacheType::Access::Selected;
  const Cache cache = net_.builder_.cache(type);
  return place().kv_append(k, v, cache, "kv");
}

Act Scope::selected_attention(Act q, Cache cache, Index positions, const Attention& attributes) {
  return place().selected_attention(q, cache, positions, attributes, "attn");
}

Cache Scope::index_append(Act k, int stride) {
  const Shape ks = net_.builder_.type(k).shape;
  const Cache index = net_.builder_.cache({.layer = layer_,
                                           .kv_heads = static_cast<int>(ks[1]),
                                           .head_dim_k = static_cast<int>(ks[0]),
                                           .part = CacheType::Part::Index,
                                           .stride = stride});
  return place().index_append(k, index, "index");
}

Index Scope::select_keys(Act q, Act w, Cache index, int top_k) {
  return place().select_keys(q, w, index, top_k, "selected");
}

Index Scope::select_keys(Act q, Cache index, int top_k) { return place().select_keys(q, index, top_k, "selected"); }

Index Scope::choose_keys(Act q, Act w, Cache index, int top_k) {
  return place().choose_keys(q, w, index, top_k, "selected");
}

Cache Scope::compressed_append(Act k, int stride) {
  const Shape ks = net_.builder_.type(k).shape;
  const Cache cache = net_.builder_.cache({.layer = layer_,
                                           .kv_heads = static_cast<int>(ks[1]),
                                           .head_dim_k = static_cast<int>(ks[0]),
                                           .part = CacheType::Part::Compressed,
                                           .access = CacheType::Access::Selected,
                                           .stride = stride});
  return place().index_append(k, cache, "compressed");
}

Act Scope::compressed_attention(Act q, Cache cache, Cache compressed, const CompressedAttention& attributes,
                                std::string_view sinks, const Index* keys) {
  const Weight w = net_.f32(full_name(sinks) + ".weight", {net_.builder_.type(q).shape[1]});
  return place().compressed_attention({q, cache, compressed, w, keys}, attributes, "attn");
}

Index Scope::select_blocks(Act q, Cache index, const SelectBlocks& attributes) {
  return place().select_blocks(q, index, attributes, "selected");
}

Act Scope::attention(Act q, Cache cache, const Attention& attributes) {
  return place().attention(q, cache, attributes, "attn");
}

Act Scope::attention(Act q, Cache cache, const Attention& attributes, std::string_view sinks) {
  const Weight w = net_.f32(full_name(sinks) + ".weight", {net_.builder_.type(q).shape[1]});
  return place().attention(q, cache, attributes, "attn", &w);
}

Act Scope::short_conv(std::string_view name, Act x, int width, const ShortConv& attributes, RecurrentType::Part part) {
  const std::int64_t channels = net_.builder_.type(x).shape[0];
  const Weight w = net_.floats_as(full_name(name) + ".weight", {width, channels}, {width, 1, channels});
  const Recurrent state =
      net_.builder_.recurrent({layer_, part, {channels, std::int64_t{width - 1} * attributes.dilation}});
  const std::optional<Weight> bias = net_.optional_f32(full_name(name) + ".bias", {channels});
  return place().short_conv(x, w, state, name, attributes, bias ? &*bias : nullptr);
}

Act Scope::window_mean(std::string_view name, Act x, int width) {
  const std::int64_t channels = net_.builder_.type(x).shape[0];
  const Recurrent state = net_.builder_.recurrent({layer_, RecurrentType::Part::Mean, {channels, width - 1}});
  return place().window_mean(x, state, width, name);
}

Act Scope::compress(std::string_view name, Act x, Act scores, std::string_view places, std::int64_t n, int stride,
                    RecurrentType::Part part) {
  const std::int64_t width = net_.builder_.type(x).shape[0];
  const Weight w = net_.matrix(full_name(places) + ".weight", {width, stride});
  const Index positions = net_.builder_.step_input(StepInput::Positions);
  const Recurrent state = net_.builder_.recurrent({layer_, part, {n, 3, width / n}});
  return place().compress({x, scores, w, positions, state}, name);
}

Act Scope::embed_hashed(std::string_view name, std::int64_t n, Index tokens, const HashIds& ids) {
  const std::string target = std::string(name) + ".weight";
  std::int64_t rows = 0;
  for (std::size_t h = 0; h < ids.sizes.size(); ++h) rows = std::max(rows, std::int64_t{ids.offsets[h]} + ids.sizes[h]);
  const TensorInfo* const t = net_.file_.tensors().find(target);
  if (t != nullptr && t->type.shape.n_dims() == 2) rows = std::max(rows, t->type.shape[1]);  // some are padded
  const Weight table = net_.matrix(target, {n, rows});
  const Recurrent state = net_.builder_.recurrent(
      {layer_, RecurrentType::Part::Hash, {static_cast<std::int64_t>(ids.multipliers.size()) - 1}});
  const Index rows_of = place().hash_ids(tokens, state, ids, std::string(name) + "_ids");
  return place().embed(table, rows_of, name);
}

Act Scope::gated_delta(Act qkv, Act alpha, Act beta, const GatedDelta& attributes, Shape state) {
  const Weight a = net_.f32_as(full_name("ssm_a"), {state[2]}, {1, state[2]});
  const Weight bias = net_.f32(full_name("ssm_dt.bias"), {net_.builder_.type(alpha).shape[0]});
  const Recurrent memory = net_.builder_.recurrent({layer_, RecurrentType::Part::Delta, state});
  return place().gated_delta({qkv, alpha, beta, a, bias, memory}, attributes, "delta");
}

Act Scope::selective_scan(Act xbc, Act dt, const SelectiveScan& attributes, Shape state) {
  const std::int64_t steps = net_.builder_.type(dt).shape[0];
  const bool of_elements = steps != state[2];
  const Shape of_heads{1, steps}, flat{steps};
  const Weight a =
      of_elements ? net_.f32(full_name("ssm_a"), {state[1], steps}) : net_.f32_as(full_name("ssm_a"), of_heads, flat);
  const Weight d = of_elements ? net_.f32(full_name("ssm_d"), flat) : net_.f32_as(full_name("ssm_d"), of_heads, flat);
  const Weight bias = net_.f32(full_name("ssm_dt.bias"), {steps});
  const Recurrent memory = net_.builder_.recurrent({layer_, RecurrentType::Part::Scan, state});
  return place().selective_scan({xbc, dt, a, d, bias, memory}, attributes, "scan");
}

Act Scope::token_shift(std::string_view name, Act x, RecurrentType::Part part) {
  const Recurrent state = net_.builder_.recurrent({layer_, part, {net_.builder_.type(x).shape[0], 1}});
  return place().token_shift(x, state, name);
}

std::vector<Act> Scope::lerp(std::span<const std::string> names, Act x, Act d, std::string_view weight,
                             const Act* more) {
  const std::int64_t n = net_.builder_.type(x).shape[0], m = std::ssize(names);
  const Weight w = net_.f32_as(full_name(weight) + ".weight", {n, m}, {n, 1, 1, m});
  return place().lerp(x, d, w, more, names);
}

Act Scope::wkv6(Act r, Act k, Act v, Act w, std::int64_t n, std::string_view first) {
  const std::int64_t heads = net_.builder_.type(r).shape[0] / n;
  std::optional<Weight> weight;
  if (!first.empty()) weight = net_.f32(full_name(first) + ".weight", {n, heads});
  const Recurrent state = net_.builder_.recurrent({layer_, RecurrentType::Part::Wkv, {n, n, heads}});
  return place().wkv6({r, k, v, w, state, weight ? &*weight : nullptr}, "wkv");
}

WkvResults Scope::wkv7(const Wkv7Operands& o, std::int64_t n) {
  const std::int64_t width = net_.builder_.type(o.r).shape[0];
  const auto weight = [&](const char* name) { return net_.f32(full_name(name) + ".weight", {width}); };
  const Weight k_k = weight("time_mix_k_k"), k_a = weight("time_mix_k_a"), r_k = weight("time_mix_r_k");
  const Recurrent state = net_.builder_.recurrent({layer_, RecurrentType::Part::Wkv, {n, n, width / n}});
  return place().wkv7({o.r, o.k, o.v, o.w, o.a, k_k, k_a, r_k, state, o.first}, "wkv");
}

Act Scope::glu(Activation activation, Act gate, Act up, std::string_view name) {
  return place().glu(activation, gate, up, name);
}

Act Scope::glu(const Glu& attributes, Act gate, Act up, std::string_view name) {
  return place().glu(attributes, gate, up, name);
}

Act Scope::activate(std::string_view name, const Activate& attributes, Act x) {
  return place().activate(attributes, x, name);
}

Act Scope::stream_mix(std::string_view name, Act x, Act w) { return place().stream_mix(x, w, name); }

Act Scope::stream_add(std::string_view name, Act x, Act y, const StreamAdd& attributes) {
  return place().stream_add(x, y, nullptr, attributes, name);
}

Act Scope::stream_add(std::string_view name, Act x, Act y, Act w, const StreamAdd& attributes) {
  return place().stream_add(x, y, &w, attributes, name);
}

StreamShares Scope::stream_weights(std::string_view name, Act x, std::string_view scales, std::string_view biases,
                                   const StreamWeights& attributes) {
  const Weight s = net_.f32(full_name(scales) + ".weight", {3});
  const Weight b = net_.f32(full_name(biases) + ".weight", {net_.builder_.type(x).shape[0]});
  return place().stream_weights(x, s, b, attributes, name);
}

Act Scope::stream_read(std::string_view name, Act x, std::string_view scale, std::string_view biases,
                       const StreamWeights& attributes) {
  const Weight s = net_.f32(full_name(scale) + ".weight", {1});
  const Weight b = net_.f32(full_name(biases) + ".weight", {net_.builder_.type(x).shape[0]});
  return place().stream_read(x, s, b, attributes, name);
}

Act Scope::stream_mean(std::string_view name, Act x, Act gate) { return place().stream_mean(x, gate, name); }

Act Scope::match_gate(std::string_view name, Act a, Act b) { return place().match_gate(a, b, name); }

Act Scope::stream_blend(std::string_view name, Act x, Act last, const StreamBlend& attributes, std::string_view w) {
  const Weight weights = net_.f32(full_name(w) + ".weight", {net_.builder_.type(last).shape[0]});
  return place().stream_blend(x, last, weights, attributes, name);
}

Act Scope::gaussian_top(std::string_view name, Act x, float deviations) {
  return place().gaussian_top(x, deviations, name);
}

Act Scope::add(std::string_view name, Act a, Act b) { return place().add(a, b, name); }

Act Scope::scale(std::string_view name, Act x, float factor) { return place().scale(x, factor, name); }

Act Scope::scale(std::string_view name, Act x, std::string_view weight) {
  const std::optional<Weight> w = net_.optional_f32(full_name(weight) + ".weight", {1});
  return w ? place().scale(x, *w, name) : x;
}

Act Scope::scale_elements(std::string_view name, Act x, std::string_view weight) {
  return place().scale(x, net_.f32(full_name(weight) + ".weight", {net_.builder_.type(x).shape[0]}), name);
}

Act Scope::scale_heads(std::string_view name, Act x, std::string_view weight) {
  return place().scale(x, net_.f32(full_name(weight) + ".weight", {1, net_.builder_.type(x).shape[1]}), name);
}

Act Scope::soft_cap(std::string_view name, Act x, float cap) { return place().soft_cap(x, cap, name); }

Routes Scope::route(std::string_view name, Act logits, const Route& attributes) {
  return place().route(logits, attributes, name);
}

Routes Scope::route(std::string_view name, Act logits, const Route& attributes, std::string_view bias) {
  const std::string bare = full_name(bias), name_of_bias = has_tensor(bias) ? bare : bare + ".bias";
  const std::optional<Weight> b = net_.optional_f32(name_of_bias, {net_.builder_.type(logits).shape[0]});
  return place().route(logits, attributes, name, b ? &*b : nullptr);
}

Routes Scope::route_by_table(std::string_view name, Act logits, const Route& attributes, std::string_view table,
                             std::int64_t vocab) {
  const Weight ids = net_.table_of_ids(full_name(table) + ".weight", {attributes.top_k, vocab});
  const Index tokens = net_.builder_.step_input(StepInput::Tokens);
  return place().route_by_table(logits, ids, tokens, attributes, name);
}

Weight Scope::expert_weight(std::string_view name, std::int64_t k, std::int64_t n, int experts) {
  return net_.matrix(full_name(name) + ".weight", {k, n, experts});
}

Act Scope::expert_linear(std::string_view name, Act x, const Routes& routes, Weight weight) {
  const Shape w = net_.builder_.type(weight).shape;
  const Net::Product p = net_.product(*this, name, weight, {w[1], w[2]}, {w[2]});
  const auto multiply = [&](Act in, const GraphBuilder::LinearOperand& operand) {
    return place().expert_linear(in, routes.expert, operand);
  };
  const auto pairs = net_.adaptations(full_name(name) + ".weight", w, &LoraAdapter::require_product);
  return net_.adapted(
      name, multiply(x, p.operand()), pairs, [&](const auto& a) { return multiply(x, a); }, multiply);
}

Act Scope::combine(std::string_view name, Act x, const Routes& routes) {
  return place().combine(x, routes.weight, name);
}

Index Scope::group_ids(std::string_view name, Index ids, int size) { return place().group_ids(ids, size, name); }

Act Scope::silence(std::string_view name, Act x, const Silence& attributes) {
  return place().silence(x, attributes, name);
}

Net::Net(const GgufFile& file, Bucket bucket, std::span<const LoraAdapter> adapters, Outputs outputs)
    : file_(file), builder_(bucket), adapters_(adapters), outputs_(outputs) {}

Step Net::step() {
  return {.tokens = builder_.step_input(StepInput::Tokens),
          .positions = builder_.step_input(StepInput::Positions),
          .out_rows = builder_.step_input(StepInput::OutRows)};
}

Rotary Net::rotary(const RopeTable& attributes, RopePairing pairing, std::string_view factors, std::string_view name) {
  return rotary(attributes, pairing, factors, attributes.n_rot / 2, name);
}

Rotary Net::rotary(const RopeTable& attributes, RopePairing pairing, std::string_view factors, std::int64_t n_factors,
                   std::string_view name) {
  std::optional<Weight> weight;
  if (!factors.empty()) weight = optional_f32(std::string(factors) + ".weight", {n_factors});
  const Index positions = builder_.step_input(StepInput::Positions);
  GraphBuilder& builder = top(Role::Attention).place();
  return {.table = builder.rope_table(attributes, positions, weight ? &*weight : nullptr, name), .pairing = pairing};
}

Act Net::position_scale(const PositionScale& attributes) {
  const Index positions = builder_.step_input(StepInput::Positions);
  return top(Role::Attention).place().position_scale(attributes, positions, "position_scale");
}

Act Net::embed(std::string_view name, Index tokens, std::int64_t vocab, std::int64_t n_embd, std::string_view tied_to) {
  const std::string own = std::string(name) + ".weight";
  const std::string target = tied_to.empty() || has(own) ? own : std::string(tied_to) + ".weight";
  const Weight table = matrix(target, {n_embd, vocab});
  const auto pairs = adaptations(target, {n_embd, vocab}, &LoraAdapter::require_table);
  GraphBuilder& builder = top(Role::Embed).place();
  return adapted(
      name, builder.embed(table, tokens, name), pairs,
      [&](const auto& a) { return builder.embed(a.weight, tokens, a.name); },
      [&](Act low, const auto& b) { return builder.linear(low, b); });
}

Act Net::rows(Act x, Index out_rows) { return top(Role::Head).place().rows(x, out_rows, "output_rows"); }

Act Net::head(std::string_view name, Act x, std::int64_t vocab, std::string_view tied_to) {
  const std::string own = std::string(name) + ".weight";
  const Weight w = matrix(has(own) ? own : std::string(tied_to) + ".weight", {builder_.type(x).shape[0], vocab});
  Scope scope = top(Role::Head);
  return linear(scope, x, product(scope, name, w, {vocab}, {1}));
}

void Net::give_hidden(Act x) {
  if (gives_hidden()) hidden_ = x;
}

Graph Net::finish(Act logits) && {
  std::vector<Act> outputs{logits};
  if (gives_hidden()) {
    check(hidden_.has_value(), "a graph that gives what its head reads");
    outputs.push_back(*hidden_);
  }
  return std::move(builder_).finish(outputs);
}

void Net::require_adapters_used() const {
  for (const LoraAdapter& adapter : adapters_) {
    for (const auto& [target, pair] : adapter.pairs()) {
      if (adapted_.contains(target)) continue;
      // Without a place in the file, which is sound: it belongs to another model.
      throw Error(ErrorKind::Model,
                  ErrorParts{.file = adapter.file().metadata().file(),
                             .subject = tensor_subject(pair.a->name),
                             .problem = has(target) ? "the model has no product with " + escaped(target) +
                                                          ", which is all that an adapter can change"
                                                    : "the model has no tensor " + escaped(target) +
                                                          "; an adapter fits the model that it was trained on"});
    }
  }
}

std::vector<std::string> Net::unused(std::span<const std::string> ignorable) const {
  std::vector<std::string> out;
  for (const TensorInfo& t : file_.tensors().all()) {
    std::string name(t.name);
    const auto matches = [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
    if (!used_.contains(name) && std::ranges::none_of(ignorable, matches)) out.push_back(std::move(name));
  }
  return out;
}

Weight Net::matrix(const std::string& name, Shape shape) {
  const TensorInfo& t = require(name, shape);
  require_matrix_type(file_, t);
  return builder_.weight(name, {t.type.dtype, shape});
}

Weight Net::matrix_as(const std::string& name, const Shape& shape, const Shape& in_file) {
  const TensorInfo& t = require(name, in_file);
  require_matrix_type(file_, t);
  return builder_.weight(name, {t.type.dtype, shape});
}

Weight Net::table_of_ids(const std::string& name, const Shape& shape) {
  const TensorInfo& t = require(name, shape);
  if (t.type.dtype != DType::I32) file_.fail(t, "has type " + std::string(llm::name(t.type.dtype)) + ", needs I32");
  return builder_.weight(name, {DType::I32, shape});
}

void Net::require_f32(const std::string& name, const Shape& shape) {
  const TensorInfo& t = require(name, shape);
  if (t.type.dtype != DType::F32) file_.fail(t, "has type " + std::string(llm::name(t.type.dtype)) + ", needs F32");
}

Weight Net::f32(const std::string& name, const Shape& shape) {
  require_f32(name, shape);
  return builder_.weight(name, {DType::F32, shape});
}

Weight Net::f32_as(const std::string& name, const Shape& shape, const Shape& also) {
  const TensorInfo* t = file_.tensors().find(name);
  require_f32(name, t != nullptr && t->type.shape == also ? also : shape);
  return builder_.weight(name, {DType::F32, shape});
}

Weight Net::floats_as(const std::string& name, const Shape& shape, const Shape& also) {
  const TensorInfo* t = file_.tensors().find(name);
  if (t == nullptr || (t->type.dtype != DType::F16 && t->type.dtype != DType::BF16)) return f32_as(name, shape, also);
  require(name, t->type.shape == also ? also : shape);
  return builder_.weight(name, {t->type.dtype, shape});
}

std::optional<Weight> Net::optional_f32(const std::string& name, const Shape& shape) {
  if (!has(name)) return std::nullopt;
  return f32(name, shape);
}

Net::Product Net::product(const Scope& scope, std::string_view name, Weight weight, const Shape& bias,
                          const Shape& scale) {
  const std::string full = scope.full_name(name);
  // For quantising activations by a fixed scale; here each block of them gets its own.
  used_.insert(full + ".input_scale");
  return {.weight = weight,
          .bias = optional_f32(full + ".bias", bias),
          .scale = optional_f32(full + ".scale", scale),
          .name = name};
}

Act Net::linear(Scope& scope, Act x, const Product& p) {
  const auto multiply = [&](Act in, const GraphBuilder::LinearOperand& operand) {
    return scope.place().linear(in, operand);
  };
  const Shape weight = builder_.type(p.weight).shape;  // not the graph's own: weights of adapters move what it holds
  const auto pairs = adaptations(scope.full_name(p.name) + ".weight", weight, &LoraAdapter::require_product);
  return adapted(
      p.name, multiply(x, p.operand()), pairs, [&](const auto& a) { return multiply(x, a); }, multiply);
}

std::vector<Net::Adaptation> Net::adaptations(const std::string& target, const Shape& weight,
                                              LoraAdapter::ShapeRule require, std::optional<RowRange> rows) {
  std::vector<Adaptation> list;
  adapted_.insert(target);
  for (const LoraAdapter& adapter : adapters_) {
    const LoraAdapter::Pair* pair = adapter.find(target);
    if (pair == nullptr) continue;
    const LoraAdapter::Shapes shapes = (adapter.*require)(target, *pair, weight);
    for (const TensorInfo* t : {pair->a, pair->b}) require_matrix_type(adapter.file(), *t);
    const auto declare = [&](const TensorInfo& t, const Shape& shape) {
      return builder_.weight(adapter.graph_name(t), {t.type.dtype, shape});
    };
    const float factor = adapter.factor(*pair);
    if (factor == 0) continue;
    const Weight a = declare(*pair->a, shapes.a);
    const Weight b = rows ? builder_.weight(rows_name(adapter.graph_name(*pair->b), *rows),
                                            {pair->b->type.dtype, {shapes.b[0], rows->n}})
                          : declare(*pair->b, shapes.b);
    list.push_back({a, b, factor, adapter.suffix()});
  }
  return list;
}

template <class Down, class Up>
Act Net::adapted(std::string_view name, Act y, std::span<const Adaptation> pairs, const Down& down, const Up& up) {
  for (const Adaptation& p : pairs) {
    const std::string lora = std::string(name) + ".lora", a = lora + "_a" + p.suffix, b = lora + "_b" + p.suffix;
    Act low = down(GraphBuilder::LinearOperand{.weight = p.a, .name = a});
    // Where it is thinnest.
    if (p.factor != 1) low = builder_.scale(low, p.factor, lora + "_scaled" + p.suffix);
    y = builder_.add(y, up(low, GraphBuilder::LinearOperand{.weight = p.b, .name = b}), lora + p.suffix);
  }
  return y;
}

const TensorInfo& Net::require(const std::string& name, const Shape& shape) {
  const TensorInfo* t = file_.tensors().find(name);
  if (!t) fail_missing(name);
  if (t->type.shape != shape) file_.fail(*t, "has shape " + to_string(t->type.shape) + ", needs " + to_string(shape));
  used_.insert(name);
  return *t;
}

void Net::fail_missing(const std::string& name) const {
  for (const Alternative& a : kAlternatives) {
    if (!name.ends_with(a.missing)) continue;
    const std::string other = name.substr(0, name.size() - a.missing.size()) + std::string(a.found);
    if (has(other)) file_.fail_missing(name, "is missing, the file has \"" + other + "\": " + std::string(a.problem));
  }
  file_.fail_missing(
      name, name.starts_with("blk.") ? "is missing, but block_count says that the file has this layer" : "is missing");
}

}  // namespace llm
