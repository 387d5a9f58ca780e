// mamba2: Mamba-2, Codestral Mamba: layers of selective state spaces alone (arXiv:2405.21060).
#include "model/hybrid.h"

namespace llm {
namespace {

Act forward(Net& net, const MambaConfig& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope s = net.layer(i, Role::Attention);
    x = s.add("residual", x, mamba_layer(s, c, s.rms_norm("attn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_mamba2(const Metadata& md) {
  const MambaConfig c = read_mamba_alone(md, "mamba2");
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
