// cohere2: Command R7B, Command A and Aya's kin. Attention and feed-forward network read one norm, whose mean is
// subtracted, and are added together; three of every four layers see a window, and the fourth, which sees all, has no
// positions: its queries and keys are not rotated.
#include <cstdint>
#include <limits>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;

struct Config : DecoderConfig {
  float logit_scale = 1;
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(
      md, "cohere2", {"attention.layer_norm_rms_epsilon", "attention.sliding_window_pattern", "logit_scale"})};
  const HyperParameters hp(md, "cohere2");
  refuse_experts(md, c);
  c.norm_eps = read_layer_norm_epsilon(md, c);
  hp.integer({"attention.sliding_window", 1, std::numeric_limits<std::uint32_t>::max()});
  read_local_layers(md, c, kPeriod);
  c.logit_scale = hp.real({"logit_scale", 0, kUnbounded});
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.layer_norm("attn_norm", x, c.norm_eps);
    const Act attended = c.is_local(i) ? rotary_attention(a, c, rot, y) : unrotated_attention(a, c, y);
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, y));
    x = f.add("attn_residual", x, attended);
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, c.logit_scale);
}

}  // namespace

ModelSpec open_cohere2(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
