// bitnet: BitNet b1.58 and the models trained like it. What the output of attention and that of the feed-forward
// network read is normalised. Gates are the squares of what is positive where the file says so; weights of three values
// have a scale beside them in some files.
#include <string>

#include "base/error.h"
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  bool squares = false;  ///< gates by Nonlinearity::SquaredRelu
};

Config configure(const Metadata& md) {
  constexpr std::string_view kFunction = "hidden_activation";
  Config c{read_dense_config(md, "bitnet")};
  const HyperParameters hp(md, c.architecture);
  const std::string function = hp.text(kFunction, "silu");
  c.squares = function == "relu2";
  if (!c.squares && function != "silu")
    hp.fail(kFunction, "\"" + escaped(function) + "\" is not supported; known are silu and relu2");
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads heads = rotate_heads(s, attention_heads(s, c, x), rot);
  const Act y = s.flatten_heads("attn_flat", results_by_heads(s, c, heads));
  return s.linear("attn_output", s.rms_norm("attn_sub_norm", y, c.norm_eps), c.n_embd);
}

Act gated(Scope s, const Config& c, Act gate, Act up) {
  if (!c.squares) return s.glu(Activation::Silu, gate, up);
  const Act squares = s.activate("ffn_squares", {.function = Nonlinearity::SquaredRelu}, gate);
  return s.glu(Activation::Identity, squares, up);
}

Act ffn(Scope s, const Config& c, Act x) {
  const std::int64_t d_ff = c.of(s.layer()).d_ff;
  const Act gate = s.linear("ffn_gate", x, d_ff);
  const Act up = s.linear("ffn_up", x, d_ff);
  return s.linear("ffn_down", s.rms_norm("ffn_sub_norm", gated(s, c, gate, up), c.norm_eps), c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_bitnet(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
