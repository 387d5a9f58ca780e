// jamba: Jamba. Most layers are selective state spaces of Mamba (arXiv:2312.00752), with norms of what steps and states
// are made of; a few attend, without positions. Some feed-forward networks route their tokens to experts.
#include <cstdint>

#include "model/hybrid.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  int conv_width = 0;
  std::int64_t inner = 0, state = 0;
  std::int64_t rank = 0;  ///< of what steps are made of
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "jamba", {"attention.head_count_kv"})};
  const HyperParameters hp(md, "jamba");
  refuse_window(md, c);
  require_alike_heads(md, c);
  c.conv_width = static_cast<int>(hp.integer({"ssm.conv_kernel", 2, 1 << 10}));
  c.inner = hp.integer({"ssm.inner_size", 1, 1 << 28});
  c.state = hp.integer({"ssm.state_size", 1, 1 << 16});
  c.rank = hp.integer({"ssm.time_step_rank", 1, 1 << 16});
  c.moe = read_moe_config(md, c, c.most().d_ff, RouteWeights::AsGated);
  return c;
}

Act scan(Scope s, const Config& c, Act x) {
  const Act in = s.linear_rows("ssm_x_in", "ssm_in", 2 * c.inner, x, {0, c.inner});
  const Act z = s.linear_rows("ssm_z", "ssm_in", 2 * c.inner, x, {c.inner, c.inner});
  const Act convolved = s.short_conv("ssm_conv1d", in, c.conv_width);
  const auto made = [&](const char* name, const char* norm, std::int64_t begin, std::int64_t n) {
    const Act y = s.linear_rows(name, "ssm_x", c.rank + 2 * c.state, convolved, {begin, n});
    return s.rms_norm(norm, y, c.norm_eps);
  };
  const Act low = made("ssm_dt_low", "ssm_dt_norm", 0, c.rank);
  const Act b = s.split_heads("scan_b", made("ssm_b", "ssm_b_norm", c.rank, c.state), 1);
  const Act out = s.split_heads("scan_c", made("ssm_c", "ssm_c_norm", c.rank + c.state, c.state), 1);
  const Act dt = s.unscaled_linear("ssm_dt", low, c.inner);  // its bias is the scan's
  const Act bc = s.concat("scan_bc", b, out);
  const Act all = s.concat("scan_all", s.split_heads("scan_x", convolved, 1), bc);
  const Act xbc = s.flatten_heads("scan_xbc", all);
  const Act y = s.flatten_heads("scan_flat", s.selective_scan(xbc, dt, {.groups = 1}, {c.inner, c.state, 1}));
  return s.linear("ssm_out", s.glu(Activation::Silu, z, y, "scan_gated"), c.n_embd);
}

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
    x = a.add("attn_residual", x, c.attends(i) ? unrotated_attention(a, c, y) : scan(a, c, y));
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
