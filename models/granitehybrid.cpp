// granitehybrid: the Granite 4.0 models with state space layers (H), and Bamba. Scales of granite; most layers are
// those of Mamba-2, the others attend, without positions in Granite's files. Dense, or with experts as in granitemoe.
#include <optional>

#include "model/hybrid.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr std::string_view kPositions = "rope.scaling.finetuned";  // whether queries and keys are rotated

struct Config : MambaConfig {
  bool has_positions = true;
  Scales scales = {};
};

Config configure(const Metadata& md) {
  Config c{read_mamba_config(md, "granitehybrid",
                             {"attention.head_count_kv", "embedding_scale", "residual_scale", "logit_scale",
                              "expert_shared_feed_forward_length"})};
  c.has_positions = HyperParameters(md, "granitehybrid").flag(kPositions, true);
  c.scales = read_scales(md, c);
  c.moe = read_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  if (c.moe) c.moe->d_shared = read_shared_width(md, c);  // converters write it for dense models, too
  return c;
}

Act mix(Scope a, const Config& c, const std::optional<Rotary>& rot, Act x) {
  if (!c.attends(a.layer())) return mamba_layer(a, c, x);
  return rot ? rotary_attention(a, c, *rot, x) : unrotated_attention(a, c, x);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  std::optional<Rotary> rot;
  if (c.has_positions) rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, c.scales.embedding);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = mix(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.scale("attn_scaled", y, c.scales.residual));
    Scope f = net.layer(i, Role::Ffn);
    const Act normal = f.rms_norm("ffn_norm", x, c.norm_eps);
    y = c.moe ? shared_moe_ffn(f, *c.moe, normal, c.n_embd) : glu_ffn(f, c, Activation::Silu, normal);
    x = f.add("ffn_residual", x, f.scale("ffn_scaled", y, c.scales.residual));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, 1 / c.scales.logits);
}

}  // namespace

ModelSpec open_granitehybrid(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
