// hunyuan-dense, hunyuan_vl, maincoder: the dense Hunyuan models; the text part of HunyuanVL; Maincoder. Heads of q and
// k are normalised after they are rotated. A token of text has one position in all of rope.dimension_sections, so the
// rotation is the plain one.
#include <cmath>
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  RopePairing pairing = RopePairing::Halves;
};

constexpr std::string_view kAlpha = "rope.scaling.alpha";

/// Stretches the longest waves by the factor alpha, the shortest by none. Converters of hunyuan-dense have done so.
void stretch_base(const Metadata& md, DecoderConfig& c) {
  const float alpha = HyperParameters(md, c.architecture).nonzero_real({kAlpha, 0, kUnbounded}).value_or(1.0f);
  const float dim = static_cast<float>(c.head_dim);
  if (alpha != 1) c.rope.base *= std::pow(alpha, dim / (dim - 2));
}

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  if (arch != "hunyuan_vl")
    return {read_dense_config(md, arch), arch == "maincoder" ? RopePairing::Interleaved : RopePairing::Halves};
  Config c{read_dense_config(md, arch, {kAlpha})};
  stretch_base(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, c.pairing);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, norm_rotated_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_hunyuan_dense(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
