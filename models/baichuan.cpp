// baichuan, refact: Baichuan and Baichuan 2; Refact. Of Baichuan's models with 7B, heads are rotated; of those with
// 13B, which no key tells apart but the number of layers, and of Refact nothing is, and scores fall with the distance
// (ALiBi).
#include <optional>

#include "model/blocks.h"

namespace llm {
namespace {

constexpr int kLayersOf13B = 40;
constexpr float kMaxBias = 8;

DecoderConfig configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  DecoderConfig c = read_dense_config(md, arch);
  if (arch == "refact" || c.n_layers == kLayersOf13B) c.max_bias = kMaxBias;
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  std::optional<Rotary> rot;
  if (c.max_bias == 0) rot = net.rotary(c.rope, RopePairing::Interleaved);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act y = a.rms_norm("attn_norm", x, c.norm_eps);
    x = a.add("attn_residual", x, rot ? rotary_attention(a, c, *rot, y) : unrotated_attention(a, c, y));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_baichuan(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
