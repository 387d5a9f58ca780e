// deepseek32: DeepSeek V3.2, and with glm-dsa GLM-5, 5.1 and 5.2: attention of latents as deepseek2 has it, but each
// token attends to no more than top_k keys, which the lightning indexer selects (DeepSeek sparse attention,
// arXiv:2512.02556). In GLM-5.2 some layers have no indexer and go by what the last one before them selected. Behind
// the dense layers, experts chosen by sigmoids and a bias, beside them one that all tokens share.
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

struct Config : LatentConfig {
  int index_heads = 0, index_dim = 0, top_k = 0;
  float index_eps = 1e-6f;  ///< of the norm of the index's keys, which published files do not say
  RopePairing index_pairing = RopePairing::Halves;  ///< of the first elements of an index's queries and keys
  std::vector<bool> own_indexer = {};               ///< layers; empty: those whose tensors the file has
};

void read_indexer(const HyperParameters& hp, Config& c) {
  c.index_heads = static_cast<int>(hp.integer({"attention.indexer.head_count", 1, 4096}));
  c.index_dim = static_cast<int>(hp.integer({"attention.indexer.key_length", c.rope.n_rot, 1 << 16}));
  c.top_k = static_cast<int>(hp.integer({kTopK, 1, 1 << 20}));
  c.index_eps = hp.nonzero_real({"attention.layer_norm_epsilon", 0, 1}).value_or(c.index_eps);
  for (const char* key : {"attention.indexer.kpool", "attention.indexer.block_size", "attention.indexer.local_blocks"})
    hp.expect_neutral(key, 0, 1);
  if (const auto flags = hp.optional_flags(kTypes, c.n_layers)) c.own_indexer = *flags;
  if (!c.own_indexer.empty() && !c.own_indexer[0]) hp.fail(kTypes, "gives layer 0 no indexer, and none is before it");
}

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c{{read_decoder_config(md, arch,
                                {"expert_gating_func", "expert_group_count", "expert_shared_count",
                                 "leading_dense_block_count", "nextn_predict_layers", kLatentMultiplier, kTopK})}};
  const HyperParameters hp(md, arch);
  hp.integer({"attention.key_length_mla", 1, 1 << 16});  // of files whose cache holds latents
  hp.integer({"attention.q_lora_rank", 1, 1 << 16});     // the index's queries are made from these, too
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

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved), index_rot{rot.table, c.index_pairing};
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  std::optional<Index> selected;
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps), queries = query_latents(a, c, y);
    if (has_indexer(a, c)) selected = select_keys(a, c, index_rot, y, queries);
    x = a.add("attn_residual", x, selected_latent_attention(a, c, rot, y, queries, *selected));
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
