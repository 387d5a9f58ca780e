// deepseek, bailingmoe, deepseek2-ocr: DeepSeek-MoE-16B; Ling 1; the text part of DeepSeek-OCR. Behind the dense
// layers, experts by softmax, whose weights sum to 1 if the file says so, and some that all tokens share. Files of
// DeepSeek-OCR have a key that may say that experts are chosen by sigmoids.
#include <string_view>

#include "model/blocks.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  RopePairing pairing = RopePairing::Interleaved;
};

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  const bool ocr = arch == "deepseek2-ocr";
  Config c{
      ocr ? read_decoder_config(md, arch, {"expert_gating_func", "expert_shared_count", "leading_dense_block_count"})
          : read_decoder_config(md, arch, {"expert_shared_count", "leading_dense_block_count"}),
      ocr ? RopePairing::Halves : RopePairing::Interleaved};
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  if (ocr) read_gating(md, c, Gating::Softmax);
  read_shared_experts(md, c);
  read_leading_dense(md, c);
  refuse_window(md, c);
  return c;
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, c.pairing, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, rotary_attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_deepseek(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
