// qwen2moe: Qwen1.5-MoE and the Qwen2 models with experts. Attention of qwen2; every layer has experts, whose weights
// are their gates' as they are, and one that all tokens share, behind a gate of its own.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "qwen2moe", {"expert_shared_feed_forward_length"});
  const HyperParameters hp(md, "qwen2moe");
  const std::int64_t used = hp.optional_integer({"expert_used_count", 1, 4096}).value_or(1);
  c.moe = require_moe_config(md, c, c.most().d_ff / used, RouteWeights::AsGated);  // of files that do not say it
  refuse_window(md, c);
  const std::int64_t shared = read_shared_width(md, c);
  c.moe->d_shared = shared > 0 ? shared : c.most().d_ff;
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, gated_shared_moe_ffn(f, *c.moe, y, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_qwen2moe(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
