// glm4moe: GLM-4.5, 4.5-Air and 4.6. Biases on q, k and v; of some files, heads that are normalised. Behind the dense
// layers, experts chosen by sigmoids and a bias, beside them one that all tokens share.
#include "model/blocks.h"
#include "model/prediction.h"

namespace llm {
namespace {

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(
      md, "glm4moe",
      {"expert_gating_func", "expert_shared_count", "leading_dense_block_count", "nextn_predict_layers"});
  read_sigmoid_experts(md, c);
  refuse_window(md, c);
  leave_prediction_layers_out(md, c);
  return c;
}

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  return s.has("attn_q_norm") ? head_norm_attention(s, c, rot, x) : rotary_attention(s, c, rot, x);
}

/// Layer i.
Act block(Net& net, const DecoderConfig& c, const Rotary& rot, int i, Act x) {
  Scope a = net.layer(i, Role::Attention);
  x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
  Scope f = net.layer(i, Role::Ffn);
  return f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("post_attention_norm", x, c.norm_eps)));
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) x = block(net, c, rot, i, x);
  return net.head("output", final_norm(net, c, x, step.out_rows), c.vocab, /*tied_to=*/"token_embd");
}

Act predict(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  const Act x = block(net, c, rot, c.n_layers, prediction_input(net, c, step.tokens));
  return prediction_logits(net, c, x, step.out_rows);
}

}  // namespace

ModelSpec open_glm4moe(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = c.unread,
          .predict = [c](Net& net) { return predict(net, c); }};
}

}  // namespace llm
