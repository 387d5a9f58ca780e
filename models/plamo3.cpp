// plamo3: PLaMo 3. Blocks have norms on both sides, heads are normalised; queries, keys and values are rows of one
// matrix, gate and up of another. Most layers see a window, and turn heads by a base of their own.
#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kPeriod = 8;  // where the file does not say

struct Config : DecoderConfig {
  RopeTable local_rope = {};  ///< of layers with a window, whose angles no scaling changes
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "plamo3", {"attention.sliding_window_pattern"})};
  refuse_experts(md, c);
  if (c.window > 0) read_local_layers(md, c, kPeriod);
  c.local_rope = {.n_rot = c.rope.n_rot};
  c.local_rope.base = read_local_base(md, c, c.local_rope.base);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves);
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = head_norm_attention(a, c, c.is_local(i) ? local : global, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, bare_rms_norm(a, "post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = fused_glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, bare_rms_norm(f, "post_ffw_norm", y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_plamo3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
