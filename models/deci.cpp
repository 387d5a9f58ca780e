// deci: DeciLM, and what was made of Llama 3 by a search over its blocks: Nemotron 51B, Super 49B, Ultra 253B. Layers
// differ in their heads of keys and in the width of the feed-forward network; some have a product in place of
// attention, or none, and some no feed-forward network.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  return read_dense_config(md, "deci", {"attention.head_count", "attention.head_count_kv", "feed_forward_length"});
}

/// With heads of queries alone it is a product.
Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const Act y = s.rms_norm("attn_norm", x, c.norm_eps);
  return c.attends(s.layer()) ? rotary_attention(s, c, rot, y) : s.linear("attn_output", y, c.n_embd);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    if (c.of(i).heads > 0) x = a.add("attn_residual", x, attention(a, c, rot, x));
    Scope f = net.layer(i, Role::Ffn);
    if (c.of(i).d_ff == 0) continue;
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_deci(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
