// grovemoe: GroveMoE (arXiv:2508.07785). Attention as qwen3moe has it; every layer routes its tokens, and the weights
// of the chosen experts sum to 1. Neighbouring experts make groups, each with a small expert beside them, which adds
// its own result, scaled, by the weight of each expert of the group that was chosen. As the models' own code has it:
// llama.cpp gives the small ones the other experts' result to read, and weights of other experts.
#include <cstdint>
#include <string>
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  int group = 1;           ///< experts in each
  std::int64_t small = 0;  ///< width of its small one
  float small_scale = 0;
};

Config configure(const Metadata& md) {
  constexpr std::string_view kArch = "grovemoe", kGroup = "experts_per_group";
  Config c{read_decoder_config(md, kArch)};
  const HyperParameters hp(md, kArch);
  refuse_window(md, c);
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  c.group = static_cast<int>(hp.integer({kGroup, 1, c.moe->experts}));
  if (c.moe->experts % c.group != 0)
    hp.fail(kGroup,
            "value " + std::to_string(c.group) + " does not share out expert_count " + std::to_string(c.moe->experts));
  const std::int64_t small = hp.optional_integer({"expert_chunk_feed_forward_length", 0, 1 << 28}).value_or(0);
  c.small = small > 0 ? small : c.head_dim;
  c.small_scale = hp.real({"expert_group_scale", -kUnbounded, kUnbounded});
  return c;
}

Act small_experts(Scope s, const Config& c, Act x, const Routes& routes) {
  Scope in = s.with(Role::Experts);
  const int n = c.moe->experts / c.group;
  const Routes groups{.expert = s.with(Role::Router).group_ids("ffn_groups", routes.expert, c.group),
                      .weight = routes.weight};
  const auto product = [&](std::string_view name, Act of, std::int64_t rows) {
    return in.expert_linear(name, of, groups, in.expert_weight(name, s.shape(of)[0], rows, n));
  };
  const Act gate = product("ffn_gate_chexps", x, c.small), up = product("ffn_up_chexps", x, c.small);
  const Act y = product("ffn_down_chexps", in.glu(Activation::Silu, gate, up, "ffn_glu_chexps"), c.n_embd);
  return in.scale("ffn_chexps_scaled", in.combine("ffn_chexps", y, groups), c.small_scale);
}

Act ffn(Scope s, const Config& c, Act x) {
  const ExpertWeights weights = expert_weights(s, *c.moe, c.n_embd);
  const Routes routes = choose_experts(s, *c.moe, x);
  const Act y = expert_ffn(s, *c.moe, weights, x, routes);
  return s.add("ffn_sum", y, small_experts(s, c, x, routes));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, head_norm_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_grovemoe(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
