// openelm: OpenELM, 270M to 3B. The later a layer, the more heads it has and the wider is its feed-forward network;
// queries, keys and values are rows of one matrix, heads are normalised.
#include "model/blocks.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  const DecoderConfig c =
      read_dense_config(md, "openelm", {"attention.head_count", "attention.head_count_kv", "feed_forward_length"});
  require_all_attend(md, c);
  require_all_feed(md, c);
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, head_norm_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_openelm(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
