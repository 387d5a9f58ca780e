// nemotron_h, nemotron_h_moe: Nemotron-H, Nemotron Nano 2 and Nemotron 3. Each layer is one thing: a layer of Mamba-2,
// attention without positions, or a feed-forward network without a gate, of squared ReLU. With experts, these networks
// route their tokens by a sigmoid of each expert's own and a bias that the choice alone knows; of the larger models
// experts have a narrower input than the expert beside them that all tokens share.
#include <cstdint>
#include <string_view>

#include "model/hybrid.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : MambaConfig {
  std::int64_t latent = 0;  ///< width of what experts read and give; 0: that of all layers

  /// Whether a layer is a feed-forward network.
  bool feeds(int layer) const { return of(layer).d_ff > 0; }
};

Config configure_dense(const Metadata& md) {
  const Config c{
      read_mamba_config(md, "nemotron_h", {"attention.head_count_kv", "feed_forward_length", "nextn_predict_layers"})};
  refuse_experts(md, c);
  return c;
}

Config configure_experts(const Metadata& md) {
  Config c{
      read_mamba_config(md, "nemotron_h_moe",
                        {"attention.head_count_kv", "expert_gating_func", "expert_group_count", "expert_shared_count",
                         "expert_shared_feed_forward_length", "feed_forward_length", "nextn_predict_layers"})};
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  read_expert_groups(md, c);
  c.moe->d_shared = read_shared_width(md, c);
  c.latent = HyperParameters(md, c.architecture).optional_integer({"moe_latent_size", 0, 1 << 24}).value_or(0);
  return c;
}

Config configure(const Metadata& md) {
  const bool dense = md.get<std::string_view>("general.architecture") == "nemotron_h";
  Config c = dense ? configure_dense(md) : configure_experts(md);
  leave_prediction_layers_out(md, c);
  return c;
}

Act routed_ffn(Scope s, const Config& c, Act x) {
  const MoeConfig& m = *c.moe;
  Scope in = s.with(Role::Experts);
  const std::int64_t width = c.latent > 0 ? c.latent : c.n_embd;
  // Before the router, as in moe_ffn().
  const Weight up = in.expert_weight("ffn_up_exps", width, m.d_ff, m.experts);
  const Weight down = in.expert_weight("ffn_down_exps", m.d_ff, width, m.experts);
  const Routes routes = choose_experts(s, m, x);
  const Act low = c.latent > 0 ? s.linear("ffn_latent_down", x, width) : x;
  const Act h = in.activate("ffn_exps_activated", {.function = Nonlinearity::SquaredRelu},
                            in.expert_linear("ffn_up_exps", low, routes, up));
  const Act y = in.combine("ffn_moe", in.expert_linear("ffn_down_exps", h, routes, down), routes);
  return c.latent > 0 ? s.linear("ffn_latent_up", y, c.n_embd) : y;
}

Act ffn(Scope s, const Config& c, Act x) {
  if (!c.moe) return ungated_ffn(s, c, Nonlinearity::SquaredRelu, x);
  const Act routed = routed_ffn(s, c, x);
  if (c.moe->d_shared == 0) return routed;
  const Act up = s.linear("ffn_up_shexp", x, c.moe->d_shared);
  const Act h = s.activate("ffn_shexp_activated", {.function = Nonlinearity::SquaredRelu}, up);
  return s.add("ffn_sum", routed, s.linear("ffn_down_shexp", h, c.n_embd));
}

/// A layer with a feed_forward_length is a feed-forward network, whatever else the file says of it.
Act layer(Scope s, const Config& c, Act x) {
  if (c.feeds(s.layer())) return ffn(s, c, x);
  return c.attends(s.layer()) ? unrotated_attention(s, c, x) : mamba_layer(s, c, x);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope s = net.layer(i, c.feeds(i) ? Role::Ffn : Role::Attention);
    x = s.add("residual", x, layer(s, c, s.rms_norm("attn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_nemotron_h(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
