// cohere2moe: Command models with experts. Blocks of cohere2, side by side on one norm, which may be one of root mean
// squares; layers that see a window turn heads, and so do the dense layers, the first ones, whatever they see. Experts
// chosen by sigmoids; the mean of what they and the expert that all tokens share give.
#include <cstdint>
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  bool layer_norms = false;
  float logit_scale = 1;
};

void read_experts(const Metadata& md, Config& c) {
  const HyperParameters hp(md, c.architecture);
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  read_leading_dense(md, c);
  const std::int64_t shared = hp.optional_integer({"expert_shared_count", 0, 1024}).value_or(0);
  const std::int64_t width = read_shared_width(md, c);  // of all of them
  if (shared > 0) c.moe->d_shared = width > 0 ? width : shared * c.moe->d_ff;
}

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "cohere2moe",
                               {"attention.layer_norm_rms_epsilon", "attention.sliding_window_pattern",
                                "expert_gating_func", "expert_shared_count", "expert_shared_feed_forward_length",
                                "leading_dense_block_count", "logit_scale", "nextn_predict_layers"})};
  const HyperParameters hp(md, "cohere2moe");
  const auto epsilon = hp.nonzero_real({"attention.layer_norm_rms_epsilon", 0, 1});
  c.layer_norms = !epsilon;
  c.norm_eps = epsilon ? *epsilon : read_layer_norm_epsilon(md, c);
  read_experts(md, c);
  leave_prediction_layers_out(md, c);
  require_local_layers(md, c);
  c.logit_scale = hp.real({"logit_scale", 0, kUnbounded});
  return c;
}

Act norm(Scope s, const Config& c, std::string_view name, Act x) {
  return c.layer_norms ? s.layer_norm(name, x, c.norm_eps) : s.rms_norm(name, x, c.norm_eps);
}

Act ffn(Scope s, const Config& c, Act x) {
  const Act y = moe_or_dense_ffn(s, c, x);
  const bool averages = c.moe->is_in(s.layer()) && c.moe->d_shared > 0;
  return averages ? s.scale("ffn_mean", y, 0.5f) : y;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = norm(a, c, "attn_norm", x);
    const bool turns = c.is_local(i) || i < c.moe->leading_dense;
    const Act attended = turns ? rotary_attention(a, c, rot, y) : unrotated_attention(a, c, y);
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, y));
    x = f.add("attn_residual", x, attended);
  }
  x = norm(net.top(Role::Head), c, "output_norm", net.rows(x, step.out_rows));
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, c.logit_scale);
}

}  // namespace

ModelSpec open_cohere2moe(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
