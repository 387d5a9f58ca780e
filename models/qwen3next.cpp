// qwen3next: Qwen3-Next. Three of four layers go by the gated delta rule instead of attention; value heads of one key
// lie side by side. Experts as in qwen35moe.
#include "model/delta_net.h"

namespace llm {
namespace {

DeltaConfig configure(const Metadata& md) {
  DeltaConfig c = read_delta_config(md, "qwen3next");
  read_delta_experts(md, c);
  return c;
}

/// ssm_ba has, for each key head, the beta of its value heads, then their alpha.
DeltaGates gates_by_key_heads(Scope s, const DeltaConfig& c, Act x) {
  const int shared = c.value_heads / c.key_heads;
  const Act both = s.split_heads("ssm_ba_heads", s.linear("ssm_ba", x, 2 * c.value_heads), c.key_heads);
  const Act beta = s.slice("ssm_beta", both, {.begin = 0, .n = shared});
  const Act alpha = s.slice("ssm_alpha", both, {.begin = shared, .n = shared});
  const Act betas = s.flatten_heads("ssm_betas", beta);
  return {s.flatten_heads("ssm_alphas", alpha), betas};
}

Act forward(Net& net, const DeltaConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    const bool recurrent = c.recurrent[static_cast<std::size_t>(i)];
    x = a.add("attn_residual", x,
              recurrent ? delta_layer(a, c, y, gates_by_key_heads(a, c, y), HeadSharing::Grouped)
                        : gated_attention(a, c, rot, y));
    Scope f = net.layer(i, Role::Ffn);
    const Act normal = f.rms_norm("post_attention_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, gated_shared_moe_ffn(f, *c.moe, normal, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_qwen3next(const Metadata& md) {
  const DeltaConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
