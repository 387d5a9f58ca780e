// qwen35: the dense Qwen3.5 models, the text part. Three of four layers go by the gated delta rule instead of
// attention; value heads lie so that heads of one key are apart.
#include "model/delta_net.h"

namespace llm {
namespace {

DeltaConfig configure(const Metadata& md) {
  DeltaConfig c = read_delta_config(md, "qwen35");
  refuse_experts(md, c);
  require_text_sections(md, c);
  return c;
}

Act forward(Net& net, const DeltaConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    const bool recurrent = c.recurrent[static_cast<std::size_t>(i)];
    x = a.add(
        "attn_residual", x,
        recurrent ? delta_layer(a, c, y, delta_gates(a, c, y), HeadSharing::Tiled) : gated_attention(a, c, rot, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x,
              glu_ffn(f, Activation::Silu, f.rms_norm("post_attention_norm", x, c.norm_eps), c.d_ff, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_qwen35(const Metadata& md) {
  const DeltaConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
