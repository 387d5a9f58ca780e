// minicpm: MiniCPM 1B and 2B, MiniCPM4. Layers of llama with scales of the embedding, of each block's result before it
// is added, and of the logits, which are divided by theirs; files for long contexts have two sets of divisors of the
// rotary frequencies, of which a model takes one, as phi3 does.
#include <cmath>

#include "model/blocks.h"

namespace llm {
namespace {

constexpr float kEmbeddingScale = 12, kDepth = 1.4f, kBaseWidth = 256;  // of files from before they had keys

struct Config : DecoderConfig {
  Scales scales = {};
  std::string_view factors = {};
};

Config configure(const Metadata& md) {
  Config c{read_dense_config(md, "minicpm", {"embedding_scale", "residual_scale", "logit_scale", "rope.scaling.type"})};
  c.scales = read_scales(md, c,
                         {.embedding = kEmbeddingScale,
                          .residual = kDepth / std::sqrt(static_cast<float>(c.n_layers)),
                          .logits = static_cast<float>(c.n_embd) / kBaseWidth});
  c.factors = longrope_factors(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, c.factors);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, c.scales.embedding);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.scale("attn_scaled", y, c.scales.residual));
    Scope f = net.layer(i, Role::Ffn);
    y = glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, f.scale("ffn_scaled", y, c.scales.residual));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, 1 / c.scales.logits);
}

}  // namespace

ModelSpec open_minicpm(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"rope_factors_long.weight", "rope_factors_short.weight"}};
}

}  // namespace llm
