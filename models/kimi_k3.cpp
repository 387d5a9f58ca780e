// kimi-k3: Kimi K3, the text part. Layers as kimi-linear has them: Kimi Delta Attention with decays to a floor, or
// attention to latents without positions, whose results pass gates of elements. What each part of a layer reads is not
// the sum of all that came before it but a mean, by a softmax, of that sum as it was at every so manieth layer, where
// it begins anew, and of what it has become since. Experts work on rows of another width; beside them one that all
// tokens share. Gates and what they meet are bent like tanh.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/hyper_parameters.h"
#include "model/kimi_delta.h"

namespace llm {
namespace {

constexpr std::string_view kBlock = "attn_res.block_size", kLatent = "expert_latent_length";

struct Config : KimiDeltaConfig {
  int block = 0;                     ///< layers after which the sum begins anew; 0: never
  std::int64_t d_experts = 0;        ///< of the rows that experts work on
  float gate_bend = 0, up_bend = 0;  ///< tanh's limits; of what gates meet perhaps none, 0

  bool saves(int layer) const { return block > 0 && layer % block == 0; }
};

Config configure(const Metadata& md) {
  constexpr std::string_view kArch = "kimi-k3";
  Config c{{{read_decoder_config(md, kArch,
                                 {"attention.head_count_kv", "expert_gating_func", "expert_shared_count",
                                  "leading_dense_block_count", kLatent})}}};
  const HyperParameters hp(md, kArch);
  if (const auto floor = hp.nonzero_real({"kda.gate_lower_bound", -kUnbounded, 0})) c.floor = *floor;
  read_kimi_delta(md, c);
  read_sigmoid_experts(md, c);
  if (c.moe->d_shared == 0) c.moe->d_shared = c.moe->d_ff;
  const std::int64_t latent = hp.optional_integer({kLatent, 0, 1 << 20}).value_or(0);
  c.d_experts = latent > 0 ? latent : c.n_embd;
  c.block = static_cast<int>(hp.integer({kBlock, 0, 1 << 20}));
  if (c.block > 0 && (c.n_layers - 1) / c.block >= kMostBlended)
    hp.fail(kBlock, "value " + std::to_string(c.block) + " makes more than " + std::to_string(kMostBlended) +
                        " sums of " + std::to_string(c.n_layers) + " layers");
  c.gate_bend = hp.real({"activation.situ_beta", 0, kUnbounded});
  c.up_bend = std::max(0.0f, hp.real({"activation.situ_linear_beta", -kUnbounded, kUnbounded}));
  return c;
}

// --- residuals ---

/// The sum of what the layers gave since it began anew, and, one behind another [n * n_embd, 1, tokens], what it was
/// then.
struct Residual {
  Act sum;
  std::optional<Act> saved = {};
};

/// The sum itself where nothing was saved.
Act read(Scope s, const Config& c, const std::string& name, const Residual& r) {
  if (!r.saved) return r.sum;
  const auto n = static_cast<int>(s.shape(*r.saved)[0] / c.n_embd);
  const Act vectors = s.split_heads(name + "_saved", s.flatten_heads(name + "_all", *r.saved), n);
  return s.stream_blend(name + "_blend", vectors, r.sum, {.eps = c.norm_eps}, name + "_score");
}

void save(Scope s, Residual& r) {
  const Act one = s.split_heads("residual", r.sum, 1);
  r.saved = r.saved ? s.concat("residuals", *r.saved, one) : one;
}

// --- networks ---

/// bend * tanh(x / bend) * sigmoid(x) of gates, times the same without the sigmoid of what they meet.
Act bent_glu(Scope s, const Config& c, const std::string& name, Act gate, Act up) {
  const Act met = c.up_bend > 0 ? s.soft_cap(name + "_up", up, c.up_bend) : up;
  const Act bent = s.glu(Activation::Identity, s.soft_cap(name + "_gate", gate, c.gate_bend), met, name + "_bent");
  return s.glu(Activation::Sigmoid, gate, bent, name);
}

Act network(Scope s, const Config& c, const std::string& end, std::int64_t width, Act x) {
  const Act gate = s.linear("ffn_gate" + end, x, width), up = s.linear("ffn_up" + end, x, width);
  return s.linear("ffn_down" + end, bent_glu(s, c, "ffn_glu" + end, gate, up), c.n_embd);
}

Act experts(Scope s, const Config& c, Act x, const Routes& routes) {
  Scope in = s.with(Role::Experts);
  const auto product = [&](std::string_view name, Act of, std::int64_t n) {
    return in.expert_linear(name, of, routes, in.expert_weight(name, s.shape(of)[0], n, c.moe->experts));
  };
  const Act gate = product("ffn_gate_exps", x, c.moe->d_ff), up = product("ffn_up_exps", x, c.moe->d_ff);
  const Act y = product("ffn_down_exps", bent_glu(in, c, "ffn_glu", gate, up), c.d_experts);
  return in.combine("ffn_moe", y, routes);
}

/// The router reads whole rows.
Act routed(Scope s, const Config& c, Act x) {
  const Routes routes = choose_experts(s, *c.moe, x);
  if (!s.has("ffn_routed_down")) return experts(s, c, x, routes);
  const Act y = experts(s, c, s.linear("ffn_routed_down", x, c.d_experts), routes);
  const Act normal = s.has("ffn_routed_norm") ? s.rms_norm("ffn_routed_norm", y, c.norm_eps) : y;
  return s.linear("ffn_routed_up", normal, c.n_embd);
}

Act ffn(Scope s, const Config& c, Act x) {
  if (!c.moe->is_in(s.layer())) return network(s, c, "", c.of(s.layer()).d_ff, x);
  const Act y = routed(s, c, x);
  return s.has("ffn_gate_shexp") ? s.add("ffn_sum", y, network(s, c, "_shexp", c.moe->d_shared, x)) : y;
}

// --- layers ---

Act attention(Scope s, const Config& c, Act x) {
  if (!c.attends(s.layer())) return kimi_delta_attention(s, c, x);
  const Act y = latent_results(s, c, {}, {}, x);
  if (!s.has("attn_gate")) return attention_output(s, c, y);
  const Act flat = s.flatten_heads("attn_flat", y);
  const Act gate = s.linear("attn_gate", x, s.shape(flat)[0]);
  return s.linear("attn_output", s.glu(Activation::Sigmoid, gate, flat, "attn_gated"), c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  Residual r{net.embed("token_embd", step.tokens, c.vocab, c.n_embd)};
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act before = read(a, c, "attn_res", r);
    if (c.saves(i)) save(a, r);
    const Act y = attention(a, c, a.rms_norm("attn_norm", before, c.norm_eps));
    r.sum = c.saves(i) ? y : a.add("attn_residual", r.sum, y);
    Scope f = net.layer(i, Role::Ffn);
    const Act between = read(f, c, "ffn_res", r);
    r.sum = f.add("ffn_residual", r.sum, ffn(f, c, f.rms_norm("ffn_norm", between, c.norm_eps)));
  }
  Scope h = net.top(Role::Head);
  const Act x = h.rms_norm("output_norm", net.rows(read(h, c, "output_res", r), step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_kimi_k3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"blk.0.attn_res_score.weight"}};  // of the first layer, before which nothing is saved
}

}  // namespace llm
