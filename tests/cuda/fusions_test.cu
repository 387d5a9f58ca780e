// Kernels that take the place of several, against those, bit for bit; which nodes of a graph they are used for.
#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "backend/cuda/forms_plan.h"
#include "backend/cuda/fusions.h"
#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/rope_append.h"
#include "backend/cuda/kernels/rows.h"
#include "device_data.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "support/catch.h"

namespace llm::cuda::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const Launch kLaunch{};

template <class T>
std::byte* bytes_of(const OnDevice<T>& x) {
  return reinterpret_cast<std::byte*>(x.data());
}

/// Forms of few columns, poisoned.
struct FewForms {
  FewForms(int n, int rows)
      : f32(static_cast<std::size_t>(n) * rows),
        q8x256(quantized_bytes(ActFormat::Q8x256, n, rows)),
        q8x32(quantized_bytes(ActFormat::Q8x32, n, rows)) {
    forms.f32 = f32.data();
    forms.q8x256 = bytes_of(q8x256);
    forms.q8x32 = bytes_of(q8x32);
    forms.capacity = rows;
  }
  OnDevice<float> f32;
  OnDevice<std::uint8_t> q8x256, q8x32;
  Forms forms;

  void expect_equal(const FewForms& other) const {
    REQUIRE(first_difference(f32.read(), other.f32.read()) == -1);
    REQUIRE(q8x256.read() == other.q8x256.read());
    REQUIRE(q8x32.read() == other.q8x32.read());
  }
};

struct HeadCase {
  int heads, kv_heads, dim_k, dim_v, n_rot;
  std::size_t offset;  ///< elements that spoil the alignment
};

void compare_heads(const HeadCase& c, RopePairing pairing, bool with_norms, DType type, Random& random) {
  constexpr int kTokens = 7, kBlocks = 3;
  const std::vector<std::int32_t> slots = {0, 63, -1, 64, 130, 191, -1};
  const auto rows = [&](int heads, int dim) { return static_cast<std::size_t>(kTokens) * heads * dim; };
  std::vector<float> q_values = random.floats(rows(c.heads, c.dim_k), 3);
  q_values[static_cast<std::size_t>(random.below(static_cast<int>(q_values.size())))] = kNan;
  // Of the tokens 0 and 1, which have slots: an element that is turned, and one that stays as it is where some do.
  std::vector<float> k_values = random.floats(rows(c.kv_heads, c.dim_k), 3);
  k_values[0] = kNan;
  k_values[static_cast<std::size_t>(c.dim_k - 1)] = -kNan;
  k_values[rows(c.kv_heads, c.dim_k) / kTokens * 2 - 1] = kNan;
  std::vector<float> v_values = random.floats(rows(c.kv_heads, c.dim_v));
  v_values[0] = kNan;
  v_values[rows(c.kv_heads, c.dim_v) / kTokens] = -kNan;
  const OnDevice<float> q(q_values, c.offset), k(k_values, c.offset), v(v_values, c.offset);
  const OnDevice<float> table(random.floats(static_cast<std::size_t>(kTokens) * c.n_rot));
  const OnDevice<float> norm_q(random.floats(c.dim_k), c.offset), norm_k(random.floats(c.dim_k), c.offset);
  const OnDevice<std::int32_t> device_slots(slots);
  StepView step;
  step.slots = device_slots.data();
  const Rope op{pairing, c.n_rot};
  constexpr float kEps = 1e-5f;

  const std::size_t of_keys = static_cast<std::size_t>(kBlocks) * 64 * c.kv_heads * c.dim_k * info(type).block_bytes;
  const std::size_t of_values = static_cast<std::size_t>(kBlocks) * 64 * c.kv_heads * c.dim_v * info(type).block_bytes;
  const OnDevice<std::uint8_t> keys(of_keys), values(of_values), expected_keys(of_keys), expected_values(of_values);
  const auto cache = [&](const OnDevice<std::uint8_t>& of_k, const OnDevice<std::uint8_t>& of_v) {
    return CacheView{bytes_of(of_k), bytes_of(of_v), type, type, c.kv_heads, c.dim_k, c.dim_v};
  };

  const OnDevice<float> normed_q(q.size(), c.offset), normed_k(k.size(), c.offset);
  if (with_norms) {
    rms_norm(q.data(), norm_q.data(), kEps, c.dim_k, kTokens * c.heads, {.f32 = normed_q.data()}, kLaunch);
    rms_norm(k.data(), norm_k.data(), kEps, c.dim_k, kTokens * c.kv_heads, {.f32 = normed_k.data()}, kLaunch);
  }
  const OnDevice<float> expected_q(q.size()), turned_k(k.size()), turned_q(q.size());
  rope(op, (with_norms ? normed_q : q).data(), table.data(), c.heads, c.dim_k, kTokens, expected_q.data(), kLaunch);
  rope(op, (with_norms ? normed_k : k).data(), table.data(), c.kv_heads, c.dim_k, kTokens, turned_k.data(), kLaunch);
  append_to_cache(turned_k.data(), v.data(), cache(expected_keys, expected_values), step, kTokens, kLaunch);

  RopeAppend fused{.q = q.data(),
                   .k = k.data(),
                   .v = v.data(),
                   .table = table.data(),
                   .rotated_q = turned_q.data(),
                   .heads = c.heads};
  if (with_norms) {
    fused.norm_q = norm_q.data();
    fused.norm_k = norm_k.data();
    fused.eps = kEps;
  }
  rope_append(op, fused, cache(keys, values), step, kTokens, kLaunch);
  INFO("heads of " << c.dim_k << ", turned " << c.n_rot << ", norms " << with_norms << ", cache " << name(type));
  REQUIRE(first_difference(expected_q.read(), turned_q.read()) == -1);
  REQUIRE(expected_keys.read() == keys.read());
  REQUIRE(expected_values.read() == values.read());

  fused.rotated_q = q.data();  // in place
  rope_append(op, fused, cache(keys, values), step, kTokens, kLaunch);
  REQUIRE(first_difference(expected_q.read(), q.read()) == -1);
}

constexpr int kEmbd = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kFf = 64, kExperts = 6, kVocab = 100;

TensorType f32(Shape s) { return {DType::F32, s}; }

/// A decoder with norms of heads, as the Qwen3 family has them, and with experts or without.
class Layers {
 public:
  explicit Layers(DType weights, Bucket bucket = {4, 2, 4}) : Layers(weights, bucket, weights) {}
  Layers(DType weights, Bucket bucket, DType gate) : b_(bucket), weights_(weights), gate_(gate) {}

  Layers&& with_head(DType type, std::int64_t vocabulary) && {
    head_ = type;
    vocab_ = vocabulary;
    return std::move(*this);
  }
  Graph run(int layers) && { return run(layers, &Layers::mixture); }
  Graph run_dense(int layers) && { return run(layers, &Layers::feed_forward); }

 private:
  Graph run(int layers, Act (Layers::*ffn)(Act)) {
    b_.set_place(-1, Role::Embed, "");
    Act x = b_.embed(b_.weight("token_embd.weight", f32({kEmbd, vocab_})), b_.step_input(StepInput::Tokens), "embd");
    table_ = b_.rope_table({.n_rot = kHeadDim}, b_.step_input(StepInput::Positions), nullptr, "rope");
    for (int i = 0; i < layers; ++i) {
      x = attention(i, x);
      b_.set_place(i, Role::Ffn, prefix_);
      x = (this->*ffn)(x);
    }
    prefix_.clear();
    b_.set_place(-1, Role::Head, "");
    x = norm(x, "output_norm");
    const Act logits = linear(x, "output", vocab_, head_);
    return optimize(std::move(b_).finish(logits));
  }

  Act norm(Act x, const std::string& name) {
    return b_.rms_norm(x, b_.weight(prefix_ + name + ".weight", f32({b_.type(x).shape[0]})), 1e-5F, name);
  }
  Act linear(Act x, const std::string& name, std::int64_t n, DType type) {
    const Weight w = b_.weight(prefix_ + name + ".weight", {type, {b_.type(x).shape[0], n}});
    return b_.linear(x, {.weight = w, .bias = nullptr, .name = name});
  }
  Act experts(Act x, Index ids, const std::string& name, std::int64_t n) {
    const Weight w = b_.weight(prefix_ + name + ".weight", {weights_, {b_.type(x).shape[0], n, kExperts}});
    return b_.expert_linear(x, ids, {.weight = w, .bias = nullptr, .name = name});
  }
  Act attention(int i, Act x) {
    prefix_ = "blk." + std::to_string(i) + ".";
    b_.set_place(i, Role::Attention, prefix_);
    const Act h = norm(x, "attn_norm");
    Act q = b_.split_heads(linear(h, "q", kHeads * kHeadDim, weights_), kHeads, "q_heads");
    Act k = b_.split_heads(linear(h, "k", kKvHeads * kHeadDim, weights_), kKvHeads, "k_heads");
    const Act v = b_.split_heads(linear(h, "v", kKvHeads * kHeadDim, weights_), kKvHeads, "v_heads");
    q = norm(q, "q_norm");
    k = norm(k, "k_norm");
    q = b_.rope(q, table_, RopePairing::Halves, "q_rope");
    k = b_.rope(k, table_, RopePairing::Halves, "k_rope");
    const Cache cache = b_.kv_append(k, v, b_.cache({i, kKvHeads, kHeadDim, kHeadDim}), "kv");
    const Act y = b_.attention(q, cache, {.scale = 0.35F, .window = 0}, "attn");
    return b_.add(x, linear(b_.flatten_heads(y, "attn_flat"), "o", kEmbd, weights_), "ffn_in");
  }
  Act feed_forward(Act x) {
    const Act f = norm(x, "ffn_norm");
    const Act gate = linear(f, "gate", kFf, gate_), up = linear(f, "up", kFf, weights_);
    const Act h = b_.glu(Activation::Silu, gate, up, "glu");
    return b_.add(x, linear(h, "down", kEmbd, weights_), "out");
  }
  Act mixture(Act x) {
    const Act f = norm(x, "ffn_norm");
    const Routes routes = b_.route(linear(f, "router", kExperts, DType::F32), {.top_k = 2}, "routes");
    const Act gate = experts(f, routes.expert, "gate", kFf), up = experts(f, routes.expert, "up", kFf);
    const Act down = experts(b_.glu(Activation::Silu, gate, up, "glu"), routes.expert, "down", kEmbd);
    return b_.add(x, b_.combine(down, routes.weight, "moe"), "out");
  }

  GraphBuilder b_;
  DType weights_, gate_, head_ = DType::F32;
  std::int64_t vocab_ = kVocab;
  Act table_;
  std::string prefix_;
};

std::uint32_t value_named(const Graph& g, const std::string& name) {
  for (std::uint32_t v = 0; v < g.values().size(); ++v) {
    if (g.info(v).name == name) return v;
  }
  FAIL("no value " << name);
  return 0;
}

/// Whether two values share no bytes.
bool apart(const Graph& g, const StepPlan& plan, std::uint32_t a, std::uint32_t b) {
  const std::uint64_t begin_a = plan.memory.offset[a], begin_b = plan.memory.offset[b];
  return begin_a + g.info(a).type.bytes() <= begin_b || begin_b + g.info(b).type.bytes() <= begin_a;
}

}  // namespace

TEST_CASE("norms of heads, ropes and the cache in one kernel") {
  if (no_device()) return;
  Random random(1);
  for (const HeadCase& c :
       {HeadCase{32, 4, 128, 128, 128, 0}, HeadCase{5, 1, 64, 64, 64, 0}, HeadCase{3, 3, 80, 96, 32, 0},
        HeadCase{4, 2, 256, 128, 256, 1}, HeadCase{2, 2, 10, 7, 6, 0}, HeadCase{9, 3, 192, 128, 64, 1}}) {
    for (const bool with_norms : {false, true}) {
      for (const DType type : {DType::F16, DType::F32, DType::BF16, DType::F8_E4M3}) {
        for (const RopePairing pairing : {RopePairing::Interleaved, RopePairing::Halves})
          compare_heads(c, pairing, with_norms, type, random);
      }
    }
  }
}

TEST_CASE("the weighted sum of experts, the residual and the norm in one kernel") {
  if (no_device()) return;
  Random random(2);
  for (const int n : {1, 30, 256, 300, 2048, 2049, 4096, 8200, 16500}) {
    for (const int top_k : {1, 2, 8, 11}) {
      for (const int rows : {1, 6}) {
        const std::size_t size = static_cast<std::size_t>(n) * rows;
        std::vector<float> x_values = random.floats(size * top_k);
        if (rows > 1) x_values[static_cast<std::size_t>(random.below(n))] = kNan;
        const OnDevice<float> x(x_values), weights(random.floats(static_cast<std::size_t>(top_k) * rows));
        const OnDevice<float> residual(random.floats(size)), w(random.floats(n));
        const OnDevice<float> combined(size), expected_sum(size), sum(size);
        const FewForms expected(n, rows), y(n, rows);
        combine(x.data(), weights.data(), top_k, n, rows, combined.data(), kLaunch);
        add_rms_norm(residual.data(), combined.data(), w.data(), 1e-5f, n, rows, expected_sum.data(), expected.forms,
                     kLaunch);
        combine_add_rms_norm(x.data(), weights.data(), top_k, residual.data(), w.data(), 1e-5f, n, rows, sum.data(),
                             y.forms, kLaunch);
        INFO("n " << n << ", top_k " << top_k << ", rows " << rows);
        REQUIRE(first_difference(expected_sum.read(), sum.read()) == -1);
        y.expect_equal(expected);
      }
    }
  }
}

/// (expert, route) of every group's every route, sorted.
std::vector<std::pair<int, int>> routes_by_expert(const OnDevice<std::int32_t>& memory, const RouteGroups& groups) {
  const std::vector<std::int32_t> words = memory.read();
  const auto at = [&](const std::int32_t* p) { return words.data() + (p - memory.data()); };
  std::vector<std::pair<int, int>> all;
  for (int g = 0; g < *at(groups.n_groups); ++g) {
    for (int i = 0; i < at(groups.count)[g]; ++i)
      all.emplace_back(at(groups.expert)[g], at(groups.routes)[at(groups.first)[g] + i]);
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST_CASE("routes are made and grouped in one kernel") {
  if (no_device()) return;
  Random random(3);
  struct Case {
    int experts, max_tokens, tokens, top_k, columns;
  };
  for (const Case c :
       {Case{128, 1, 1, 8, 8}, Case{8, 1, 1, 2, 8}, Case{128, 8, 5, 8, 8}, Case{128, 64, 64, 8, 32},
        Case{64, 64, 61, 8, 32}, Case{4, 64, 64, 2, 8}, Case{2, 33, 33, 2, 32}, Case{200, 40, 40, 8, 8},
        Case{512, 32, 32, 10, 32}, Case{1000, 17, 16, 3, 8}, Case{40, 8, 8, 40, 8}, Case{128, 16, 0, 8, 8}}) {
    REQUIRE(groups_while_routing(c.experts, c.max_tokens, c.top_k));
    Route op;
    op.top_k = c.top_k;
    op.weights = random.below(2) == 0 ? RouteWeights::AsGated : RouteWeights::Renormalized;
    std::vector<float> logits = random.floats(static_cast<std::size_t>(c.experts) * c.max_tokens, 2);
    for (std::size_t i = 0; i < logits.size(); ++i) {  // some experts are liked more than others
      if (i % static_cast<std::size_t>(c.experts) < 3) logits[i] += 2;
    }
    if (c.tokens > 2) logits[static_cast<std::size_t>(c.experts) * 2 + 1] = kNan;
    const OnDevice<float> device_logits(logits);
    const std::size_t routes = static_cast<std::size_t>(c.max_tokens) * c.top_k;
    const OnDevice<std::int32_t> counts(std::vector<std::int32_t>{c.tokens, 1});
    StepView step;
    step.counts = counts.data();
    const std::size_t words = route_groups_bytes(c.experts, c.max_tokens, c.top_k) / sizeof(std::int32_t);
    const OnDevice<std::int32_t> ids(routes), expected_ids(routes), memory(words), expected_memory(words);
    const OnDevice<float> weights(routes), expected_weights(routes);
    route({op}, device_logits.data(), c.experts, c.max_tokens, expected_ids.data(), expected_weights.data(), kLaunch);
    const RouteGroups expected = group_routes(expected_ids.data(), c.experts, c.max_tokens, c.top_k, c.columns, step,
                                              bytes_of(expected_memory), kLaunch);
    const RouteGroups found = route_and_group({op}, device_logits.data(), c.experts, c.max_tokens, c.columns, step,
                                              ids.data(), weights.data(), bytes_of(memory), kLaunch);
    INFO("experts " << c.experts << ", tokens " << c.tokens << ", top_k " << c.top_k);
    REQUIRE(ids.read() == expected_ids.read());
    REQUIRE(first_difference(weights.read(), expected_weights.read()) == -1);
    if (c.max_tokens > 1) {
      REQUIRE(memory.read() == expected_memory.read());
    } else {  // groups of one route each, in whatever order
      REQUIRE(routes_by_expert(memory, found) == routes_by_expert(expected_memory, expected));
    }
    REQUIRE(found.routes - memory.data() == expected.routes - expected_memory.data());
    REQUIRE(found.max_groups == expected.max_groups);
    REQUIRE(found.columns == expected.columns);
  }
  REQUIRE_FALSE(groups_while_routing(128, 65, 1));
  REQUIRE_FALSE(groups_while_routing(128, 64, 9));
}

TEST_CASE("neighbouring nodes are found, and what they read late") {
  const Graph g = Layers(DType::Q8_0).run(3);
  const Fusions found = find_fusions(g, {});
  REQUIRE(found.rope_appends.size() == 3);
  REQUIRE(found.combine_norms.size() == 3);
  const std::vector<LateUse> late = late_uses(g, found);
  const auto reads_late = [&](const std::string& name, std::size_t node) {
    return std::any_of(late.begin(), late.end(),
                       [&](const LateUse& r) { return r.value == value_named(g, name) && r.node == node; });
  };
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    const RopeAppendNodes& m = found.rope_appends[i];
    REQUIRE(m.norms.has_value());
    REQUIRE(m.q == value_named(g, p + "q_heads"));
    REQUIRE(m.k == value_named(g, p + "k_heads"));
    REQUIRE(g.nodes()[m.rope_q].out[0] == value_named(g, p + "q_rope"));
    REQUIRE(g.nodes()[m.append].in[0] == value_named(g, p + "k_rope"));
    REQUIRE(reads_late(p + "q_heads", m.append));
    REQUIRE(reads_late(p + "k_heads", m.append));
    const CombineNormNodes& c = found.combine_norms[i];
    REQUIRE(g.nodes()[c.combine].out[0] == value_named(g, p + "moe"));
    REQUIRE(c.residual == value_named(g, p + "ffn_in"));
    REQUIRE(reads_late(p + "down", c.norm));
    REQUIRE(reads_late(p + "routes_weights", c.norm));
  }
}

TEST_CASE("what a fused kernel reads and what it writes share no bytes") {
  const Graph g = Layers(DType::Q8_0).run(3);
  const StepPlan plan = plan_step(g, Many::AsFew, {});
  const Fusions found = find_fusions(g, {});
  for (const RopeAppendNodes& m : found.rope_appends) {
    const std::uint32_t rotated = g.nodes()[m.rope_q].out[0];
    for (const std::uint32_t in : {m.q, m.k, g.nodes()[m.append].in[1], g.nodes()[m.rope_q].in[1]})
      REQUIRE(apart(g, plan, in, rotated));
  }
  for (const CombineNormNodes& m : found.combine_norms) {
    for (const std::uint32_t out : g.nodes()[m.norm].out) {
      for (const std::uint32_t in : g.nodes()[m.combine].in) REQUIRE(apart(g, plan, in, out));
      REQUIRE(apart(g, plan, m.residual, out));
    }
  }
}

namespace {

/// As makes_columns() where the ring runs, but of any length.
bool of_tiles(std::span<const MatrixType> matrices) {
  return std::all_of(matrices.begin(), matrices.end(), [](const MatrixType& m) { return has_tiles(m.type); });
}
bool always(std::span<const MatrixType>) { return true; }
bool never(std::span<const MatrixType>) { return false; }
constexpr TokenKernels kTiles{.makes_columns = of_tiles, .makes_norms = always};
const Node& maker_of(const Graph& g, const std::string& name) {
  const std::uint32_t v = value_named(g, name);
  for (const Node& node : g.nodes()) {
    if (std::find(node.out.begin(), node.out.end(), v) != node.out.end()) return node;
  }
  FAIL("nothing makes " << name);
  return g.nodes()[0];
}

/// The product that makes its column and has a result of this name.
const OwnColumn* own_column_of(const Graph& g, const StepPlan& plan, const std::string& product) {
  for (const OwnColumn& o : plan.fusions.own_columns) {
    if (&g.nodes()[o.linear] == &maker_of(g, product)) return &o;
  }
  return nullptr;
}

/// What a product with the norm before it reads until its end and all that it writes share no bytes.
void expect_apart(const Graph& g, const StepPlan& plan, const OwnColumn& own) {
  const Node& norm = g.nodes()[*own.norm];
  std::vector<std::uint32_t> written = g.nodes()[own.last()].out;
  if (norm.out.size() > 1) written.push_back(norm.out[0]);
  std::vector<std::uint32_t> others(norm.in.begin(), norm.in.end() - 1);  // but for the norm's weight
  for (const std::uint32_t out : written) {
    for (const std::uint32_t other : others) {
      INFO(g.info(out).name << " and " << g.info(other).name);
      REQUIRE(apart(g, plan, out, other));
    }
    others.push_back(out);
  }
}

}  // namespace

TEST_CASE("products of one column that make its form themselves, with the norm before them") {
  const Graph g = Layers(DType::Q8_0, {1, 1, 1}).run_dense(2);
  const StepPlan plan = plan_step(g, Many::F16, kTiles);
  const std::vector<LateUse> late = late_uses(g, plan.fusions);
  for (const std::string p : {"blk.0.", "blk.1."}) {
    for (const auto& [product, normed] : {std::pair{"q", "attn_norm"}, {"gate", "ffn_norm"}}) {
      const OwnColumn* const found = own_column_of(g, plan, p + product);
      INFO(p << product);
      REQUIRE(found != nullptr);
      REQUIRE(found->norm.has_value());
      const Node& norm = g.nodes()[*found->norm];
      REQUIRE(&norm == &maker_of(g, p + normed));
      REQUIRE(plan.fusions.makes_column(found->linear));
      REQUIRE(found->glu.has_value() == (product == std::string("gate")));
      if (found->glu) REQUIRE(&g.nodes()[*found->glu] == &maker_of(g, p + "glu"));
      for (const std::uint32_t in : norm.in) {
        REQUIRE(std::any_of(late.begin(), late.end(),
                            [&](const LateUse& r) { return r.value == in && r.node == found->last(); }));
      }
      expect_apart(g, plan, *found);
      REQUIRE(plan.form(value_named(g, p + normed), Form::Q8x32) == MemoryPlan::kNone);
    }
    for (const auto& [product, column] : {std::pair{"o", "attn_flat"},  // of attention, whose kernel makes no forms
                                          {"down", "glu"}}) {           // of what the gate lets through
      const OwnColumn* const found = own_column_of(g, plan, p + product);
      REQUIRE(found != nullptr);
      REQUIRE_FALSE(found->norm.has_value());
      REQUIRE(plan.form(value_named(g, p + column), Form::Q8x32) == MemoryPlan::kNone);
    }
  }
  REQUIRE(own_column_of(g, plan, "output") == nullptr);  // F32

  REQUIRE(find_fusions(g, {}).own_columns.empty());
  REQUIRE(find_fusions(Layers(DType::Q8_0, {2, 2, 1}).run_dense(2), kTiles).own_columns.empty());
  REQUIRE(find_fusions(Layers(DType::F16, {1, 1, 1}).run_dense(2), kTiles).own_columns.empty());
}

TEST_CASE("a sum that nobody reads keeps its bytes until the product behind its norm has written it") {
  for (const std::int64_t vocabulary : {std::int64_t{8}, std::int64_t{kEmbd}, std::int64_t{kVocab}}) {
    const Graph g = Layers(DType::Q8_0, {1, 1, 1}).with_head(DType::Q8_0, vocabulary).run_dense(2);
    const StepPlan plan = plan_step(g, Many::F16, kTiles);
    const OwnColumn* const found = own_column_of(g, plan, "output");
    REQUIRE(found != nullptr);
    REQUIRE(found->norm.has_value());
    const Node& norm = g.nodes()[*found->norm];
    REQUIRE(norm.out.size() == 2);
    const auto reads_sum = [&](const Node& n) {
      return std::find(n.in.begin(), n.in.end(), norm.out[0]) != n.in.end();
    };
    REQUIRE(std::none_of(g.nodes().begin(), g.nodes().end(), reads_sum));
    INFO("vocabulary of " << vocabulary);
    expect_apart(g, plan, *found);
  }
}

TEST_CASE("attention of one token turns its heads") {
  const Graph one = Layers(DType::F16, {1, 1, 1}).run_dense(2);
  const Fusions found = find_fusions(one, {});
  REQUIRE(found.rope_appends.size() == 2);
  for (const RopeAppendNodes& m : found.rope_appends) {
    REQUIRE(m.attention == m.append + 1);
    for (const std::uint32_t value : {m.q, m.k, one.nodes()[m.append].in[1]}) {
      const std::vector<LateUse> late = late_uses(one, found);
      REQUIRE(std::any_of(late.begin(), late.end(),
                          [&](const LateUse& r) { return r.value == value && r.node == *m.attention; }));
    }
  }
  const Graph two = Layers(DType::F16, {2, 1, 1}).run_dense(1);
  REQUIRE(find_fusions(two, {}).rope_appends.size() == 1);
  REQUIRE_FALSE(find_fusions(two, {}).rope_appends[0].attention.has_value());
}

TEST_CASE("products that are no place for a norm leave it a kernel of its own, and still have the gate behind them") {
  const Graph g = Layers(DType::F16, {1, 1, 1}).run_dense(2);
  const Fusions found = find_fusions(g, {.makes_columns = always, .makes_norms = never});
  std::vector<std::string> gated;
  for (const OwnColumn& o : found.own_columns) {
    REQUIRE_FALSE(o.norm.has_value());
    if (o.glu) gated.push_back(g.info(g.nodes()[*o.glu].out[0]).name);
  }
  REQUIRE(gated == std::vector<std::string>{"blk.0.glu", "blk.1.glu"});
}

TEST_CASE("a gate of two types has a kernel of its own, which makes the forms of what it lets through") {
  const auto one_type = [](std::span<const MatrixType> matrices) {
    return of_tiles(matrices) && std::all_of(matrices.begin(), matrices.end(),
                                             [&](const MatrixType& m) { return m.type == matrices[0].type; });
  };
  using MakesColumns = bool (*)(std::span<const MatrixType>);
  for (const MakesColumns makes_columns : {MakesColumns(of_tiles), MakesColumns(one_type)}) {
    const Graph g = Layers(DType::Q4_0, {1, 1, 1}, DType::Q8_0).run_dense(1);
    const StepPlan plan = plan_step(g, Many::F16, {.makes_columns = makes_columns, .makes_norms = always});
    for (const OwnColumn& o : plan.fusions.own_columns) {
      REQUIRE_FALSE(o.glu.has_value());
      REQUIRE(&g.nodes()[o.linear] != &maker_of(g, "blk.0.down"));
    }
    REQUIRE(plan.fusions.own_columns.size() ==
            (makes_columns == MakesColumns(of_tiles) ? std::size_t{3} : std::size_t{2}));
    REQUIRE(plan.form(value_named(g, "blk.0.glu"), Form::Q8x32) != MemoryPlan::kNone);
  }
}

TEST_CASE("a norm that others read, or that has the experts' sum in it, stays a kernel of its own") {
  const Graph g = Layers(DType::Q8_0, {1, 1, 1}).run(2);
  const Fusions found = find_fusions(g, kTiles);
  REQUIRE(found.combine_norms.size() == 2);
  std::vector<std::string> products;
  for (const OwnColumn& o : found.own_columns) {
    products.push_back(g.info(g.nodes()[o.linear].out[0]).name);
    REQUIRE(o.norm.has_value() == (products.back() == "blk.0.q"));
  }
  REQUIRE(products == std::vector<std::string>{"blk.0.q", "blk.0.o", "blk.1.o"});
}

TEST_CASE("a router that does more than compare logits is a launch of its own before those of one token's experts") {
  const TokenKernels kernels{always, always, [](const ExpertShapes&) { return true; }};
  Graph g = Layers(DType::Q8_0, {1, 1, 1}).run(2);
  const auto of_logits = [&](const TokenExpertsNodes& m) {
    const std::vector<LateUse> late = late_uses(g, find_fusions(g, kernels));
    return std::any_of(late.begin(), late.end(),
                       [&](const LateUse& l) { return l.value == g.nodes()[m.route].in[0] && l.node == m.glu; });
  };
  for (const bool chooses : {true, false}) {
    if (!chooses) {
      for (Node& n : g.mutable_nodes())
        if (Route* op = std::get_if<Route>(&n.op)) op->gating = Gating::Sigmoid;
    }
    const Fusions found = find_fusions(g, kernels);
    REQUIRE(found.token_experts.size() == 2);
    for (const TokenExpertsNodes& m : found.token_experts) {
      REQUIRE(m.chooses == chooses);
      REQUIRE(of_logits(m) == chooses);
    }
  }
  REQUIRE_FALSE(chooses_token_experts({.top_k = 2}, true, 8));
  REQUIRE_FALSE(chooses_token_experts({.top_k = 2, .groups = 2}, false, 8));
  REQUIRE_FALSE(chooses_token_experts({.top_k = 2}, false, 257));
  REQUIRE(chooses_token_experts({.top_k = 2}, false, 256));
}

TEST_CASE("one token's experts are two launches, and the router makes the norm that it shares with them") {
  const auto any_experts = [](const ExpertShapes& s) {
    return s.gate.type == s.up.type && s.top_k == 2 && s.gate.n == kFf && s.down.n == kEmbd;
  };
  const TokenKernels kernels{always, always, any_experts};
  const Graph g = Layers(DType::Q8_0, {1, 1, 1}).run(2);
  const StepPlan plan = plan_step(g, Many::F16, kernels);
  REQUIRE(plan.fusions.token_experts.size() == 2);
  REQUIRE(plan.fusions.combine_norms.empty());
  const auto index = [&](const std::string& value) {
    return static_cast<std::size_t>(&maker_of(g, value) - g.nodes().data());
  };
  const std::vector<LateUse> late = late_uses(g, plan.fusions);
  const auto lives_until = [&](const std::string& value, std::size_t node) {
    return std::any_of(late.begin(), late.end(),
                       [&](const LateUse& r) { return r.value == value_named(g, value) && r.node == node; });
  };
  for (const int layer : {0, 1}) {
    const std::string p = "blk." + std::to_string(layer) + ".";
    const TokenExpertsNodes& m = plan.fusions.token_experts[static_cast<std::size_t>(layer)];
    REQUIRE(m.route == index(p + "routes"));
    REQUIRE(m.gate_up == index(p + "gate"));
    REQUIRE(m.glu == index(p + "glu"));
    REQUIRE(m.down == index(p + "down"));
    REQUIRE(m.combine == index(p + "moe"));
    REQUIRE(lives_until(p + "router", m.glu));
    REQUIRE(lives_until(p + "ffn_norm", m.glu));
    REQUIRE(lives_until(p + "glu", m.combine));
    REQUIRE(lives_until(p + "routes", m.combine));
    const auto router = std::find_if(plan.fusions.own_columns.begin(), plan.fusions.own_columns.end(),
                                     [&](const OwnColumn& o) { return o.linear == index(p + "router"); });
    REQUIRE(router != plan.fusions.own_columns.end());
    REQUIRE(router->norm == index(p + "ffn_norm"));
    REQUIRE(router->shared);
  }
  // The norm behind the experts is made by what reads it.
  REQUIRE(std::any_of(plan.fusions.own_columns.begin(), plan.fusions.own_columns.end(), [&](const OwnColumn& o) {
    return o.linear == index("blk.1.q") && o.norm == index("blk.1.attn_norm") && !o.shared;
  }));

  REQUIRE(find_fusions(Layers(DType::Q8_0, {2, 2, 1}).run(2), kernels).token_experts.empty());
  REQUIRE(find_fusions(g, {always, always, nullptr}).token_experts.empty());
  REQUIRE(find_fusions(g, {always, always, nullptr}).combine_norms.size() == 2);
}

TEST_CASE("one token's wanted row is the token's") {
  const auto build = [](Bucket bucket) {
    GraphBuilder b(bucket);
    const Act x = b.embed(b.weight("embd.weight", f32({kEmbd, kVocab})), b.step_input(StepInput::Tokens), "x");
    const Act row = b.rows(x, b.step_input(StepInput::OutRows), "row");
    return std::move(b).finish(b.scale(row, 2, "y"));
  };
  const Graph one = keep_single_rows(build({1, 1, 1})), two = keep_single_rows(build({2, 1, 1}));
  REQUIRE(std::holds_alternative<Reshape>(maker_of(one, "row").op));
  REQUIRE(maker_of(one, "row").in == std::vector<std::uint32_t>{value_named(one, "x")});
  const StepPlan plan = plan_step(one, Many::F16, {});
  REQUIRE(plan.memory.offset[value_named(one, "row")] == plan.memory.offset[value_named(one, "x")]);
  REQUIRE(std::holds_alternative<llm::Rows>(maker_of(two, "row").op));
}

TEST_CASE("nodes whose results others use are not fused") {
  GraphBuilder b({4, 2, 4});
  const Act x =
      b.embed(b.weight("embd.weight", f32({kHeads * kHeadDim, kVocab})), b.step_input(StepInput::Tokens), "x");
  const Act table = b.rope_table({.n_rot = kHeadDim}, b.step_input(StepInput::Positions), nullptr, "rope");
  const Weight w = b.weight("norm.weight", f32({kHeadDim}));
  const Act heads = b.split_heads(x, kHeads, "heads");
  const Act q = b.rms_norm(heads, w, 1e-5F, "q_norm"), k = b.rms_norm(heads, w, 1e-5F, "k_norm");
  const Act q_rope = b.rope(q, table, RopePairing::Halves, "q_rope"),
            k_rope = b.rope(k, table, RopePairing::Halves, "k_rope");
  const Cache cache = b.kv_append(k_rope, heads, b.cache({0, kHeads, kHeadDim, kHeadDim}), "kv");
  const Act y = b.add(b.attention(q_rope, cache, {.scale = 1, .window = 0}, "attn"), k, "y");  // k is needed
  const Graph g = std::move(b).finish(b.flatten_heads(y, "flat"));
  const Fusions found = find_fusions(g, {});
  REQUIRE(found.rope_appends.size() == 1);
  REQUIRE_FALSE(found.rope_appends[0].norms.has_value());
  REQUIRE(found.rope_appends[0].q == q.id);
  REQUIRE(found.rope_appends[0].k == k.id);
}

TEST_CASE("tiles that are decoded on the way want panels, and no memory for decoded weights") {
  const auto planned = [](DType type, Many many) {
    const Graph g = Layers(type, {256, 2, 256}).run_dense(1);
    const StepPlan plan = plan_step(g, many, {});
    const std::uint32_t normed = value_named(g, "blk.0.attn_norm");
    std::uint64_t scratch = 0;
    for (const std::uint64_t at : plan.memory.scratch_offset) scratch += at != MemoryPlan::kNone;
    const auto has = [&](Form f) { return plan.form(normed, f) != MemoryPlan::kNone; };
    return std::array{has(Form::F16Panels), has(Form::F16), has(Form::F16Unscale), scratch > 0};
  };
  REQUIRE(planned(DType::Q8_0, Many::Wgmma) == std::array{true, false, true, false});
  for (const Many many : {Many::F16, Many::WgmmaExperts})
    REQUIRE(planned(DType::Q8_0, many) == std::array{false, true, true, true});
  REQUIRE(planned(DType::F16, Many::Wgmma) == std::array{false, true, true, false});
  REQUIRE(planned(DType::BF16, Many::Wgmma) == std::array{false, true, true, true});
}

TEST_CASE("experts in tiles want panels, or FP8, wherever the device multiplies them so") {
  enum class Lie : std::uint8_t { Here, Brought };
  const auto planned = [](DType type, Many many, Lie lie = Lie::Here) {
    Graph g = Layers(type, {256, 2, 256}).run(1);
    for (ValueInfo& v : g.mutable_values()) v.streamed = lie == Lie::Brought && v.kind == ValueKind::Weight;
    const StepPlan plan = plan_step(g, many, {});
    const auto has = [&](Form f) { return plan.form(value_named(g, "blk.0.glu"), f) != MemoryPlan::kNone; };
    CHECK(has(Form::F8) == has(Form::F8Scale));
    CHECK((has(Form::F16) || has(Form::F16Panels)) == has(Form::F16Unscale));
    return std::array{has(Form::F16Panels), has(Form::F16), has(Form::F8)};
  };
  for (const Many many : {Many::Wgmma, Many::WgmmaExperts})
    REQUIRE(planned(DType::Q8_0, many) == std::array{true, false, false});
  REQUIRE(planned(DType::Q8_0, Many::F16) == std::array{false, true, false});
  REQUIRE(planned(DType::BF16, Many::Wgmma) == std::array{false, true, false});
  REQUIRE(planned(DType::Q8_0, Many::F8) == std::array{false, false, true});
  REQUIRE(planned(DType::BF16, Many::F8) == std::array{false, true, false});
  REQUIRE(planned(DType::Q8_0, Many::F8, Lie::Brought) == std::array{true, false, false});
}

TEST_CASE("experts in tiles want panels in short steps of many sequences") {
  const auto wants_panels = [](DType type, Many many, Bucket bucket) {
    const Graph g = Layers(type, bucket).run(1);
    return plan_step(g, many, {}).form(value_named(g, "blk.0.glu"), Form::F16Panels) != MemoryPlan::kNone;
  };
  REQUIRE(wants_panels(DType::Q8_0, Many::Wgmma, {16, 9, 16}));
  REQUIRE(wants_panels(DType::Q8_0, Many::Wgmma, {64, 64, 64}));
  REQUIRE_FALSE(wants_panels(DType::Q8_0, Many::Wgmma, {64, 8, 64}));  // drafts
  REQUIRE_FALSE(wants_panels(DType::Q8_0, Many::Wgmma, {8, 8, 8}));
  REQUIRE_FALSE(wants_panels(DType::BF16, Many::Wgmma, {64, 64, 64}));
  for (const Many many : {Many::AsFew, Many::F16}) REQUIRE_FALSE(wants_panels(DType::Q8_0, many, {64, 64, 64}));
}

TEST_CASE("values are kept as f32 where something reads them so") {
  const auto read = [](const Graph& g, const std::vector<bool>& reads, const char* name) {
    return static_cast<bool>(reads[value_named(g, name)]);
  };
  const Graph few = Layers(DType::Q8_0).run(2);
  const std::vector<bool> of_few = values_read_as_f32(few, Many::F16);
  REQUIRE_FALSE(read(few, of_few, "blk.0.attn_norm"));
  REQUIRE_FALSE(read(few, of_few, "blk.1.attn_norm"));
  REQUIRE_FALSE(read(few, of_few, "blk.0.glu"));
  REQUIRE(read(few, of_few, "blk.0.ffn_norm"));  // by the router
  REQUIRE(read(few, of_few, "output_norm"));
  REQUIRE(read(few, of_few, "blk.0.ffn_in"));
  REQUIRE(read(few, of_few, "blk.0.attn"));

  // F16 weights read f32 of few columns, and F16 of many.
  const Graph one = Layers(DType::F16).run(1), many = Layers(DType::F16, {256, 2, 256}).run(1);
  REQUIRE(read(one, values_read_as_f32(one, Many::F16), "blk.0.attn_norm"));
  REQUIRE_FALSE(read(many, values_read_as_f32(many, Many::F16), "blk.0.attn_norm"));
  REQUIRE(read(many, values_read_as_f32(many, Many::AsFew), "blk.0.attn_norm"));
  REQUIRE_FALSE(read(many, values_read_as_f32(many, Many::F16), "blk.0.glu"));  // by grouped products of F16
  REQUIRE(read(many, values_read_as_f32(many, Many::AsFew), "blk.0.glu"));
  const Graph exact = Layers(DType::F32, {256, 2, 256}).run(1);
  REQUIRE(read(exact, values_read_as_f32(exact, Many::F16), "blk.0.glu"));  // F32 would lose by that
}

}  // namespace llm::cuda::test
