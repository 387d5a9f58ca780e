// deepseek32: DeepSeek V3.2, and with glm-dsa GLM-5, 5.1 and 5.2: attention of latents as deepseek2 has it, but each
// token attends to no more than top_k keys, which the lightning indexer selects (DeepSeek sparse attention,
// arXiv:2512.02556). In GLM-5.2 some layers have no indexer and go by what the last one before them selected. Behind
// the dense layers, experts chosen by sigmoids and a bias, beside them one that all tokens share.
// dots3note: dots3-note, the text part. Most layers see a window instead, with latents and heads of other sizes and
// another base; what heads attend to passes a gate of theirs, and the part of the keys that they share is normalised.
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"
#include "model/latent_attention.h"

namespace llm {
namespace {

constexpr std::string_view kTopK = "attention.indexer.top_k", kTypes = "attention.indexer.types";
constexpr std::int64_t kMostElements = 1 << 16;

struct Config : LatentConfig {
  int index_heads = 0, index_dim = 0, top_k = 0;
  float index_eps = 1e-6f;  ///< of the norm of the index's keys, which published files do not say
  RopePairing index_pairing = RopePairing::Halves;  ///< of the first elements of an index's queries and keys
  std::vector<bool> own_indexer = {};               ///< layers; empty: those whose tensors the file has
  LatentConfig with_window = {};                    ///< of layers that see a window
};

/// The first layer that selects does so by its own.
void require_first_indexer(const HyperParameters& hp, const Config& c) {
  int first = 0;
  while (first < c.n_layers && c.is_local(first)) ++first;
  if (first < c.n_layers && !c.own_indexer[static_cast<std::size_t>(first)])
    hp.fail(kTypes, "gives layer " + std::to_string(first) + " no indexer, and none is before it");
}

void read_indexer(const HyperParameters& hp, Config& c) {
  c.index_heads = static_cast<int>(hp.integer({"attention.indexer.head_count", 1, 4096}));
  c.index_dim = static_cast<int>(hp.integer({"attention.indexer.key_length", c.rope.n_rot, 1 << 16}));
  c.top_k = static_cast<int>(hp.integer({kTopK, 1, 1 << 20}));
  c.index_eps = hp.nonzero_real({"attention.layer_norm_epsilon", 0, 1}).value_or(c.index_eps);
  for (const char* key : {"attention.indexer.kpool", "attention.indexer.block_size", "attention.indexer.local_blocks"})
    hp.expect_neutral(key, 0, 1);
  if (const auto flags = hp.optional_flags(kTypes, c.n_layers)) c.own_indexer = *flags;
  if (!c.own_indexer.empty()) require_first_indexer(hp, c);
}

void require_latents(const HyperParameters& hp) {
  hp.integer({"attention.key_length_mla", 1, kMostElements});  // of files whose cache holds latents
  hp.integer({"attention.q_lora_rank", 1, kMostElements});     // the index's queries are made from these, too
}

float scale_of(const LatentConfig& c) { return 1 / std::sqrt(static_cast<float>(c.head_key)); }

LatentConfig read_window_layers(const Metadata& md, const HyperParameters& hp, const LatentConfig& c) {
  LatentConfig w = c;
  w.latent = hp.integer({"attention.kv_lora_rank_swa", 1, kMostElements});
  w.head_key = hp.integer({"attention.key_length_mla_swa", c.rope.n_rot + 1, kMostElements});
  w.head_value = hp.integer({"attention.value_length_mla_swa", 1, kMostElements});
  w.attention_scale = scale_of(w);
  w.rope.base = read_local_base(md, c, c.rope.base);
  return w;
}

Config configure_note(const Metadata& md) {
  Config c{{read_decoder_config(md, "dots3note",
                                {"attention.head_count", "attention.sliding_window_pattern", "expert_gating_func",
                                 "expert_shared_count", "leading_dense_block_count", "nextn_predict_layers", kTopK})}};
  const HyperParameters hp(md, c.architecture);
  require_latents(hp);
  require_all_attend(md, c);
  read_latent_heads(md, c);
  c.attention_scale = scale_of(c);
  read_sigmoid_experts(md, c);
  leave_prediction_layers_out(md, c);  // of which the flags of layers say nothing
  require_local_layers(md, c);
  c.with_window = read_window_layers(md, hp, c);
  read_indexer(hp, c);
  return c;
}

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  if (arch == "dots3note") return configure_note(md);
  Config c{{read_decoder_config(md, arch,
                                {"expert_gating_func", "expert_group_count", "expert_shared_count",
                                 "leading_dense_block_count", "nextn_predict_layers", kLatentMultiplier, kTopK})}};
  const HyperParameters hp(md, arch);
  require_latents(hp);
  read_latent_heads(md, c);
  read_latent_scale(md, c);
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  read_expert_groups(md, c);
  read_shared_experts(md, c);
  read_leading_dense(md, c);
  refuse_window(md, c);
  leave_prediction_layers_out(md, c);
  if (arch == "glm-dsa") c.index_pairing = RopePairing::Interleaved;
  read_indexer(hp, c);
  return c;
}

/// The indexer's score of a key is a sum over heads, each with a weight of the token's. Factors that are the same for
/// all keys, which the models' own code has, do not change the choice.
Index select_keys(Scope s, const Config& c, const Rotary& rot, Act x, Act query_latents) {
  const Act all = s.linear("indexer.attn_q_b", query_latents, std::int64_t{c.index_heads} * c.index_dim);
  const Act q = s.rope("indexer.q_rope", s.split_heads("indexer.q_heads", all, c.index_heads), rot);
  const Act normal = s.layer_norm("indexer.k_norm", s.linear("indexer.attn_k", x, c.index_dim), c.index_eps);
  const Act k = s.rope("indexer.k_rope", s.split_heads("indexer.k_head", normal, 1), rot);
  const Act weights = s.linear("indexer.proj", x, c.index_heads);
  return s.select_keys(q, weights, s.index_append(k), c.top_k);
}

bool has_indexer(const Scope& s, const Config& c) {
  if (!c.own_indexer.empty()) return c.own_indexer[static_cast<std::size_t>(s.layer())];
  return s.layer() == 0 || s.has("indexer.attn_k");
}

struct SelectingAngles {
  Rotary heads, index;
};

/// By a selection of the layer's own, or by the last one before it.
Act attend_to_selected(Scope s, const Config& c, const SelectingAngles& rot, Act x, std::optional<Index>& selected) {
  const Act queries = query_latents(s, c, x);
  if (has_indexer(s, c)) selected = select_keys(s, c, rot.index, x, queries);
  return selected_latent_results(s, c, rot.heads, x, queries, *selected);
}

/// Of some models each head has a gate.
Act output(Scope s, const Config& c, Act x, Act results) {
  if (!s.has("attn_gate")) return attention_output(s, c, results);
  const int n = c.of(s.layer()).heads;
  const Act gate = s.split_heads("attn_gate_heads", s.linear("attn_gate", x, n), n);
  return attention_output(s, c, s.glu(Activation::Sigmoid, gate, results, "attn_gated"));
}

/// Of layers that see all, and perhaps of those that see a window.
struct Angles {
  Rotary all;
  std::optional<Rotary> window = {};
};

Angles angles_of(Net& net, const Config& c) {
  Angles angles{net.rotary(c.rope, RopePairing::Interleaved)};
  if (c.window > 0) angles.window = net.rotary(c.with_window.rope, RopePairing::Interleaved, {}, "rope_table_local");
  return angles;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Angles angles = angles_of(net, c);
  const Rotary index_rot{angles.all.table, c.index_pairing};
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  std::optional<Index> selected;
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    const Act seen = c.is_local(i) ? latent_results(a, c.with_window, angles.window, {}, y)
                                   : attend_to_selected(a, c, {angles.all, index_rot}, y, selected);
    x = a.add("attn_residual", x, output(a, c, y, seen));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_deepseek32(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
