// plamo2: PLaMo 2 and 2.1. Some layers attend; the others are selective state spaces in the heads of Mamba-2
// (arXiv:2405.21060) by steps and states that are made and normalised as Jamba's are. Blocks have norms on both sides,
// each head has norms of its own; queries, keys and values are rows of one matrix, gate and up of another.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/hybrid.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr std::int64_t kLeastRank = 64, kWidthsOfRank = 16;  // which the model's code has and its files do not say

struct Config : DecoderConfig {
  ScanSizes scan = {};
  std::int64_t rank() const { return std::max(kLeastRank, n_embd / kWidthsOfRank); }  ///< of what steps are made of
  int ssm_heads() const { return static_cast<int>(scan.rank); }                       ///< which its key is of here
  std::int64_t ssm_head_length() const { return scan.inner / scan.rank; }
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "plamo2", {"attention.head_count", "attention.head_count_kv"})};
  refuse_experts(md, c);
  refuse_window(md, c);
  require_alike_heads(md, c);
  c.scan = read_scan_sizes(md, c);
  const HyperParameters hp(md, c.architecture);
  hp.expect_neutral("ssm.group_count", 0, 1);
  if (c.scan.inner % c.scan.rank != 0)
    hp.fail("ssm.time_step_rank",
            "value " + std::to_string(c.scan.rank) + " does not divide ssm.inner_size " + std::to_string(c.scan.inner));
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const Act q = s.head_rms_norm("attn_q_norm", heads.q, c.norm_eps);
  const Act k = s.head_rms_norm("attn_k_norm", heads.k, c.norm_eps);
  return rotary_attention(s, c, rot, {q, k, heads.v});
}

/// Of a head, what gates its results lies before what the scan reads.
Act scan(Scope s, const Config& c, Act x) {
  const Act in = s.split_heads("ssm_in_heads", s.linear("ssm_in", x, 2 * c.scan.inner), c.ssm_heads());
  const std::int64_t n = c.ssm_head_length();
  const Act z = s.flatten_heads("ssm_z", s.slice("ssm_z_heads", in, {0, n}));
  const Act read = s.flatten_heads("ssm_x_in", s.slice("ssm_x_heads", in, {n, n}));
  const Act convolved = s.short_conv("ssm_conv1d", read, c.scan.conv_width);
  const auto made = [&](std::string_view name, std::string_view norm, std::int64_t begin, std::int64_t rows) {
    const Act y = s.linear_rows(name, "ssm_x", 2 * c.scan.state + c.rank(), convolved, {begin, rows});
    return bare_rms_norm(s, norm, y, c.norm_eps);
  };
  const Act b = s.split_heads("scan_b", made("ssm_b", "ssm_b_norm", 0, c.scan.state), 1);
  const Act out = s.split_heads("scan_c", made("ssm_c", "ssm_c_norm", c.scan.state, c.scan.state), 1);
  const Act low = made("ssm_dt_low", "ssm_dt_norm", 2 * c.scan.state, c.rank());
  const Act dt = s.unscaled_linear("ssm_dt", low, c.ssm_heads());  // its bias is the scan's
  const Act bc = s.concat("scan_bc", b, out);
  const Act all = s.concat("scan_all", s.split_heads("scan_x", convolved, 1), bc);
  const Act xbc = s.flatten_heads("scan_xbc", all);
  const Act y = s.selective_scan(xbc, dt, {.groups = 1}, {n, c.scan.state, c.ssm_heads()});
  const Act gated = s.glu(Activation::Silu, z, s.flatten_heads("scan_flat", y), "scan_gated");
  return s.linear("ssm_out", gated, c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    y = c.attends(i) ? attention(a, c, rot, y) : scan(a, c, y);
    x = a.add("attn_residual", x, bare_rms_norm(a, "post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = fused_glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, bare_rms_norm(f, "post_ffw_norm", y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_plamo2(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
