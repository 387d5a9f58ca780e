// deci: DeciLM, and what was made of Llama 3 by a search over its blocks: Nemotron 51B, Super 49B, Ultra 253B. Layers
// differ in their heads of keys and in the width of the feed-forward network; some have a product in place of
// attention, or none, and some no feed-forward network.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  std::vector<DecoderConfig> layers = {};
};

Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "deci", {"attention.head_count", "attention.head_count_kv", "feed_forward_length"})};
  refuse_experts(md, c);
  refuse_window(md, c);
  c.layers = read_layers(md, c);
  for (const DecoderConfig& layer : c.layers) c.kv_heads = std::max(c.kv_heads, layer.kv_heads);
  if (c.kv_heads == 0)
    HyperParameters(md, c.architecture)
        .fail("attention.head_count_kv", "is 0 in every layer: a model of which none attends is not supported");
  return c;
}

/// With heads of queries alone it is a product.
Act attention(Scope s, const DecoderConfig& layer, const Rotary& rot, Act x) {
  const Act y = s.rms_norm("attn_norm", x, layer.norm_eps);
  return layer.kv_heads > 0 ? rotary_attention(s, layer, rot, y) : s.linear("attn_output", y, layer.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    const DecoderConfig& layer = c.layers[static_cast<std::size_t>(i)];
    Scope a = net.layer(i, Role::Attention);
    if (layer.heads > 0) x = a.add("attn_residual", x, attention(a, layer, rot, x));
    Scope f = net.layer(i, Role::Ffn);
    if (layer.d_ff == 0) continue;
    const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, glu_ffn(f, Activation::Silu, y, layer.d_ff, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_deci(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
