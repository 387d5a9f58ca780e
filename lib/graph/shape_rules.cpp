#include "graph/shape_rules.h"

#include <algorithm>

#include "base/error.h"

namespace llm {
namespace {

using Operands = std::span<const ValueInfo* const>;

class Rule {
 public:
  Rule(const Op& op, Operands in, const Bucket& bucket) : op_(op), in_(in), bucket_(bucket) {}

  std::vector<ResultType> operator()(const Embed&) const {
    count(2);
    matrix(0);
    index(1);
    Shape shape{in_[0]->type.shape[0]};
    for (int i = 0; i < in_[1]->type.shape.n_dims(); ++i) shape.push_back(in_[1]->type.shape[i]);
    return act(shape, in_[1]->rows);
  }
  std::vector<ResultType> operator()(const HashIds& a) const {
    count(2);
    index(0);
    const Shape& tokens = in_[0]->type.shape;
    need(tokens.n_dims() == 1 && in_[0]->rows == RowSpace::Tokens, 0, "is not the step's tokens");
    const auto n = std::ssize(a.multipliers), heads = std::ssize(a.sizes);
    need(n >= 2 && n <= kMostMultipliers, 0,
         "is hashed with 2 to " + std::to_string(kMostMultipliers) + " multipliers");
    need(heads >= 1 && heads % (n - 1) == 0 && std::ssize(a.offsets) == heads, 0,
         "has as many heads for each number of tokens, each with its offset");
    need(std::ranges::all_of(a.sizes, [](std::int32_t size) { return size >= 1; }), 0, "has heads without ids");
    recurrent(1, RecurrentType::Part::Hash, {n - 1});
    return {{ValueKind::Result, {DType::I32, {heads, tokens[0]}}, in_[0]->rows}};
  }
  std::vector<ResultType> operator()(const Linear& a) const {
    count_products(1, a.products);
    f32(0);
    const Shape& x = in_[0]->type.shape;
    need(x.n_dims() == 2, 0, "needs [k, rows]");
    std::vector<ResultType> out;
    for (const ProductOperands& p : product_operands(op_)) {
      matrix(p.weight);
      const Shape& w = in_[p.weight]->type.shape;
      need(w[0] == x[0], p.weight, "its rows are not as long as the input's");
      if (p.bias != 0) f32_weight(p.bias, {w[1]});
      if (p.scale != 0) f32_weight(p.scale, {1});
      out.push_back({ValueKind::Result, {DType::F32, {w[1], x[1]}}, in_[0]->rows});
    }
    return out;
  }
  std::vector<ResultType> operator()(const LayerNorm&) const {
    need(in_.size() >= 1 && in_.size() <= 3, 0, "needs at most a weight and a bias");
    f32(0);
    if (in_.size() > 1) norm_weight(1);
    if (in_.size() == 3) f32_weight(2, in_[1]->type.shape);
    return same(0);
  }
  std::vector<ResultType> operator()(const RmsNorm&) const {
    need(in_.size() == 1 || in_.size() == 2, 0, "needs at most one weight");
    f32(0);
    if (in_.size() == 2) norm_weight(1);
    return same(0);
  }
  std::vector<ResultType> operator()(const AddRmsNorm&) const {
    count(3);
    alike(0, 1);
    vector(2, in_[0]->type.shape[0]);
    return {same(0)[0], same(0)[0]};
  }
  std::vector<ResultType> operator()(const Glu& a) const {
    count(2);
    const Shape& gate = in_[0]->type.shape;
    const bool may_be_limited = a.activation == Activation::Silu && gate == in_[1]->type.shape;
    need(a.limit == 0 || (a.limit > 0 && may_be_limited), 0, "is limited where it is silu and has a gate per element");
    need((a.limit > 0) == (a.gate_limit > 0), 0, "has a limit of its gate with one of the rest");
    if (gate[0] == 1 && in_[1]->type.shape[0] != 1) {
      f32(0);
      f32(1);
      const Shape& up = in_[1]->type.shape;
      need(gate == Shape({1, up[1], up[2]}) && in_[0]->rows == in_[1]->rows, 1, "has other rows than " + in_[0]->name);
    } else {
      alike(0, 1);
    }
    return same(1);
  }
  std::vector<ResultType> operator()(const Activate& a) const {
    need(a.function != Nonlinearity::Clamp || a.limit > 0, 0, "is clamped to a limit above 0");
    return unary();
  }
  std::vector<ResultType> operator()(const RopeTable& a) const {
    need(in_.size() == 1 || in_.size() == 2, 0, "needs positions and at most one tensor of factors");
    index(0);
    if (in_.size() == 2) vector(1, std::max(in_[1]->type.shape[0], std::int64_t{a.n_rot / 2}));
    return act({a.n_rot, in_[0]->type.shape[0]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const PositionScale& a) const {
    count(1);
    index(0);
    need(a.length >= 1 && a.offset >= 0, 0, "is scaled by lengths of at least 1 and an offset that is not negative");
    return act({1, in_[0]->type.shape[0]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const Rope& a) const {
    count(2);
    f32(0);
    f32(1);
    need(in_[0]->type.shape.n_dims() == 3, 0, "needs [head_dim, heads, tokens]");
    need(a.n_rot <= in_[0]->type.shape[0] && a.n_rot % 2 == 0, 0, "n_rot must be even and at most head_dim");
    need(in_[1]->type.shape == Shape({a.n_rot, in_[0]->type.shape[2]}), 1, "needs [n_rot, tokens]");
    return same(0);
  }
  std::vector<ResultType> operator()(const KvAppend&) const {
    need(in_.size() == 2 || in_.size() == 3, 0, "needs a cache, and values where it is not of keys alone");
    const CacheType& c = cache(in_.size() - 1);
    const bool alone = c.keys_alone();
    need(alone == (in_.size() == 2) && alone == (c.head_dim_v == 0), in_.size() - 1,
         "has values if it is not of keys alone");
    const std::int64_t tokens = in_[0]->type.shape[2];
    need(in_[0]->type.shape == Shape({c.head_dim_k, c.kv_heads, tokens}), 0, "is not [head_dim_k, kv_heads, tokens]");
    need(alone || in_[1]->type.shape == Shape({c.head_dim_v, c.kv_heads, tokens}), 1,
         "is not [head_dim_v, kv_heads, tokens]");
    const bool in_blocks = c.stride > 0 && (kBlockPositions % c.stride == 0 ||
                                            (c.part == CacheType::Part::Compressed && c.stride % kBlockPositions == 0));
    need(c.stride == 1 || (alone && in_blocks), in_.size() - 1,
         "is not of keys alone with a stride that divides a block, or is made of blocks where keys are compressed");
    return {{ValueKind::Cache, {}, RowSpace::None}};
  }
  std::vector<ResultType> operator()(const SelectKeys& a) const {
    need(in_.size() == 2 || in_.size() == 3, 0, "needs an index and at most one operand of weights");
    const std::size_t last = in_.size() - 1;
    for (std::size_t i = 0; i < last; ++i) tokens(i);
    const CacheType& c = cache(last);
    need(c.part == CacheType::Part::Index && c.kv_heads == 1, last, "is not an index of one head");
    const Shape& q = in_[0]->type.shape;
    need(q.n_dims() == 3 && q[0] == c.head_dim_k, 0, "is not [head_dim, heads, tokens] of the index");
    need(last == 1 || in_[1]->type.shape == Shape({q[1], q[2]}), 1, "is not [heads, tokens]");
    if (a.choice == SelectKeys::Choice::Keys)
      need(a.top_k >= 1, 0, "top_k must be at least 1");
    else
      need(a.top_k >= 2 * c.stride - 1 && (a.top_k + 1) % c.stride == 0, 0,
           "top_k must be at least 1, and one less than a multiple of the index's stride");
    return {{ValueKind::Result, {DType::I32, {a.top_k, q[2]}}, in_[0]->rows}};
  }
  std::vector<ResultType> operator()(const SelectBlocks& a) const {
    count(2);
    tokens(0);
    const CacheType& c = cache(1);
    need(c.part == CacheType::Part::Index && c.kv_heads == 1 && c.stride == 1, 1, "is not an index of one head");
    const Shape& q = in_[0]->type.shape;
    need(q.n_dims() == 3 && q[0] == c.head_dim_k, 0, "is not [head_dim, heads, tokens] of the index");
    need(a.block >= 1 && a.local >= 1 && a.top_k >= a.block * a.local && a.top_k % a.block == 0, 0,
         "top_k must be a multiple of the block, no less than the last blocks");
    return {{ValueKind::Result, {DType::I32, {a.top_k, q[1], q[2]}}, in_[0]->rows}};
  }
  std::vector<ResultType> operator()(const Attention& a) const {
    need(in_.size() == 2 || in_.size() == 3, 0, "needs a cache and at most one tensor of sinks or positions");
    need(a.soft_cap >= 0, 0, "soft_cap must not be negative");
    need(a.max_bias >= 0, 0, "max_bias must not be negative");
    need(a.window.length >= 0, 0, "a window must not be negative");
    f32(0);
    const CacheType& c = cache(1);
    const Shape& q = in_[0]->type.shape;
    need(q.n_dims() == 3 && q[0] == c.head_dim_k, 0, "is not [head_dim_k, heads, tokens]");
    need(q[1] % c.kv_heads == 0, 0, "heads are not a multiple of the cache's");
    need(c.part == CacheType::Part::KeysValues, 1, "has no values");
    if (c.access == CacheType::Access::Selected) {
      selection(a, q);
    } else if (in_.size() == 3) {
      f32_weight(2, {q[1]});
    }
    return act({c.head_dim_v, q[1], q[2]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const CompressedAttention& a) const {
    need(in_.size() == 4 || in_.size() == 5, 0, "needs two caches, sinks, and at most one operand of keys");
    need(a.window.length >= 0, 0, "a window must not be negative");
    f32(0);
    const CacheType &c = cache(1), &compressed = cache(2);
    const Shape& q = in_[0]->type.shape;
    need(c.part == CacheType::Part::KeysValues && c.access == CacheType::Access::Whole && c.kv_heads == 1 &&
             c.head_dim_k == c.head_dim_v,
         1, "is not one head of keys and values of one size");
    need(compressed.part == CacheType::Part::Compressed && compressed.access == CacheType::Access::Selected &&
             compressed.kv_heads == 1 && compressed.head_dim_k == c.head_dim_k,
         2, "is not one head of compressed keys as long as the others");
    need(q.n_dims() == 3 && q[0] == c.head_dim_k, 0, "is not [head_dim, heads, tokens]");
    f32_weight(3, {q[1]});
    if (in_.size() == 5) chosen(4, q[2]);
    return same(0);
  }
  std::vector<ResultType> operator()(const Compress&) const {
    count(5);
    tokens(0);
    tokens(1);
    const Shape& x = in_[0]->type.shape;
    need(in_[4]->kind == ValueKind::Recurrent && in_[4]->recurrent.shape.n_dims() == 3, 4, "is not a state");
    const RecurrentType& state = in_[4]->recurrent;
    const std::int64_t n = state.shape[0], parts = state.shape[2];
    need(parts == 1 || parts == 2, 4, "has other than one or two parts");
    const bool index = state.part == RecurrentType::Part::CompressIndex;
    recurrent(4, index ? RecurrentType::Part::CompressIndex : RecurrentType::Part::Compress, {n, 3, parts});
    need(x == Shape({parts * n, x[1]}) && in_[1]->type.shape == x, 0, "is not [parts * n, tokens], as the scores are");
    matrix(2);
    const Shape& places = in_[2]->type.shape;
    need(places[0] == x[0] && places[1] >= 2, 2, "has not rows as long as the input's for at least 2 places");
    index_of_tokens(3);
    return act({n, x[1]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const ShortConv& a) const {
    need(in_.size() == 3 || in_.size() == 4, 0, "needs a weight, a state and at most one bias");
    need(a.activation == Activation::Silu || a.activation == Activation::Identity, 0,
         "is activated by silu or not at all");
    tokens(0);
    const Shape& x = in_[0]->type.shape;
    const std::int64_t width = in_[1]->type.shape[0];
    need(x.n_dims() == 2, 0, "is not [channels, tokens]");
    float_weight(1, {width, x[0]});
    need(width >= 2, 1, "is no convolution: its width is 1");
    need(a.dilation >= 1, 0, "has a dilation of at least 1");
    const RecurrentType::Part part = in_[2]->recurrent.part;
    using enum RecurrentType::Part;
    need(part == Conv || part == ConvKeys || part == ConvValues || part == ConvHash, 2,
         "is not a state of a convolution");
    recurrent(2, part, {x[0], (width - 1) * a.dilation});
    if (in_.size() == 4) vector(3, x[0]);
    return same(0);
  }
  std::vector<ResultType> operator()(const WindowMean& a) const {
    count(2);
    tokens(0);
    const Shape& x = in_[0]->type.shape;
    need(x.n_dims() == 2 && a.width >= 2, 0, "is not [channels, tokens], of which at least 2 have a mean");
    recurrent(1, RecurrentType::Part::Mean, {x[0], a.width - 1});
    return same(0);
  }
  std::vector<ResultType> operator()(const GatedDelta& a) const {
    count(6);
    for (std::size_t i = 0; i < 3; ++i) tokens(i);
    need(in_[5]->kind == ValueKind::Recurrent, 5, "is not a state");
    need(a.floor <= 0, 5, "decays to a floor that is not above 0");
    const Shape state = in_[5]->recurrent.shape;
    const std::int64_t dv = state[0], dk = state[1], heads = state[2], rows = in_[0]->type.shape[1];
    recurrent(5, RecurrentType::Part::Delta, {dv, dk, heads});
    need(a.key_heads >= 1 && heads % a.key_heads == 0, 5, "has heads that are not a multiple of the key heads");
    need(in_[0]->type.shape == Shape({2 * a.key_heads * dk + heads * dv, rows}), 0, "is not q, k and v of the state");
    const std::int64_t decays = in_[1]->type.shape[0] == dk * heads ? dk * heads : heads;
    need(in_[1]->type.shape == Shape({decays, rows}), 1, "is not [value_heads, tokens] or [dk * value_heads, tokens]");
    need(in_[2]->type.shape == Shape({heads, rows}), 2, "is not [value_heads, tokens]");
    vector(3, heads);
    vector(4, decays);
    return act({dv, heads, rows}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const SelectiveScan& a) const {
    count(6);
    for (std::size_t i = 0; i < 2; ++i) tokens(i);
    need(in_[5]->kind == ValueKind::Recurrent, 5, "is not a state");
    const Shape state = in_[5]->recurrent.shape;
    const std::int64_t p = state[0], n = state[1], heads = state[2], rows = in_[0]->type.shape[1];
    recurrent(5, RecurrentType::Part::Scan, {p, n, heads});
    need(a.groups >= 1 && heads % a.groups == 0, 5, "has heads that are not a multiple of the groups");
    need(in_[0]->type.shape == Shape({heads * p + 2 * a.groups * n, rows}), 0, "is not x, B and C of the state");
    if (scans_elements(in_[2]->type.shape, state)) {
      need(in_[1]->type.shape == Shape({p * heads, rows}), 1, "is not [p * heads, tokens]");
      f32_weight(2, {n, p * heads});
      for (std::size_t i = 3; i < 5; ++i) vector(i, p * heads);
    } else {
      need(in_[1]->type.shape == Shape({heads, rows}), 1, "is not [heads, tokens]");
      for (std::size_t i = 2; i < 4; ++i) f32_weight(i, {1, heads});
      vector(4, heads);
    }
    return act({p, heads, rows}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const TokenShift&) const {
    count(2);
    tokens(0);
    const Shape& x = in_[0]->type.shape;
    need(x.n_dims() == 2, 0, "is not [channels, tokens]");
    const bool ffn = in_[1]->recurrent.part == RecurrentType::Part::ShiftFfn;
    recurrent(1, ffn ? RecurrentType::Part::ShiftFfn : RecurrentType::Part::Shift, {x[0], 1});
    return same(0);
  }
  std::vector<ResultType> operator()(const Lerp&) const {
    need(in_.size() == 3 || in_.size() == 4, 0, "needs what is added, weights and at most one operand of more");
    alike(0, 1);
    const Shape &x = in_[0]->type.shape, &w = in_[2]->type.shape;
    need(x.n_dims() == 2, 0, "is not [n, rows]");
    need(w[1] <= kMostLerps, 2, "is not [n, m] of a possible m");
    f32_weight(2, {x[0], w[1]});
    if (in_.size() == 4) {
      f32(3);
      need(in_[3]->type.shape == Shape({x[0], w[1], x[1]}) && in_[3]->rows == in_[0]->rows, 3, "is not [n, m, rows]");
    }
    return std::vector<ResultType>(static_cast<std::size_t>(w[1]), same(0)[0]);
  }
  std::vector<ResultType> operator()(const Wkv6&) const {
    need(in_.size() == 5 || in_.size() == 6, 0, "needs r, k, v, w, a state and at most one weight");
    const Shape r = wkv_state(4), k = in_[1]->type.shape;
    const std::int64_t n = in_[4]->recurrent.shape[0], heads = in_[4]->recurrent.shape[2];
    need(k.n_dims() == 2 && k[0] >= n && r[0] % k[0] == 0 && k[0] % n == 0, 1,
         "has heads that the state's are no multiple of");
    of_tokens(0, r);
    for (std::size_t i = 1; i < 3; ++i) of_tokens(i, {k[0], r[1]});
    of_tokens(3, r);
    if (in_.size() == 6) f32_weight(5, {n, heads});
    return act({n, heads, r[1]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const Wkv7&) const {
    need(in_.size() == 9 || in_.size() == 11, 0, "needs r, k, v, w, a, three weights, a state, and values with shares");
    const Shape r = wkv_state(8);
    for (std::size_t i = 0; i < 5; ++i) of_tokens(i, r);
    for (std::size_t i = 5; i < 8; ++i) vector(i, r[0]);
    for (std::size_t i = 9; i < in_.size(); ++i) of_tokens(i, r);
    const Shape& state = in_[8]->recurrent.shape;
    const ResultType y = act({state[0], state[2], r[1]}, in_[0]->rows)[0];
    return {y, y};
  }
  std::vector<ResultType> operator()(const Route& a) const {
    need(in_.size() >= 1 && in_.size() <= 3, 0, "needs logits and at most one tensor of biases, or a table and tokens");
    f32(0);
    const Shape& x = in_[0]->type.shape;
    if (in_.size() == 2) vector(1, x[0]);
    if (in_.size() == 3) route_table(a);
    need(a.top_k >= 1 && a.top_k <= x[0], 0, "top_k must be between 1 and the number of experts");
    need(a.groups >= 1 && x[0] % a.groups == 0, 0, "groups must share out the experts");
    const std::int64_t of_group = x[0] / a.groups;
    need(a.groups_used >= 1 && a.groups_used <= a.groups && a.top_k <= a.groups_used * of_group, 0,
         "the groups used must hold top_k experts");
    need(a.groups == 1 || (a.group_best >= 1 && a.group_best <= of_group), 0, "group_best must be at most a group");
    const bool by_logits = a.gating == Gating::Softmax && a.groups == 1 && in_.size() == 1;
    need(a.weights != RouteWeights::NearBest || by_logits, 0,
         "has weights of near logits where these alone are chosen by");
    const Shape shape{a.top_k, x[1]};
    return {{ValueKind::Result, {DType::I32, shape}, in_[0]->rows},
            {ValueKind::Result, {DType::F32, shape}, in_[0]->rows}};
  }
  std::vector<ResultType> operator()(const ExpertLinear& a) const {
    count_products(2, a.products);
    f32(0);
    index(1);
    const Shape& x = in_[0]->type.shape;
    const Shape& ids = in_[1]->type.shape;
    const bool per_route = x.n_dims() == 3;
    need(per_route ? x[1] == ids[0] && x[2] == ids[1] : x[1] == ids[1], 0, "does not match the routes");
    std::vector<ResultType> out;
    for (const ProductOperands& p : product_operands(op_)) {
      const ValueInfo& info = *in_[p.weight];
      const Shape& w = info.type.shape;
      need(info.kind == ValueKind::Weight && w.n_dims() == 3, p.weight, "needs weights [k, n, experts]");
      need(w[0] == x[0], p.weight, "its rows are not as long as the input's");
      if (p.bias != 0) f32_weight(p.bias, {w[1], w[2]});
      if (p.scale != 0) f32_weight(p.scale, {w[2]});
      out.push_back({ValueKind::Result, {DType::F32, {w[1], ids[0], ids[1]}}, in_[0]->rows});
    }
    return out;
  }
  std::vector<ResultType> operator()(const Combine&) const {
    count(2);
    f32(0);
    f32(1);
    const Shape& x = in_[0]->type.shape;
    need(in_[1]->type.shape == Shape({x[1], x[2]}), 1, "does not match the routes");
    return act({x[0], x[2]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const StreamMix&) const {
    count(2);
    heads(0);
    heads(1);
    const Shape &x = in_[0]->type.shape, &w = in_[1]->type.shape;
    need(w[0] == x[1] && w[2] == x[2] && in_[0]->rows == in_[1]->rows, 1, "is not [m, k, rows]");
    return act({x[0], w[1], x[2]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const StreamAdd& a) const {
    need(in_.size() == 2 || in_.size() == 3, 0, "needs one vector and at most one operand of weights");
    heads(0);
    const Shape& x = in_[0]->type.shape;
    need(a.first >= 0 && a.first < x[1], 0, "has no vector from the first on");
    for (std::size_t i = 1; i < in_.size(); ++i) {
      f32(i);
      need(in_[i]->type.shape == Shape({i == 1 ? x[0] : x[1], x[2]}) && in_[i]->rows == in_[0]->rows, i,
           i == 1 ? "is not [n, rows]" : "is not [m, rows]");
    }
    return same(0);
  }
  std::vector<ResultType> operator()(const StreamWeights& a) const {
    count(3);
    need(a.eps >= 0 && a.iterations >= 1, 0, "is divided at least once, with an eps that is not negative");
    f32(0);
    const Shape& x = in_[0]->type.shape;
    need(x.n_dims() == 2, 0, "is not [weights, rows]");
    vector(2, x[0]);
    const RowSpace rows = in_[0]->rows;
    if (in_[1]->type.shape == Shape({1})) {
      vector(1, 1);
      need(x[0] <= kMostStreams, 0, "is of too many vectors");
      return act({x[0], 1, x[1]}, rows);
    }
    vector(1, 3);
    const std::int64_t m = stream_count(x[0]);
    need(m >= 1 && m <= kMostStreams, 0, "is not [(2 + m) * m, rows] of a few vectors");
    return {act({m, 1, x[1]}, rows)[0], act({m, x[1]}, rows)[0], act({m, m, x[1]}, rows)[0]};
  }
  std::vector<ResultType> operator()(const StreamMean&) const {
    count(2);
    heads(0);
    alike(0, 1);
    return act({in_[0]->type.shape[0], in_[0]->type.shape[2]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const StreamBlend& a) const {
    count(3);
    need(a.eps >= 0, 0, "has an eps that is not negative");
    heads(0);
    f32(1);
    const Shape& x = in_[0]->type.shape;
    need(x[1] <= kMostBlended, 0, "is of too many vectors");
    need(in_[1]->type.shape == Shape({x[0], x[2]}) && in_[1]->rows == in_[0]->rows, 1, "is not [n, rows]");
    vector(2, x[0]);
    return same(1);
  }
  std::vector<ResultType> operator()(const MatchGate&) const {
    count(2);
    heads(0);
    alike(0, 1);
    return act({in_[0]->type.shape[1], in_[0]->type.shape[2]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const GaussianTop&) const {
    need(in_.size() == 1 && in_[0]->type.shape[0] >= 2, 0, "needs rows of at least 2");
    return unary();
  }
  std::vector<ResultType> operator()(const Add&) const {
    count(2);
    alike(0, 1);
    return same(0);
  }
  std::vector<ResultType> operator()(const Scale&) const {
    need(in_.size() == 1 || in_.size() == 2, 0, "needs at most one weight");
    f32(0);
    if (in_.size() == 2 && scales_vectors(in_[1]->type.shape)) {
      f32_weight(1, {1, in_[0]->type.shape[1]});
    } else if (in_.size() == 2) {
      vector(1, in_[1]->type.shape == Shape({1}) ? 1 : in_[0]->type.shape[0]);
    }
    return same(0);
  }
  std::vector<ResultType> operator()(const SoftCap& a) const {
    need(a.cap > 0, 0, "cap must be above 0");
    return unary();
  }
  std::vector<ResultType> operator()(const Map&) const { return unary(); }
  std::vector<ResultType> operator()(const Reshape&) const { return unary(); }
  std::vector<ResultType> operator()(const Rows&) const {
    count(2);
    index(1);
    need(in_[0]->rows == RowSpace::Tokens, 0, "has no rows per token");
    const Shape& x = in_[0]->type.shape;
    Shape shape;
    for (int i = 0; i + 1 < x.n_dims(); ++i) shape.push_back(x[i]);
    shape.push_back(bucket_.outputs);
    return {{ValueKind::Result, {in_[0]->type.dtype, shape}, RowSpace::Outputs}};
  }
  std::vector<ResultType> operator()(const Slice& a) const {
    count(1);
    f32(0);
    const Shape& x = in_[0]->type.shape;
    need(x.n_dims() >= 2 && a.begin >= 0 && a.n >= 1 && a.begin + a.n <= x[0], 0, "has no such elements in a row");
    Shape shape{a.n};
    for (int i = 1; i < x.n_dims(); ++i) shape.push_back(x[i]);
    return act(shape, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const Concat&) const {
    count(2);
    heads(0);
    heads(1);
    const Shape &a = in_[0]->type.shape, &b = in_[1]->type.shape;
    need((b[1] == a[1] || b[1] == 1) && b[2] == a[2] && in_[0]->rows == in_[1]->rows, 1,
         "has other heads than " + in_[0]->name);
    return act({a[0] + b[0], a[1], a[2]}, in_[0]->rows);
  }
  std::vector<ResultType> operator()(const HeadIds&) const {
    count(1);
    heads(0);
    const Shape& x = in_[0]->type.shape;
    return {{ValueKind::Result, {DType::I32, {x[1], x[2]}}, in_[0]->rows}};
  }
  std::vector<ResultType> operator()(const GroupIds& a) const {
    count(1);
    index(0);
    need(a.size >= 1 && in_[0]->type.shape.n_dims() == 2, 0, "is not [top_k, rows] of experts in groups");
    return {{ValueKind::Result, in_[0]->type, in_[0]->rows}};
  }
  std::vector<ResultType> operator()(const Silence& a) const {
    count(1);
    f32(0);
    const Shape& x = in_[0]->type.shape;
    need(x.n_dims() == 2 && a.begin >= 0 && a.n >= 1 && a.begin + a.n <= x[0], 0, "has no such elements in a row");
    return same(0);
  }

 private:
  void need(bool ok, std::size_t operand, std::string_view why) const {
    if (ok) return;
    std::string text = "graph op " + std::string(name(op_)) + ": ";
    if (operand < in_.size()) text += "operand " + in_[operand]->name + " " + to_string(in_[operand]->type) + " ";
    throw Error(ErrorKind::Internal, text + std::string(why));
  }
  void count(std::size_t n) const { need(in_.size() == n, in_.size(), "has the wrong number of operands"); }
  void f32(std::size_t i) const {
    need(in_[i]->kind != ValueKind::Weight && !outlives_step(in_[i]->kind) && in_[i]->type.dtype == DType::F32, i,
         "is not an activation");
  }
  void heads(std::size_t i) const {
    f32(i);
    need(in_[i]->type.shape.n_dims() == 3, i, "needs [n, heads, rows]");
  }
  /// What goes on along a sequence needs all of its tokens.
  void tokens(std::size_t i) const {
    f32(i);
    need(in_[i]->rows == RowSpace::Tokens, i, "has no row for every token");
  }
  /// Of an Attention over a cache that is read by selections.
  void selection(const Attention& a, const Shape& q) const {
    count(3);
    index(2);
    const Shape& positions = in_[2]->type.shape;
    const bool of_kv_heads = positions == Shape({positions[0], cache(1).kv_heads, q[2]});
    need((positions.n_dims() == 2 ? positions[1] == q[2] : of_kv_heads) && in_[2]->rows == in_[0]->rows, 2,
         "is not [top_k, tokens] or [top_k, kv_heads, tokens]");
    need(a.window.length == 0 && a.max_bias == 0, 0, "has neither a window nor ALiBi with a selection");
  }
  /// What SelectKeys gives.
  void chosen(std::size_t i, std::int64_t tokens) const {
    index(i);
    const Shape& keys = in_[i]->type.shape;
    need(keys.n_dims() == 2 && keys[1] == tokens && in_[i]->rows == in_[0]->rows, i, "is not [top_k, tokens]");
  }
  /// The step's tokens or positions.
  void index_of_tokens(std::size_t i) const {
    index(i);
    need(in_[i]->type.shape.n_dims() == 1 && in_[i]->rows == in_[0]->rows, i, "is not a number for each token");
  }
  void route_table(const Route& a) const {
    const TensorType& table = in_[1]->type;
    need(in_[1]->kind == ValueKind::Weight && table.dtype == DType::I32 && table.shape.n_dims() == 2 &&
             table.shape[0] == a.top_k,
         1, "is not a table [top_k, vocab] of ids");
    index_of_tokens(2);
    need(a.groups == 1 && a.weights != RouteWeights::NearBest, 0, "has neither groups nor weights of near logits");
  }
  void recurrent(std::size_t i, RecurrentType::Part part, const Shape& shape) const {
    need(in_[i]->kind == ValueKind::Recurrent && in_[i]->recurrent.part == part && in_[i]->recurrent.shape == shape, i,
         "is not a state " + to_string(shape));
  }
  /// Operand i, [n, n, heads]; gives the shape that the first operand has to have.
  Shape wkv_state(std::size_t i) const {
    need(in_[i]->kind == ValueKind::Recurrent && in_[i]->recurrent.shape.n_dims() == 3, i, "is not a state");
    const Shape& state = in_[i]->recurrent.shape;
    recurrent(i, RecurrentType::Part::Wkv, {state[0], state[0], state[2]});
    tokens(0);
    need(in_[0]->type.shape.n_dims() == 2, 0, "is not [n * heads, tokens]");
    return {state[0] * state[2], in_[0]->type.shape[1]};
  }
  void of_tokens(std::size_t i, const Shape& shape) const {
    tokens(i);
    need(in_[i]->type.shape == shape, i, "is not " + to_string(shape));
  }
  void index(std::size_t i) const { need(in_[i]->type.dtype == DType::I32, i, "is not an index"); }
  void matrix(std::size_t i) const {
    need(in_[i]->kind == ValueKind::Weight && in_[i]->type.shape.n_dims() == 2, i, "is not a weight matrix");
  }
  void vector(std::size_t i, std::int64_t n) const { f32_weight(i, {n}); }
  /// As long as a row of the first operand, or of rows of its own for each of that one's.
  void norm_weight(std::size_t i) const {
    const Shape& x = in_[0]->type.shape;
    const bool of_each = x.n_dims() == 3 && in_[i]->type.shape == Shape({x[0], x[1]});
    f32_weight(i, of_each ? Shape{x[0], x[1]} : Shape{x[0]});
  }
  void f32_weight(std::size_t i, const Shape& shape) const {
    need(in_[i]->kind == ValueKind::Weight && in_[i]->type == TensorType{DType::F32, shape}, i,
         "is not a weight " + to_string(TensorType{DType::F32, shape}));
  }
  /// F32, F16 or BF16.
  void float_weight(std::size_t i, const Shape& shape) const {
    const DType t = in_[i]->type.dtype;
    need(t == DType::F32 || t == DType::F16 || t == DType::BF16, i, "is not a weight of floats");
    need(in_[i]->kind == ValueKind::Weight && in_[i]->type.shape == shape, i, "is not " + to_string(shape));
  }
  void count_products(std::size_t first, std::span<const Product> products) const {
    std::size_t n = first;
    for (const Product& p : products) n += 1u + (p.bias ? 1u : 0u) + (p.scale ? 1u : 0u);
    count(n);
  }
  void alike(std::size_t a, std::size_t b) const {
    f32(a);
    f32(b);
    need(in_[a]->type == in_[b]->type && in_[a]->rows == in_[b]->rows, b, "differs in shape from " + in_[a]->name);
  }
  const CacheType& cache(std::size_t i) const {
    need(in_[i]->kind == ValueKind::Cache, i, "is not a cache");
    return in_[i]->cache;
  }
  std::vector<ResultType> act(Shape shape, RowSpace rows) const {
    return {{ValueKind::Result, {DType::F32, shape}, rows}};
  }
  std::vector<ResultType> same(std::size_t i) const { return {{ValueKind::Result, in_[i]->type, in_[i]->rows}}; }
  std::vector<ResultType> unary() const {
    count(1);
    f32(0);
    return same(0);
  }

  const Op& op_;
  Operands in_;
  const Bucket& bucket_;
};

}  // namespace

std::vector<ResultType> infer(const Op& op, std::span<const ValueInfo* const> in, const Bucket& bucket) {
  return std::visit(Rule(op, in, bucket), op);
}

}  // namespace llm
