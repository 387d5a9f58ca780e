// glm5-next: GLM-5.3-Flash, the text part. Most layers go by Kimi Delta Attention, with decays to a floor; the others
// attend to latents without positions, each token to those keys that an index selects: groups of neighbouring
// positions, by one key for each group, and the positions behind the last whole one. Some of these layers go by what
// the last one before them selected. Several streams run through the layers (model/hyper_connections.h), the output
// reads their mean. Behind the dense layers, experts chosen by sigmoids and a bias, beside them one that all tokens
// share.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hyper_connections.h"
#include "model/hyper_parameters.h"
#include "model/kimi_delta.h"

namespace llm {
namespace {

constexpr std::string_view kTopK = "attention.indexer.top_k", kPool = "attention.indexer.kpool",
                           kTypes = "attention.indexer.types", kRotated = "rope.dimension_count",
                           kSharedLimits = "swiglu_clamp_shexp";

struct Config : KimiDeltaConfig {
  ConnectionConfig connections = {};
  int index_heads = 0, index_dim = 0;
  int pool = 0;                        ///< positions that are selected together
  int top_k = 0;                       ///< SelectKeys::top_k
  float index_eps = 1e-6f;             ///< of the norm of the index's keys
  std::vector<bool> own_indexer = {};  ///< layers; empty: all that attend
  std::vector<float> limits = {}, shared_limits = {};

  bool selects(int layer) const { return own_indexer.empty() || own_indexer[static_cast<std::size_t>(layer)]; }
};

/// The first layer that attends selects by its own.
void require_first_indexer(const HyperParameters& hp, const Config& c) {
  for (int i = 0; i < c.n_layers; ++i) {
    if (!c.attends(i)) continue;
    if (!c.selects(i)) hp.fail(kTypes, "gives layer " + std::to_string(i) + " no indexer, and none is before it");
    return;
  }
}

void read_indexer(const HyperParameters& hp, Config& c) {
  c.index_heads = static_cast<int>(hp.integer({"attention.indexer.head_count", 1, 4096}));
  c.index_dim = static_cast<int>(hp.integer({"attention.indexer.key_length", 1, 1 << 16}));
  c.pool = static_cast<int>(hp.integer({kPool, 2, 1 << 10}));
  const std::int64_t selected = hp.integer({kTopK, c.pool, 1 << 20});
  if (selected % c.pool != 0)
    hp.fail(kTopK, "value " + std::to_string(selected) + " is no multiple of " + std::string(kPool) + ", " +
                       std::to_string(c.pool));
  c.top_k = static_cast<int>(selected) + c.pool - 1;  // with what is behind the last whole group
  hp.expect_neutral("attention.indexer.kpool_select_tail", 1, 1);
  c.index_eps = hp.nonzero_real({"attention.layer_norm_epsilon", 0, 1}).value_or(c.index_eps);
  for (const char* key : {"attention.indexer.block_size", "attention.indexer.local_blocks"})
    hp.expect_neutral(key, 0, 1);
  if (const auto flags = hp.optional_flags(kTypes, c.n_layers)) c.own_indexer = *flags;
  require_first_indexer(hp, c);
}

Config configure(const Metadata& md) {
  constexpr std::string_view kArch = "glm5-next";
  Config c{{{read_decoder_config(md, kArch,
                                 {"attention.head_count_kv", "expert_gating_func", "expert_shared_count",
                                  "leading_dense_block_count", "nextn_predict_layers", kRotated, kTopK})}}};
  const HyperParameters hp(md, kArch);
  hp.expect_neutral(kRotated, 0, 0);
  hp.integer({"attention.q_lora_rank", 1, 1 << 16});  // the index's queries are made from these, too
  if (const auto floor = hp.nonzero_real({"kda.gate_lower_bound", -kUnbounded, 0})) c.floor = *floor;
  read_kimi_delta(md, c);
  c.delta_eps = 1e-6f;
  read_sigmoid_experts(md, c);
  c.limits = read_limits(md, c, "swiglu_clamp_exp");
  c.shared_limits = hp.has(kSharedLimits) ? read_limits(md, c, kSharedLimits) : c.limits;
  c.connections = read_connections(hp);
  leave_prediction_layers_out(md, c);
  read_indexer(hp, c);  // of the model's own layers
  return c;
}

/// Factors of the heads' weights that are the same for all keys, which the models' own code has, do not change the
/// choice.
Index select_keys(Scope s, const Config& c, Act x, Act query_latents) {
  const Act queries = s.linear("indexer.attn_q_b", query_latents, std::int64_t{c.index_heads} * c.index_dim);
  const Act q = s.split_heads("indexer.q_heads", queries, c.index_heads);
  const Act keys = s.layer_norm("indexer.k_norm", s.linear("indexer.attn_k", x, c.index_dim), c.index_eps);
  const Act scores = s.linear("indexer_compressor_gate", x, c.index_dim);
  const Act one = s.compress("indexer_pooled", keys, scores, "indexer_compressor_ape", c.index_dim, c.pool,
                             RecurrentType::Part::CompressIndex);
  const Cache index = s.index_append(s.split_heads("indexer_key", one, 1), c.pool);
  return s.select_keys(q, s.linear("indexer.proj", x, c.index_heads), index, c.top_k);
}

Act attention(Scope s, const Config& c, Act x, std::optional<Index>& selected) {
  if (!c.attends(s.layer())) return kimi_delta_attention(s, c, x);
  const Act queries = query_latents(s, c, x);
  if (c.selects(s.layer())) selected = select_keys(s, c, x, queries);
  return attention_output(s, c, selected_latent_results(s, c, {}, x, queries, *selected));
}

Act ffn(Scope s, const Config& c, Act x) {
  const auto layer = static_cast<std::size_t>(s.layer());
  MoeConfig m = *c.moe;
  m.limit = limits_of_gates(c.limits[layer]);
  m.shared_limit = limits_of_gates(c.shared_limits[layer]);
  if (m.is_in(s.layer())) return shared_moe_ffn(s, m, x, c.n_embd);
  return glu_ffn(s, c, Glu{.limit = m.shared_limit.all, .gate_limit = m.shared_limit.gate}, x);
}

Act mean_of_streams(Scope s, const Config& c, Act streams) {
  const Act flat = s.flatten_heads("streams_wanted", streams);
  const auto one = [&](int i) { return s.slice("stream_" + std::to_string(i), flat, {i * c.n_embd, c.n_embd}); };
  Act sum = one(0);
  for (int i = 1; i < c.connections.streams; ++i) sum = s.add("streams_to_" + std::to_string(i), sum, one(i));
  return s.scale("streams_mean", sum, 1 / static_cast<float>(c.connections.streams));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Act embedding = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  Act streams = several_streams(net.top(Role::Embed), embedding, c.connections.streams);
  std::optional<Index> selected;
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const StreamReading in = read_connection(a, c.connections, "hc_attn", streams, c.norm_eps);
    const Act y = attention(a, c, a.rms_norm("attn_norm", in.x, c.norm_eps), selected);
    streams = write_connection(a, "attn", streams, y, in.shares);
    Scope f = net.layer(i, Role::Ffn);
    const StreamReading between = read_connection(f, c.connections, "hc_ffn", streams, c.norm_eps);
    const Act z = ffn(f, c, f.rms_norm("ffn_norm", between.x, c.norm_eps));
    streams = write_connection(f, "ffn", streams, z, between.shares);
  }
  Scope h = net.top(Role::Head);
  const Act mean = mean_of_streams(h, c, net.rows(streams, step.out_rows));
  return net.head("output", h.rms_norm("output_norm", mean, c.norm_eps), c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_glm5_next(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
