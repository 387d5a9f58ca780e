#include "model/kimi_delta.h"

#include <cmath>
#include <string>

#include "model/hyper_parameters.h"

namespace llm {

namespace {

/// A short convolution of a product.
Act convolved(Scope s, const KimiDeltaConfig& c, char which, RecurrentType::Part part, Act x) {
  const std::string end(1, which);
  const Act y = s.linear("attn_" + end, x, c.delta_width());
  return s.split_heads("delta_" + end, s.short_conv("ssm_conv1d_" + end, y, c.conv_width, {}, part), 1);
}

/// By a matrix of the rank of a head's length, or by a whole one, which may have either name.
Act of_low_rank(Scope s, const KimiDeltaConfig& c, const std::string& name, Act x) {
  const std::string down = name + "_a", up = name + "_b";
  if (s.has(up)) return s.linear(up, s.linear(down, x, c.delta_head), c.delta_width());
  return s.linear(s.has(name) ? name : down, x, c.delta_width());
}

}  // namespace

void read_kimi_delta(const Metadata& md, KimiDeltaConfig& c) {
  const HyperParameters hp(md, c.architecture);
  refuse_window(md, c);
  require_alike_heads(md, c);
  hp.integer({"attention.key_length_mla", 1, 1 << 16});
  c.head_dim_v = static_cast<int>(hp.integer({"attention.kv_lora_rank", 1, 1 << 16}));  // converters write another
  read_latent_heads(md, c);
  c.attention_scale = 1 / std::sqrt(static_cast<float>(c.head_key));
  c.conv_width = static_cast<int>(hp.integer({"ssm.conv_kernel", 2, 1 << 10}));
  c.delta_head = static_cast<int>(hp.integer({"kda.head_dim", 1, 1 << 16}));
  c.delta_eps = c.norm_eps;
}

Act kimi_delta_attention(Scope s, const KimiDeltaConfig& c, Act x) {
  using enum RecurrentType::Part;
  const Act q = convolved(s, c, 'q', Conv, x);
  const Act k = convolved(s, c, 'k', ConvKeys, x);
  const Act v = convolved(s, c, 'v', ConvValues, x);
  const Act qk = s.concat("delta_qk", q, k);
  const Act qkv = s.flatten_heads("delta_qkv", s.concat("delta_all", qk, v));
  const Act alpha = of_low_rank(s, c, "ssm_f", x);
  const Act beta = s.linear("ssm_beta", x, c.heads());
  const Act y = s.gated_delta(qkv, alpha, beta, {.key_heads = c.heads(), .eps = c.delta_eps, .floor = c.floor},
                              {c.delta_head, c.delta_head, c.heads()});
  const Act normal = s.flatten_heads("delta_flat", s.rms_norm("ssm_norm", y, c.norm_eps));
  const Act gate = of_low_rank(s, c, "ssm_g", x);
  return s.linear("attn_output", s.glu(Activation::Sigmoid, gate, normal, "delta_gated"), c.n_embd);
}

}  // namespace llm
