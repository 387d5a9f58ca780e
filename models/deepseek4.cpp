// deepseek4: DeepSeek V4. Several streams run through the layers (model/hyper_connections.h). Attention has one key for
// all heads, which is its own value, so that results are turned back; it sees a window of these, and of most layers, in
// the same softmax, keys that each stand for several positions: 4, overlapping, of which an index selects some, or 128,
// all of them. The first layers' experts are those that a table gives each token. Beside them is one that all tokens
// share.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_connections.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr std::string_view kTopK = "attention.indexer.top_k", kRatios = "attention.compress_ratios",
                           kGating = "expert_gating_func", kPredict = "nextn_predict_layers",
                           kGroups = "attention.output_group_count", kSharedLimits = "swiglu_clamp_shexp";
constexpr int kSelecting = 4;  ///< the ratio of layers with an index, whose keys overlap
constexpr int kSparse = 128;   ///< that of those without
constexpr std::int64_t kRootSoftplus = 4;

struct Config : DecoderConfig {
  std::int64_t query_rank = 0, output_rank = 0;
  int output_groups = 0;
  int index_heads = 0, index_dim = 0, top_k = 0;
  std::vector<int> ratios = {};    ///< of a layer, positions that one key stands for; 0: there are none of these
  RopeTable compressed_rope = {};  ///< of layers that have some
  ConnectionConfig connections = {};
  int hash_layers = 0;
  std::vector<float> limits = {}, shared_limits = {};

  int ratio(int layer) const { return ratios[static_cast<std::size_t>(layer)]; }
};

/// Files may have more than one for each layer.
void read_ratios(const HyperParameters& hp, Config& c) {
  const Metadata::Entry* const entry = hp.metadata().find(hp.key(kRatios));
  const auto layers = static_cast<std::size_t>(c.n_layers);
  const std::size_t all = entry != nullptr ? static_cast<std::size_t>(entry->count) : layers;
  const auto list = hp.metadata().one_or_each<std::int64_t>(hp.key(kRatios), all);
  if (list.size() < layers)
    hp.fail(kRatios, "has " + std::to_string(list.size()) + " elements, at least " + std::to_string(layers) +
                         " are needed, one for each layer");
  for (std::size_t i = 0; i < layers; ++i) {
    if (list[i] != 0 && list[i] != kSelecting && list[i] != kSparse)
      hp.fail(kRatios, "value " + std::to_string(list[i]) + " is not supported, only 0, " + std::to_string(kSelecting) +
                           " and " + std::to_string(kSparse));
    c.ratios.push_back(static_cast<int>(list[i]));
  }
}

void read_heads(const HyperParameters& hp, Config& c) {
  const auto [heads, kv_heads, d_ff] = c.most();
  if (kv_heads != 1) hp.fail("attention.head_count_kv", "value " + std::to_string(kv_heads) + " is not 1");
  if (c.head_dim_v != c.head_dim)
    hp.fail("attention.value_length", "value " + std::to_string(c.head_dim_v) + " is not that of key_length, " +
                                          std::to_string(c.head_dim) + ": keys are their own values");
  if (c.rope.n_rot >= c.head_dim)
    hp.fail("rope.dimension_count",
            "value " + std::to_string(c.rope.n_rot) + " leaves nothing of heads of " + std::to_string(c.head_dim));
  hp.integer({"attention.sliding_window", 1, 1 << 30});
  hp.expect_neutral("attention.scale", 0, 0);
  c.query_rank = hp.integer({"attention.q_lora_rank", 1, 1 << 16});
  c.output_rank = hp.integer({"attention.output_lora_rank", 1, 1 << 16});
  c.output_groups = static_cast<int>(hp.integer({kGroups, 1, heads}));
  if (heads % c.output_groups != 0)
    hp.fail(kGroups,
            "value " + std::to_string(c.output_groups) + " does not share out head_count " + std::to_string(heads));
}

void read_index(const HyperParameters& hp, Config& c) {
  c.index_heads = static_cast<int>(hp.integer({"attention.indexer.head_count", 1, 4096}));
  c.index_dim = static_cast<int>(hp.integer({"attention.indexer.key_length", c.rope.n_rot + 1, 1 << 16}));
  c.top_k = static_cast<int>(hp.integer({kTopK, 1, 1 << 20}));
  for (const char* key : {"attention.indexer.kpool", "attention.indexer.block_size", "attention.indexer.local_blocks"})
    hp.expect_neutral(key, 0, 1);
}

/// Layers with compressed keys turn by another base, and alone are stretched to longer contexts, which leaves the
/// lengths of keys and queries as they are.
void read_rotation(const HyperParameters& hp, Config& c) {
  hp.expect_neutral("rope.scaling.attn_factor", 0, 1);
  c.compressed_rope = c.rope;
  c.compressed_rope.base = hp.real({"attention.compress_rope_freq_base", 0, kUnbounded});
  c.compressed_rope.attention_factor =
      c.rope.scaling == RopeScaling::Yarn ? 1 / (1 + 0.1f * std::log(c.rope.factor)) : 1.0f;
  c.rope = {.n_rot = c.rope.n_rot, .base = c.rope.base};
}

void read_experts(const Metadata& md, const HyperParameters& hp, Config& c) {
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  const std::int64_t gating = hp.integer({kGating, 0, 1 << 20});
  if (gating != kRootSoftplus)
    hp.fail(kGating, "value " + std::to_string(gating) + " is not supported, only " + std::to_string(kRootSoftplus) +
                         " (the root of a softplus)");
  c.moe->gate = Gating::RootSoftplus;
  read_shared_experts(md, c);
  c.hash_layers = static_cast<int>(hp.integer({"hash_layer_count", 0, c.n_layers}));
  c.limits = read_limits(md, c, "swiglu_clamp_exp");
  c.shared_limits = hp.has(kSharedLimits) ? read_limits(md, c, kSharedLimits) : c.limits;
}

Config configure(const Metadata& md) {
  constexpr std::string_view kArch = "deepseek4";
  Config c{read_decoder_config(md, kArch, {kTopK, kGating, kPredict, "expert_shared_count"})};
  const HyperParameters hp(md, kArch);
  read_heads(hp, c);
  read_ratios(hp, c);
  read_index(hp, c);
  read_rotation(hp, c);
  c.connections = read_connections(hp);
  read_experts(md, hp, c);
  leave_prediction_layers_out(md, c);
  return c;
}

// --- attention ---

/// Of tokens, of what undoes that, and of blocks of so many tokens, of which they are the last ones.
struct Angles {
  Rotary tokens, back, blocks;
};
struct AllAngles {
  Angles plain, selecting, sparse;
  const Angles& of(int ratio) const { return ratio == 0 ? plain : ratio == kSelecting ? selecting : sparse; }
};

/// Nodes that no layer reads are dropped.
AllAngles tables(Net& net, const Config& c) {
  const auto table = [&](RopeTable attributes, const std::string& name) {
    return net.rotary(attributes, RopePairing::Interleaved, {}, name);
  };
  const auto back = [](RopeTable attributes) {
    attributes.back = true;
    return attributes;
  };
  const auto blocks = [&](int ratio) {
    RopeTable attributes = c.compressed_rope;
    attributes.offset = 1 - ratio;
    return table(attributes, "rope_table_blocks_" + std::to_string(ratio));
  };
  const Rotary tokens = table(c.rope, "rope_table"), tokens_back = table(back(c.rope), "rope_table_back");
  const Rotary turned = table(c.compressed_rope, "rope_table_compressed");
  const Rotary turned_back = table(back(c.compressed_rope), "rope_table_compressed_back");
  const Rotary of_few = blocks(kSelecting), of_many = blocks(kSparse);
  return {{tokens, tokens_back, tokens}, {turned, turned_back, of_few}, {turned, turned_back, of_many}};
}

/// x [n, heads, tokens] with the last elements of each head turned.
Act turn_ends(Scope s, const Config& c, const std::string& name, Act x, const Rotary& rot) {
  const std::int64_t plain = s.shape(x)[0] - c.rope.n_rot;
  const Act before = s.slice(name + "_plain", x, {0, plain});
  const Act end = s.slice(name + "_end", x, {plain, c.rope.n_rot});
  return s.concat(name, before, s.rope(name + "_rope", end, rot));
}

/// Of several positions each, [n, 1, tokens]: the last ones' rows count.
Act compressed_keys(Scope s, const Config& c, const Angles& angles, const std::string& name, Act x, std::int64_t n,
                    RecurrentType::Part part) {
  const int ratio = c.ratio(s.layer());
  const std::int64_t width = ratio == kSelecting ? 2 * n : n;
  const Act keys = s.linear(name + "_kv", x, width);
  const Act scores = s.linear(name + "_gate", x, width);
  const Act rows = s.compress(name, keys, scores, name + "_ape", n, ratio, part);
  const Act normal = s.rms_norm(name + "_norm", rows, c.norm_eps);
  return turn_ends(s, c, name + "_key", s.split_heads(name + "_head", normal, 1), angles.blocks);
}

/// The heads' weights have a factor in the model's own code that is the same for all keys; the choice is that without.
Index select_keys(Scope s, const Config& c, const Angles& angles, Act x, Act query_latents) {
  const Act k = compressed_keys(s, c, angles, "indexer_compressor", x, c.index_dim, RecurrentType::Part::CompressIndex);
  const Cache index = s.index_append(k, c.ratio(s.layer()));
  const Act all = s.linear("indexer.attn_q_b", query_latents, std::int64_t{c.index_heads} * c.index_dim);
  const Act q = turn_ends(s, c, "indexer.q", s.split_heads("indexer.q_heads", all, c.index_heads), angles.tokens);
  const Act weights = s.linear("indexer.proj", x, c.index_heads);
  return s.choose_keys(q, weights, index, c.top_k);
}

Act seen(Scope s, const Config& c, const Angles& angles, Act x, Act query_latents, Act q, Act kv) {
  constexpr std::string_view kSinks = "attn_sinks";
  const int ratio = c.ratio(s.layer());
  const KeyWindow window(c.window);
  const Cache cache = s.kv_append(kv, kv);
  if (ratio == 0) return s.attention(q, cache, {.scale = c.attention_scale, .window = window}, kSinks);
  const Act keys = compressed_keys(s, c, angles, "attn_compressor", x, c.head_dim, RecurrentType::Part::Compress);
  const Cache compressed = s.compressed_append(keys, ratio);
  const CompressedAttention attributes{.scale = c.attention_scale, .window = window};
  if (ratio == kSparse) return s.compressed_attention(q, cache, compressed, attributes, kSinks);
  const Index selected = select_keys(s, c, angles, x, query_latents);
  return s.compressed_attention(q, cache, compressed, attributes, kSinks, &selected);
}

Act attention(Scope s, const Config& c, const AllAngles& all, Act x) {
  const Angles& angles = all.of(c.ratio(s.layer()));
  const int heads = c.of(s.layer()).heads;
  const Act latents = s.rms_norm("attn_q_a_norm", s.linear("attn_q_a", x, c.query_rank), c.norm_eps);
  const Act queries =
      s.split_heads("attn_q_heads", s.linear("attn_q_b", latents, std::int64_t{heads} * c.head_dim), heads);
  const Act q = turn_ends(s, c, "attn_q", s.unit_rms_norm("attn_q_norm", queries, c.norm_eps), angles.tokens);
  const Act normal = s.rms_norm("attn_kv_a_norm", s.linear("attn_kv", x, c.head_dim), c.norm_eps);
  const Act kv = turn_ends(s, c, "attn_kv_key", s.split_heads("attn_kv_head", normal, 1), angles.tokens);
  const Act y = turn_ends(s, c, "attn_back", seen(s, c, angles, x, latents, q, kv), angles.back);
  const Act flat = s.flatten_heads("attn_results", y);
  const Act low = s.group_linear("attn_output_a", s.split_heads("attn_groups", flat, c.output_groups), c.output_rank);
  return s.linear("attn_output_b", s.flatten_heads("attn_output_low", low), c.n_embd);
}

// --- feed-forward networks ---

Act ffn(Scope s, const Config& c, Act x) {
  const auto layer = static_cast<std::size_t>(s.layer());
  MoeConfig m = *c.moe;
  m.limit = limits_of_gates(c.limits[layer]);
  m.shared_limit = limits_of_gates(c.shared_limits[layer]);
  if (s.layer() >= c.hash_layers) return shared_moe_ffn(s, m, x, c.n_embd);
  const ExpertWeights weights = expert_weights(s, m, c.n_embd);
  Scope router = s.with(Role::Router);
  const Act logits = router.linear("ffn_gate_inp", x, m.experts);
  const Routes routes = router.route_by_table("ffn_routes", logits, routing(m), "ffn_gate_tid2eid", c.vocab);
  const Act y = expert_ffn(s, m, weights, x, routes);
  return m.d_shared > 0 ? s.add("ffn_sum", y, shared_expert(s, m, x, c.n_embd)) : y;
}

/// Some files count layers that predict and have none: then all are the model's.
int own_layers(Net& net, const Config& c) {
  const bool all = !c.ahead.empty() && !net.layer(c.n_layers, Role::Ffn).has("nextn.eh_proj");
  return all ? c.n_layers + static_cast<int>(c.ahead.size()) : c.n_layers;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const AllAngles angles = tables(net, c);
  const Act embedding = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  Act streams = several_streams(net.top(Role::Embed), embedding, c.connections.streams);
  const int layers = own_layers(net, c);
  for (int i = 0; i < layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const StreamReading in = read_connection(a, c.connections, "hc_attn", streams, c.norm_eps);
    const Act y = attention(a, c, angles, a.rms_norm("attn_norm", in.x, c.norm_eps));
    streams = write_connection(a, "attn", streams, y, in.shares);
    Scope f = net.layer(i, Role::Ffn);
    const StreamReading between = read_connection(f, c.connections, "hc_ffn", streams, c.norm_eps);
    const Act z = ffn(f, c, f.rms_norm("ffn_norm", between.x, c.norm_eps));
    streams = write_connection(f, "ffn", streams, z, between.shares);
  }
  Scope h = net.top(Role::Head);
  const Act wanted = net.rows(streams, step.out_rows);
  const Act weights = weigh_streams(h, "output_hc", wanted, c.connections.streams, c.norm_eps);
  const Act read = h.stream_read("output_hc", weights, "output_hc_scale", "output_hc_base", c.connections.weights);
  const Act x = h.rms_norm("output_norm", read_streams(h, "output_hc", wanted, read), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_deepseek4(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
