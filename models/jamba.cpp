// jamba: Jamba. Most layers are selective state spaces of Mamba (arXiv:2312.00752), with norms of what steps and states
// are made of; a few attend, without positions. Some feed-forward networks route their tokens to experts.
#include <string_view>

#include "model/hybrid.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  ScanSizes scan = {};
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "jamba", {"attention.head_count_kv"})};
  refuse_window(md, c);
  require_alike_heads(md, c);
  c.scan = read_scan_sizes(md, c);
  c.moe = read_moe_config(md, c, c.most().d_ff, RouteWeights::AsGated);
  return c;
}

Act scan_norm(Scope s, const DecoderConfig& c, std::string_view name, Act y) { return s.rms_norm(name, y, c.norm_eps); }

Act ffn(Scope s, const Config& c, Act x) {
  if (c.moe && s.has("ffn_gate_inp")) return moe_ffn(s, *c.moe, x, c.n_embd);
  return glu_ffn(s, c, Activation::Silu, x);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, c.attends(i) ? unrotated_attention(a, c, y) : scan_layer(a, c, c.scan, scan_norm, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_jamba(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
