// grok: Grok-1 and Grok-2. Norms on both sides of the blocks; caps of scores, of the router's logits and, in Grok-2, of
// the model's; scales of the embedding, of scores and of logits. Experts with GELU, beside them in Grok-2 a dense
// network, whose results are added and divided by the root of two.
//
// Beyond attention.temperature_length positions Grok-2 multiplies scores that are already capped by a factor that grows
// with the position. No op has that, so the context ends there.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

// Of Grok-1, whose files have no keys for them.
constexpr float kEmbeddingScale = 78.38367176906169f, kLogitScale = 0.5773502691896257f, kCap = 30;

struct Config : DecoderConfig {
  float embedding_scale = 1, logit_scale = 1;
  float router_cap = 0, logit_cap = 0;  ///< 0: none
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "grok",
                               {"attn_logit_softcapping", "attention.output_scale", "embedding_scale",
                                "final_logit_softcapping", "logit_scale", "router_logit_softcapping"})};
  const HyperParameters hp(md, "grok");
  const auto real = [&](std::string_view key, float otherwise) {
    return hp.nonzero_real({key, 0, kUnbounded}).value_or(hp.has(key) ? 0.0f : otherwise);
  };
  refuse_window(md, c);
  const float own_scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  c.attention_scale = hp.optional_real({"attention.output_scale", 0, kUnbounded}).value_or(own_scale);
  c.score_cap = real("attn_logit_softcapping", kCap);
  c.router_cap = real("router_logit_softcapping", kCap);
  c.logit_cap = real("final_logit_softcapping", 0);
  c.embedding_scale = hp.optional_real({"embedding_scale", 0, kUnbounded}).value_or(kEmbeddingScale);
  c.logit_scale = hp.optional_real({"logit_scale", 0, kUnbounded}).value_or(kLogitScale);
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  c.moe->activation = Activation::Gelu;
  const IntegerRule length{"attention.temperature_length", 0, std::numeric_limits<std::uint32_t>::max()};
  if (const auto n = hp.optional_integer(length).value_or(0); n > 0) c.context = std::min(c.context, n);
  return c;
}

Act experts(Scope s, const Config& c, Act x) {
  const MoeConfig& m = *c.moe;
  const ExpertWeights weights = expert_weights(s, m, c.n_embd);  // before the router, as in moe_ffn()
  Scope router = s.with(Role::Router);
  Act logits = router.linear("ffn_gate_inp", x, m.experts);
  if (c.router_cap > 0) logits = router.soft_cap("ffn_gate_capped", logits, c.router_cap);
  const Route choice{.top_k = m.active, .gating = m.gate, .weights = m.weights, .scale = m.scale};
  return expert_ffn(s, m, weights, x, router.route("ffn_routes", logits, choice), "ffn_glu_exps");
}

Act ffn(Scope s, const Config& c, Act x) {
  const Act routed = experts(s, c, x);
  if (!s.has("ffn_up")) return routed;
  const Act dense = glu_ffn(s, c, Activation::Gelu, x);
  return s.scale("ffn_halved", s.add("ffn_sum", dense, routed), std::numbers::sqrt2_v<float> / 2);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, c.embedding_scale);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.rms_norm("attn_output_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps));
    const char* const last = f.has("layer_output_norm") ? "layer_output_norm" : "post_ffw_norm";
    x = f.add("ffn_residual", x, f.rms_norm(last, y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return capped_logits(net, net.top(Role::Head).scale("output_scaled", x, c.logit_scale), c.logit_cap);
}

}  // namespace

ModelSpec open_grok(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
