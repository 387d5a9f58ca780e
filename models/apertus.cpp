// apertus: Apertus 8B and 70B. Heads are normalised; the feed-forward network has no gate, but in each layer an xIELU
// (arXiv:2411.13010) whose two curvatures were trained.
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  std::vector<XieluCurve> curves = {};  ///< of the layers
};

/// One number, or one for each layer; the keys do not begin with the architecture.
std::vector<float> read_each(const Metadata& md, std::string_view key, int layers) {
  const auto values = md.one_or_each<float>(key, static_cast<std::size_t>(layers));
  for (const float v : values)
    if (!std::isfinite(v)) md.fail(key, "value " + value_text(v) + " is not a finite number");
  return values;
}

float softplus(float x) { return std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

/// Files hold what training changed; the curvatures are its softplus, the negative one on top of the slope.
std::vector<XieluCurve> read_curves(const Metadata& md, int layers) {
  const std::vector<float> positive = read_each(md, "xielu.alpha_p", layers),
                           negative = read_each(md, "xielu.alpha_n", layers),
                           slope = read_each(md, "xielu.beta", layers), below = read_each(md, "xielu.eps", layers);
  std::vector<XieluCurve> curves;
  for (std::size_t i = 0; i < positive.size(); ++i)
    curves.push_back({.positive = softplus(positive[i]),
                      .negative = slope[i] + softplus(negative[i]),
                      .slope = slope[i],
                      .below = below[i]});
  return curves;
}

Config configure(const Metadata& md) {
  Config c{read_dense_config(md, "apertus")};
  c.curves = read_curves(md, c.n_layers);
  return c;
}

Act feed_forward(Scope s, const Config& c, Act x) {
  const Activate xielu{.function = Nonlinearity::Xielu, .xielu = c.curves[static_cast<std::size_t>(s.layer())]};
  return s.linear("ffn_down", s.activate("ffn_activated", xielu, s.linear("ffn_up", x, c.of(s.layer()).d_ff)),
                  c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, head_norm_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, feed_forward(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_apertus(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
