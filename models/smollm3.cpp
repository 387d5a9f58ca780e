// smollm3: SmolLM3. Every fourth layer has no positions: its queries and keys are not rotated.
#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;  // no key of the format says it

DecoderConfig configure(const Metadata& md) { return read_dense_config(md, "smollm3"); }

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  if (s.layer() % kPeriod == kPeriod - 1) return unrotated_attention(s, c, x);
  return rotary_attention(s, c, rot, x);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_smollm3(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
