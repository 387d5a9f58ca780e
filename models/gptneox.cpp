// gptneox: GPT-NeoX-20B, Pythia, and others of that code. Norms subtract the mean, everything has a bias, queries, keys
// and values are rows of one matrix, part of each head is rotated. Attention and feed-forward network mostly read the
// same stream, by norms of their own, and are added together.
#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  bool parallel = true;
};

Config configure(const Metadata& md) {
  constexpr std::string_view kParallel = "use_parallel_residual";
  Config c{read_layer_norm_config(md, "gptneox", {kParallel})};
  c.parallel = HyperParameters(md, "gptneox").flag(kParallel, true);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    const Act attended =
        a.add("attn_residual", x, rotary_attention(a, c, rot, a.layer_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.layer_norm("ffn_norm", c.parallel ? x : attended, c.norm_eps);
    x = f.add("ffn_residual", attended, ungated_ffn(f, c, Nonlinearity::Gelu, y));
  }
  x = net.top(Role::Head).layer_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_gptneox(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
