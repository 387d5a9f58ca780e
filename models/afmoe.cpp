// afmoe: Arcee's Trinity Nano, Mini and Large. Blocks have norms on both sides, heads are normalised, and what
// attention gives passes a gate. Of every four layers three see a window and turn heads, the fourth sees all without
// positions. Behind the dense layers, experts chosen by sigmoids and a bias, beside them one that all tokens share.
#include <cmath>

#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(
      md, "afmoe",
      {"attention.sliding_window_pattern", "expert_gating_func", "expert_shared_count", "leading_dense_block_count"});
  read_sigmoid_experts(md, c);
  read_local_layers(md, c, kPeriod);
  return c;
}

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const Act gate = s.linear("attn_gate", x, c.of(s.layer()).heads * c.head_dim_v);
  const AttentionHeads normal = normalize_heads(s, c, heads);
  const bool turns = c.local[static_cast<std::size_t>(s.layer())];
  const Act results = results_by_heads(s, c, turns ? rotate_heads(s, normal, rot) : normal);
  const Act y = s.flatten_heads("attn_flat", results);
  return s.linear("attn_output", s.glu(Activation::Sigmoid, gate, y, "attn_gated"), c.n_embd);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, std::sqrt(static_cast<float>(c.n_embd)));
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_afmoe(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
