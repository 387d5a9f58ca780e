// olmo2: OLMo 2 and OLMo 3. Blocks read the residual stream as it is and their results are normalised; q and k are
// normalised over their whole width. OLMo 3: of every four layers three see a window and turn without the file's
// scaling of positions, which is the last one's alone.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_decoder_config(md, "olmo2", {"attention.sliding_window_pattern"});
  refuse_experts(md, c);
  if (c.window > 0) read_local_layers(md, c, kPeriod);
  HyperParameters(md, "olmo2").expect_neutral("rope.freq_base_swa", c.rope.base, 0);
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves);
  Rotary local = global;
  if (c.window > 0)
    local = net.rotary({.n_rot = c.rope.n_rot, .base = c.rope.base}, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = whole_norm_attention(a, c, c.is_local(i) ? local : global, x);
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = glu_ffn(f, c, Activation::Silu, x);
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_olmo2(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
