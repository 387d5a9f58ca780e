// step35, laguna, spark2_5: Step-3.5-Flash; Laguna; Spark 2.5. Layers that see a window may have more heads than those
// that see all, and turn heads by another base; of Step-3.5 they turn the whole of each and the others half of it. What
// attention gives passes gates, one for each head or each element of it. Behind the dense layers, experts chosen by
// sigmoids and a bias, beside them one that all tokens share; of Step-3.5's last layers gates and what they meet are
// limited. Spark 2.5 has no experts.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;  // of Laguna's layers, of which the first sees all, where the file does not say

struct Config : DecoderConfig {
  RopeTable local_rope = {};                 ///< of layers with a window
  std::int64_t n_factors = 0;                ///< of the tensor of Llama 3's factors, as many as any layer needs
  Activation gate = Activation::Sigmoid;     ///< of what attention gives
  Activation activation = Activation::Silu;  ///< of dense layers
  std::vector<float> limits = {};            ///< Glu::limit of each layer's experts
  std::vector<float> shared_limits = {};     ///< and of its other networks
};

constexpr std::string_view kHeads = "attention.head_count", kKvHeads = "attention.head_count_kv",
                           kPattern = "attention.sliding_window_pattern", kGating = "expert_gating_func",
                           kSharedWidth = "expert_shared_feed_forward_length", kDense = "leading_dense_block_count";

int local_rotated(const Metadata& md, const Config& c) {
  const IntegerRule rule{"rope.dimension_count_swa", 2, c.head_dim};
  const std::int64_t n = HyperParameters(md, c.architecture).optional_integer(rule).value_or(c.rope.n_rot);
  if (n % 2 != 0)
    HyperParameters(md, c.architecture)
        .fail(rule.key, "value " + std::to_string(n) + " is odd, but elements are rotated in pairs");
  return static_cast<int>(n);
}

/// Of Step-3.5 rope.dimension_count is that of layers with a window.
void halve_rotation(const Metadata& md, Config& c) {
  if (c.rope.n_rot % 4 != 0)
    HyperParameters(md, c.architecture)
        .fail("rope.dimension_count", "value " + std::to_string(c.rope.n_rot) + ": half of it is rotated in pairs");
  c.n_factors = std::max(c.rope.n_rot / 2, c.local_rope.n_rot) / 2;
  c.rope.n_rot /= 2;
}

void read_routed(const Metadata& md, Config& c) {
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  c.moe->d_shared = read_shared_width(md, c);
  read_leading_dense(md, c);
}

Config configure_step(const Metadata& md) {
  Config c{read_decoder_config(md, "step35",
                               {kHeads, kKvHeads, kPattern, kGating, kSharedWidth, kDense, "nextn_predict_layers"})};
  read_routed(md, c);
  require_local_layers(md, c);
  c.local_rope = {.n_rot = local_rotated(md, c), .base = read_local_base(md, c, c.rope.base)};
  halve_rotation(md, c);
  c.limits = read_limits(md, c, "swiglu_clamp_exp");
  c.shared_limits = read_limits(md, c, "swiglu_clamp_shexp");
  leave_prediction_layers_out(md, c);
  return c;
}

/// Some models have no window.
void read_laguna_layers(const Metadata& md, Config& c) {
  if (c.window == 0) return;
  read_local_layers(md, c, kPeriod);
  const HyperParameters hp(md, c.architecture);
  if (hp.optional_flags(kPattern, c.n_layers)) return;
  const std::int64_t period = hp.optional_integer({kPattern, 1, c.n_layers}).value_or(kPeriod);
  for (int i = 0; i < c.n_layers; ++i) c.local[static_cast<std::size_t>(i)] = i % period != 0;
}

Config configure_laguna(const Metadata& md) {
  Config c{read_decoder_config(md, "laguna",
                               {kHeads, kKvHeads, kPattern, kGating, "expert_shared_count", kSharedWidth, kDense})};
  read_routed(md, c);
  read_laguna_layers(md, c);
  c.local_rope = {.n_rot = local_rotated(md, c), .base = read_local_base(md, c, c.rope.base)};
  c.gate = Activation::Softplus;
  return c;
}

Config configure_spark(const Metadata& md) {
  Config c{read_decoder_config(md, "spark2_5", {kHeads, kKvHeads, kPattern})};
  refuse_experts(md, c);
  require_local_layers(md, c);
  c.local_rope = c.rope;
  c.local_rope.n_rot = local_rotated(md, c);
  c.local_rope.base = read_local_base(md, c, c.rope.base);
  c.activation = Activation::Gelu;
  return c;
}

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c = arch == "step35" ? configure_step(md) : arch == "laguna" ? configure_laguna(md) : configure_spark(md);
  const HyperParameters hp(md, arch);
  for (const char* key : {"attention.key_length_swa", "attention.value_length_swa"})
    hp.expect_neutral(key, c.head_dim, c.head_dim);
  require_all_attend(md, c);
  const auto layers = static_cast<std::size_t>(c.n_layers);
  c.limits.resize(layers);
  c.shared_limits.resize(layers);
  if (c.n_factors == 0) c.n_factors = std::max(c.rope.n_rot, c.local_rope.n_rot) / 2;
  return c;
}

/// Of each head or of each element, as the file has it.
Act gated(Scope s, const Config& c, Act x, Act results) {
  const int n = c.of(s.layer()).heads;
  const std::int64_t elements = std::int64_t{n} * c.head_dim_v;
  if (s.rows("attn_gate") == elements) {
    const Act gate = s.linear("attn_gate", x, elements);
    const Act y = s.glu(c.gate, gate, s.flatten_heads("attn_all", results), "attn_gated");
    return s.split_heads("attn_gated_heads", y, n);
  }
  const Act gate = s.split_heads("attn_gate_heads", s.linear("attn_gate", x, n), n);
  return s.glu(c.gate, gate, results, "attn_gated");
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  const auto normed = [&](std::string_view name, Act part) {
    return s.has(name) ? s.rms_norm(name, part, c.norm_eps) : part;
  };
  const Act q = s.rope("attn_q_rope", normed("attn_q_norm", heads.q), rot);
  const Act k = s.rope("attn_k_rope", normed("attn_k_norm", heads.k), rot);
  const Act y = results_by_heads(s, c, {q, k, heads.v});
  return attention_output(s, c, s.has("attn_gate") ? gated(s, c, x, y) : y);
}

Act ffn(Scope s, const Config& c, Act x) {
  const auto layer = static_cast<std::size_t>(s.layer());
  if (!c.moe || !c.moe->is_in(s.layer()))
    return glu_ffn(s, c, Glu{.activation = c.activation, .limit = c.shared_limits[layer]}, x);
  MoeConfig m = *c.moe;
  m.limit = {c.limits[layer]};
  m.shared_limit = {c.shared_limits[layer]};
  return shared_moe_ffn(s, m, x, c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary global = net.rotary(c.rope, RopePairing::Halves, "rope_freqs", c.n_factors, "rope_table");
  const Rotary local = net.rotary(c.local_rope, RopePairing::Halves, {}, "rope_table_local");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, attention(a, c, c.is_local(i) ? local : global, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_step35(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
