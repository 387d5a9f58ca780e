// mamba: Mamba, Falcon-Mamba: layers of selective state spaces alone (arXiv:2312.00752). Of Falcon-Mamba what steps and
// states are made of is normalised, by no weights.
#include <string_view>

#include "model/hybrid.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  ScanSizes scan = {};
  bool normalised = false;
};

Config configure(const Metadata& md) {
  Config c{read_recurrent_config(md, "mamba")};
  c.scan = read_scan_sizes(md, c);
  c.normalised = HyperParameters(md, "mamba").flag("ssm.dt_b_c_rms", false);
  return c;
}

Act unchanged(Scope, const DecoderConfig&, std::string_view, Act y) { return y; }
Act unit_norm(Scope s, const DecoderConfig& c, std::string_view name, Act y) {
  return s.unit_rms_norm(name, y, c.norm_eps);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope s = net.layer(i, Role::Attention);
    const Act y = s.rms_norm("attn_norm", x, c.norm_eps);
    x = s.add("residual", x, scan_layer(s, c, c.scan, c.normalised ? unit_norm : unchanged, y));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_mamba(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
