// nanbeige: Nanbeige 4.2. As llama, but tokens go through the layers more than once, each time with keys and values of
// their own; in between the stream is normalised as for the output, unless the file says otherwise.
#include <cstddef>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kMostLayers = 1024;  // as many as a file may have

struct Config : DecoderConfig {
  int own_layers = 0;  ///< of the file; the others are these once more
  bool norms_between = true;
};

Config configure(const Metadata& md) {
  Config c{read_dense_config(md, "nanbeige")};
  const HyperParameters hp(md, c.architecture);
  c.own_layers = c.n_layers;
  c.norms_between = !hp.flag("skip_loop_final_norm", false);
  const std::int64_t loops = hp.optional_integer({"num_loops", 1, kMostLayers / c.own_layers}).value_or(1);
  const std::vector<LayerSizes> once = c.layers;
  for (std::int64_t i = 1; i < loops; ++i) c.layers.insert(c.layers.end(), once.begin(), once.end());
  c.n_layers = static_cast<int>(c.layers.size());
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    const int own = i % c.own_layers;
    if (i > 0 && own == 0 && c.norms_between)
      x = net.layer(i, Role::Attention, -1).rms_norm("loop_norm", x, c.norm_eps, "output_norm.weight");
    Scope a = net.layer(i, Role::Attention, own);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn, own);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_nanbeige(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
