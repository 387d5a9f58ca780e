// qwen35, qwen35moe: the Qwen3.5 models, dense and with experts, the text part. Three of four layers go by the gated
// delta rule instead of attention; value heads lie so that heads of one key are apart. With experts, every layer routes
// its tokens, the weights of the chosen ones sum to 1, and beside them there is one that all tokens share.
#include <string_view>

#include "model/delta_net.h"
#include "model/prediction.h"

namespace llm {
namespace {

DeltaConfig configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  DeltaConfig c = read_delta_config(md, arch);
  if (arch == "qwen35moe")
    read_delta_experts(md, c);
  else
    refuse_experts(md, c);
  require_text_sections(md, c);
  return c;
}

Act ffn(Scope s, const DeltaConfig& c, Act x) {
  return c.moe ? gated_shared_moe_ffn(s, *c.moe, x, c.n_embd) : glu_ffn(s, c, Activation::Silu, x);
}

/// Layer i. Those that predict attend.
Act block(Net& net, const DeltaConfig& c, const Rotary& rot, int i, Act x) {
  Scope a = net.layer(i, Role::Attention);
  const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
  const bool recurrent = i < c.n_layers && c.recurrent[static_cast<std::size_t>(i)];
  x = a.add("attn_residual", x,
            recurrent ? delta_layer(a, c, y, delta_gates(a, c, y), HeadSharing::Tiled) : gated_attention(a, c, rot, y));
  Scope f = net.layer(i, Role::Ffn);
  return f.add("ffn_residual", x, ffn(f, c, f.rms_norm("post_attention_norm", x, c.norm_eps)));
}

Act forward(Net& net, const DeltaConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) x = block(net, c, rot, i, x);
  return net.head("output", final_norm(net, c, x, step.out_rows), c.vocab, /*tied_to=*/"token_embd");
}

Act predict(Net& net, const DeltaConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  const Act x = block(net, c, rot, c.n_layers, prediction_input(net, c, step.tokens));
  return prediction_logits(net, c, x, step.out_rows);
}

}  // namespace

ModelSpec open_qwen35(const Metadata& md) {
  const DeltaConfig c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = c.unread,
          .predict = [c](Net& net) { return predict(net, c); }};
}

}  // namespace llm
