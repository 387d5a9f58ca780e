// falcon-h1: the Falcon-H1 models. In every layer attention and a layer of Mamba-2 read the same input, and their
// results are added. Its multipliers are in the weights.
#include "model/hybrid.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

MambaConfig configure(const Metadata& md) {
  MambaConfig c = read_mamba_config(md, "falcon-h1", {});
  refuse_experts(md, c);
  const HyperParameters hp(md, c.architecture);
  hp.expect_neutral("ssm.has_mup", 0, 0);  // of files from before converters multiplied the weights
  hp.expect_neutral("mamba_norm_before_gate", 0, 0);
  return c;
}

Act forward(Net& net, const MambaConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    const Act scanned = mamba_layer(a, c, y);
    const Act attended = rotary_attention(a, c, rot, y);
    x = a.add("attn_residual", x, a.add("attn_sum", attended, scanned));
    Scope f = net.layer(i, Role::Ffn);
    // Converters leave out the end of this tensor's name.
    const std::string_view norm = f.has("ffn_norm") ? "ffn_norm.weight" : "ffn_norm";
    const Act normal = f.rms_norm("ffn_normal", x, c.norm_eps, norm);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, normal));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_falcon_h1(const Metadata& md) {
  const MambaConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
