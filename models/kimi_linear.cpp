// kimi-linear: Kimi Linear. Three of four layers go by Kimi Delta Attention (arXiv:2510.26692), a gated delta rule
// whose states decay element by element of a key; queries, keys and values have convolutions of their own, and results
// pass gates. The fourth attends to latents, without positions. Behind the dense layers, experts chosen by sigmoids and
// a bias, beside them one that all tokens share.
#include <cmath>
#include <string>
#include <string_view>

#include "model/hybrid.h"
#include "model/hyper_parameters.h"
#include "model/latent_attention.h"

namespace llm {
namespace {

struct Config : LatentConfig {
  int conv_width = 0, delta_head = 0;
  int heads() const { return most().heads; }  // all layers have as many
  std::int64_t delta_width() const { return std::int64_t{heads()} * delta_head; }
};

Config configure(const Metadata& md) {
  Config c{{read_decoder_config(
      md, "kimi-linear",
      {"attention.head_count_kv", "expert_gating_func", "expert_shared_count", "leading_dense_block_count"})}};
  const HyperParameters hp(md, "kimi-linear");
  for (const char* key : {"kda.safe_gate", "kda.gate_lower_bound", "moe_latent_size", "attn_res_block_size"})
    hp.expect_neutral(key, 0, 0);
  refuse_window(md, c);
  require_alike_heads(md, c);
  hp.integer({"attention.key_length_mla", 1, 1 << 16});  // of files whose cache holds latents
  c.head_dim_v = static_cast<int>(hp.integer({"attention.kv_lora_rank", 1, 1 << 16}));  // converters write another
  read_latent_heads(md, c);
  c.attention_scale = 1 / std::sqrt(static_cast<float>(c.head_key));
  c.conv_width = static_cast<int>(hp.integer({"ssm.conv_kernel", 2, 1 << 10}));
  c.delta_head = static_cast<int>(hp.integer({"kda.head_dim", 1, 1 << 16}));
  read_sigmoid_experts(md, c, RouteWeights::Renormalized);
  return c;
}

/// A short convolution of a product.
Act convolved(Scope s, const Config& c, char which, RecurrentType::Part part, Act x) {
  const std::string end(1, which);
  const Act y = s.linear("attn_" + end, x, c.delta_width());
  return s.split_heads("delta_" + end, s.short_conv("ssm_conv1d_" + end, y, c.conv_width, {}, part), 1);
}

/// By a matrix of the rank of a head's length.
Act of_low_rank(Scope s, const Config& c, std::string_view down, std::string_view up, Act x) {
  return s.linear(up, s.linear(down, x, c.delta_head), c.delta_width());
}

Act delta_attention(Scope s, const Config& c, Act x) {
  using enum RecurrentType::Part;
  const Act q = convolved(s, c, 'q', Conv, x);
  const Act k = convolved(s, c, 'k', ConvKeys, x);
  const Act v = convolved(s, c, 'v', ConvValues, x);
  const Act qk = s.concat("delta_qk", q, k);
  const Act qkv = s.flatten_heads("delta_qkv", s.concat("delta_all", qk, v));
  const Act alpha = of_low_rank(s, c, "ssm_f_a", "ssm_f_b", x);
  const Act beta = s.linear("ssm_beta", x, c.heads());
  const Act y = s.gated_delta(qkv, alpha, beta, {.key_heads = c.heads(), .eps = c.norm_eps},
                              {c.delta_head, c.delta_head, c.heads()});
  const Act normal = s.flatten_heads("delta_flat", s.rms_norm("ssm_norm", y, c.norm_eps));
  const Act gate = of_low_rank(s, c, "ssm_g_a", "ssm_g_b", x);
  return s.linear("attn_output", s.glu(Activation::Sigmoid, gate, normal, "delta_gated"), c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, c.attends(i) ? latent_attention(a, c, {}, {}, y) : delta_attention(a, c, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_kimi_linear(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
