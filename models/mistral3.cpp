// mistral3: Ministral 3, Devstral 2 and others like llama without experts. In some files queries grow with the
// position.
#include <optional>

#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  std::optional<PositionScale> growth = {};  ///< of queries
};

Config configure(const Metadata& md) {
  Config c{read_dense_config(md, "mistral3", {"attention.temperature_scale", "rope.scaling.yarn_log_multiplier"})};
  read_log_multiplier(md, c);
  c.growth = read_position_scale(md, c);
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, const std::optional<Act>& growth, Act x) {
  const AttentionHeads heads = attention_heads(s, c, x);
  return rotary_attention(s, c, rot, {scale_queries(s, heads.q, growth), heads.k, heads.v});
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  const auto growth = c.growth ? std::optional(net.position_scale(*c.growth)) : std::nullopt;
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, growth, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_mistral3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
