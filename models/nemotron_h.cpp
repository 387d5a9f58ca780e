// nemotron_h: Nemotron-H and Nemotron Nano 2, dense. Each layer is one thing: a layer of Mamba-2, attention without
// positions, or a feed-forward network without a gate, of squared ReLU.
#include "model/hybrid.h"

namespace llm {
namespace {

SingleConfig configure(const Metadata& md) {
  SingleConfig c =
      read_single_config(md, "nemotron_h", {"attention.head_count_kv", "feed_forward_length", "nextn_predict_layers"});
  refuse_experts(md, c);
  return c;
}

Act forward(Net& net, const SingleConfig& c) {
  const Step step = net.step();
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    const auto layer = static_cast<std::size_t>(i);
    const bool feeds = c.kinds[layer] == SingleConfig::Kind::Ffn;
    Scope s = net.layer(i, feeds ? Role::Ffn : Role::Attention);
    const Act y = s.rms_norm("attn_norm", x, c.norm_eps);
    x = s.add(
        "residual", x,
        feeds ? ungated_ffn(s, Nonlinearity::SquaredRelu, y, c.layer_d_ff[layer], c.n_embd) : single_layer(s, c, y));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_nemotron_h(const Metadata& md) {
  const SingleConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
