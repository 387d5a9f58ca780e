// mimo2: MiMo-V2-Flash. Most layers see a window, with a sink in every head and more heads of keys than the others
// have, which see all; both turn a part of each head, by bases of their own. Values are shorter than keys. Behind a
// dense layer, experts chosen by sigmoids and a bias.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  RopeTable local_rope = {};  ///< of layers with a window
  float value_scale = 1;      ///< of what attention gives
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "mimo2",
                               {"attention.head_count", "attention.head_count_kv", "attention.sliding_window_pattern",
                                "attention.value_scale", "expert_gating_func", "nextn_predict_layers"})};
  const HyperParameters hp(md, "mimo2");
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  read_gating(md, c, Gating::Sigmoid);
  require_local_layers(md, c);
  c.local_rope = c.rope;
  c.local_rope.base = read_local_base(md, c, c.rope.base);
  c.value_scale = hp.nonzero_real({"attention.value_scale", 0, kUnbounded}).value_or(1.0f);
  require_all_attend(md, c);
  leave_prediction_layers_out(md, c);
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = rotate_heads(s, attention_heads(s, c, x), rot);
  const Act y = s.has("attn_sinks") ? results_with_sinks(s, c, heads) : results_by_heads(s, c, heads);
  const Act out = attention_output(s, c, y);
  return c.value_scale == 1 ? out : s.scale("attn_scaled", out, c.value_scale);
}

/// Files do not say how many layers are dense.
Act ffn(Scope s, const Config& c, Act x) {
  if (s.has("ffn_gate_inp")) return moe_ffn(s, *c.moe, x, c.n_embd);
  return glu_ffn(s, c, Activation::Silu, x);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves);
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, attention(a, c, c.is_local(i) ? local : global, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_mimo2(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
