// glm4: GLM-4-0414 and GLM-Z1, and the text part of GLM-4.1V. Blocks have norms on both sides, gate and up are rows of
// one matrix; queries, keys and values are, too, in some files. Files with sections of the rotation, for pictures, have
// their elements in another order.
#include <algorithm>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  RopePairing pairing = RopePairing::Interleaved;
};

Config configure(const Metadata& md) {
  Config c{read_dense_config(md, "glm4", {"nextn_predict_layers"}), {}};
  leave_prediction_layers_out(md, c);
  const HyperParameters hp(md, "glm4");
  constexpr std::string_view kSections = "rope.dimension_sections";
  if (!hp.has(kSections)) return c;
  const auto sections = md.array<std::int64_t>(hp.key(kSections));
  if (std::ranges::any_of(sections, [](std::int64_t n) { return n != 0; })) c.pairing = RopePairing::Halves;
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, c.pairing);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.rms_norm("post_attention_norm", y, c.norm_eps));
    Scope f = net.layer(i, Role::Ffn);
    y = f.rms_norm("ffn_norm", x, c.norm_eps);
    y = fused_glu_ffn(f, c, Activation::Silu, y);
    x = f.add("ffn_residual", x, f.rms_norm("post_ffw_norm", y, c.norm_eps));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_glm4(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
