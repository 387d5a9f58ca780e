// gemma4: Gemma 4, the text part, from E2B to 31B. Layers that see all have wider heads than those that see a window;
// queries, keys and values are normalised by heads. Small models have more embeddings of each token, a part for each
// layer, and their last layers read the keys and values of earlier ones. In those with experts a dense block runs
// beside the experts.
#include <cmath>
#include <optional>
#include <string>

#include "model/blocks.h"
#include "model/gemma.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr float kLocalBase = 10000;  // of files without a key for it

/// Values are as long as keys, of which they may be made.
int head_length(const HyperParameters& hp, std::string_view key, std::string_view value_key) {
  const auto keys = hp.integer({key, 2, 1 << 16}), values = hp.integer({value_key, 2, 1 << 16});
  if (keys != values)
    hp.fail(value_key,
            "value " + std::to_string(values) + " is not that of " + std::string(key) + ", " + std::to_string(keys));
  return static_cast<int>(keys);
}

GemmaConfig configure(const Metadata& md) {
  GemmaConfig c{
      read_decoder_config(md, "gemma4",
                          {"attention.head_count_kv", "attention.shared_kv_layers", "attention.sliding_window_pattern",
                           "embedding_length_per_layer_input", "feed_forward_length", "final_logit_softcapping"})};
  const HyperParameters hp(md, "gemma4");
  require_all_attend(md, c);
  require_all_feed(md, c);
  require_local_layers(md, c);
  read_gemma(md, c, /*shared=*/0);
  c.spares_values = true;
  head_length(hp, "attention.key_length", "attention.value_length");
  c.local_head_dim = head_length(hp, "attention.key_length_swa", "attention.value_length_swa");
  const IntegerRule local_rotated{"rope.dimension_count_swa", 2, c.local_head_dim};
  c.local_rope = {.n_rot = static_cast<int>(hp.optional_integer(local_rotated).value_or(c.local_head_dim)),
                  .base = read_local_base(md, c, kLocalBase)};
  if (c.local_rope.n_rot % 2 != 0) hp.fail(local_rotated.key, "is odd, but elements are rotated in pairs");
  if (!hp.has("attention.scale")) c.attention_scale = 1;  // the norm of queries takes its place
  c.moe = read_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  if (c.moe) c.moe->activation = Activation::Gelu;
  return c;
}

/// Experts over their own norm of x; their router's logits are of another one.
Act experts(Scope s, const GemmaConfig& c, Act x) {
  const MoeConfig& m = *c.moe;
  Scope router = s.with(Role::Router);
  Act logits = router.rms_norm("ffn_gate_norm", x, c.norm_eps, "ffn_gate_inp.scale");
  logits = router.scale("ffn_gate_scaled", logits, 1 / std::sqrt(static_cast<float>(c.n_embd)));
  logits = router.unscaled_linear("ffn_gate_inp", logits, m.experts);
  const Routes routes =
      router.route("ffn_routes", logits, {.top_k = m.active, .gating = m.gate, .weights = m.weights, .scale = m.scale});
  const Act y = s.rms_norm("pre_ffw_norm_2", x, c.norm_eps);
  const Act sum = expert_ffn(s, m, expert_weights(s, m, c.n_embd), y, routes, "ffn_glu_exps");
  return s.rms_norm("post_ffw_norm_2", sum, c.norm_eps);
}

Act ffn(Scope s, const GemmaConfig& c, Act x) {
  Act y = glu_ffn(s, c, Activation::Gelu, s.rms_norm("ffn_norm", x, c.norm_eps));
  if (!c.moe) return y;
  y = s.rms_norm("post_ffw_norm_1", y, c.norm_eps);
  return s.add("ffn_sum", y, experts(s, c, x));
}

Act forward(Net& net, const GemmaConfig& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves, "rope_freqs");
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, std::sqrt(static_cast<float>(c.n_embd)));
  const std::optional<Act> inputs =
      c.d_per_layer > 0 ? std::optional(per_layer_inputs(net, c, step.tokens, x)) : std::nullopt;
  KeptCaches caches;
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = kept_attention(a, c, c.is_local(i) ? local : global, caches, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", ffn(f, c, x), c.norm_eps));
    if (inputs) x = f.add("per_layer_residual", x, per_layer_part(f, c, x, *inputs));
    x = f.scale("layer_output", x, "layer_output_scale");
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return capped_logits(net, x, c.logit_cap);
}

}  // namespace

ModelSpec open_gemma4(const Metadata& md) {
  const GemmaConfig c = configure(md);
  // Some files hold projections of layers that read those of others.
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"blk.*.attn_k.weight", "blk.*.attn_v.weight", "blk.*.attn_k_norm.weight"}};
}

}  // namespace llm
