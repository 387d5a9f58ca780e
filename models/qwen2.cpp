// qwen2, qwen2vl, qwen, pangu-embedded, paddleocr, cogvlm: Qwen2 and Qwen2.5, and the models distilled into them; the
// text part of Qwen2-VL and Qwen2.5-VL; the first Qwen; openPangu-Embedded; the text parts of PaddleOCR-VL and CogVLM.
// Biases where files have them: on q, k and v. The positions that rope.dimension_sections shares out are one and the
// same for a token of text, so the rotation is the plain one. CogVLM has other weights for pictures.
#include <string>
#include <string_view>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

/// The first Qwen's key says the width of gate and up together.
void halve_widths(const Metadata& md, DecoderConfig& c) {
  for (LayerSizes& layer : c.layers) {
    if (layer.d_ff % 2 != 0)
      HyperParameters(md, c.architecture)
          .fail("feed_forward_length",
                "value " + std::to_string(layer.d_ff) + " is odd, but it is the width of gate and up together");
    layer.d_ff /= 2;
  }
}

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c = read_dense_config(md, md.get<std::string_view>("general.architecture"));
  if (c.architecture == "qwen") halve_widths(md, c);
  if (c.architecture == "cogvlm") c.unread = {"blk.*.vis_*"};
  return c;
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, glu_ffn(f, c, Activation::Silu, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_qwen2(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
