// llama4: Llama 4 Scout and Maverick, the text part. Of every four layers three turn heads and see the keys of their
// chunk of the context, the fourth sees all without positions, and there queries grow with the position. Heads are
// normalised by nothing after they are turned (Scout). One expert is chosen for a token by a sigmoid, which its input,
// not its result, is multiplied with; beside it there is one that all tokens share. In Maverick every other layer is
// dense.
#include <limits>
#include <optional>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

// Of all published models; most files have no keys for them.
constexpr int kPeriod = 4, kChunk = 8192, kGrowthLength = 8192, kExpertsOfMaverick = 128;
constexpr float kGrowthSlope = 0.1f;

struct Config : DecoderConfig {
  bool normalised_heads = true;
  PositionScale growth = {};  ///< of queries in layers without positions
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "llama4",
                               {"attention.sliding_window_pattern", "attention.temperature_scale", "expert_gating_func",
                                "interleave_moe_layer_step"})};
  const HyperParameters hp(md, "llama4");
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  if (c.moe->active != 1)
    hp.fail("expert_used_count", "value " + std::to_string(c.moe->active) + " is not supported, only 1");
  read_gating(md, c, Gating::Sigmoid);
  c.moe->d_shared = c.moe->d_ff;
  c.moe->period = static_cast<int>(hp.integer({"interleave_moe_layer_step", 1, 1024}));
  if (hp.has("attention.sliding_window") && c.window == 0)
    hp.fail("attention.sliding_window", "value 0: layers that all see all positions are not supported for llama4");
  const IntegerRule chunk{"attention.chunk_size", 1, std::numeric_limits<std::int32_t>::max()};  // of some writers
  if (const auto length = hp.optional_integer(chunk)) c.window = static_cast<int>(*length);
  if (c.window == 0) c.window = kChunk;
  c.window_form = KeyWindow::Form::Chunked;
  read_local_layers(md, c, kPeriod);
  c.growth = read_position_scale(md, c).value_or(PositionScale{.slope = kGrowthSlope, .length = kGrowthLength});
  c.growth.offset = 1;
  c.normalised_heads = c.moe->experts != kExpertsOfMaverick;
  return c;
}

/// With positions.
Act local_attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = rotate_heads(s, attention_heads(s, c, x), rot);
  if (!c.normalised_heads) return attend(s, c, heads);
  const Act q = s.unit_rms_norm("attn_q_norm", heads.q, c.norm_eps);
  const Act k = s.unit_rms_norm("attn_k_norm", heads.k, c.norm_eps);
  return attend(s, c, {q, k, heads.v});
}

Act global_attention(Scope s, const Config& c, Act growth, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  return attend(s, c, {scale_queries(s, heads.q, growth), heads.k, heads.v});
}

/// The chosen expert, of an input that is multiplied with its gate.
Act expert(Scope s, const Config& c, Act x) {
  const MoeConfig& m = *c.moe;
  Scope router = s.with(Role::Router);
  const ExpertWeights weights = expert_weights(s, m, c.n_embd);
  const Act logits = router.linear("ffn_gate_inp", x, m.experts);
  const Route choice{.top_k = m.active, .gating = m.gate, .weights = m.weights, .scale = m.scale};
  const Routes routes = router.route("ffn_routes", logits, choice);
  const Act gated = router.glu(Activation::Identity, routes.weight, x, "ffn_gated_input");
  const Act y = expert_results(s, m, weights, gated, routes);
  return s.with(Role::Experts).flatten_heads("ffn_moe", y);
}

Act ffn(Scope s, const Config& c, Act x) {
  if (!c.moe->is_in(s.layer())) return glu_ffn(s, c, c.moe->activation, x);
  const Act y = expert(s, c, x);
  return s.add("ffn_sum", y, shared_expert(s, *c.moe, x, c.n_embd));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  const Act growth = net.position_scale(c.growth);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, c.is_local(i) ? local_attention(a, c, rot, y) : global_attention(a, c, growth, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_llama4(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
