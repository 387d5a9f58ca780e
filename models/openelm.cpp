// openelm: OpenELM, 270M to 3B. The later a layer, the more heads it has and the wider is its feed-forward network;
// queries, keys and values are rows of one matrix, heads are normalised.
#include <cstddef>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  std::vector<DecoderConfig> layers = {};
};

void require_sizes(const Metadata& md, const DecoderConfig& layer) {
  const HyperParameters hp(md, layer.architecture);
  if (layer.kv_heads == 0) hp.fail("attention.head_count_kv", "is 0 in a layer, and all layers attend");
  if (layer.d_ff == 0) hp.fail("feed_forward_length", "is 0 in a layer, and all layers have a feed-forward network");
}

Config configure(const Metadata& md) {
  Config c{
      read_decoder_config(md, "openelm", {"attention.head_count", "attention.head_count_kv", "feed_forward_length"})};
  refuse_experts(md, c);
  refuse_window(md, c);
  c.layers = read_layers(md, c);
  for (const DecoderConfig& layer : c.layers) require_sizes(md, layer);
  c.kv_heads = c.layers.back().kv_heads;
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    const DecoderConfig& layer = c.layers[static_cast<std::size_t>(i)];
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, head_norm_attention(a, layer, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, glu_ffn(f, Activation::Silu, y, layer.d_ff, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_openelm(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
