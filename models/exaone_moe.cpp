// exaone-moe: K-EXAONE. Heads are normalised; three of every four layers see a window alone and the fourth, which sees
// all, has no positions: its queries and keys are not rotated. Behind the dense layers, experts chosen by sigmoids and
// a bias, beside them one that all tokens share.
#include <cstdint>
#include <limits>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr int kPeriod = 4;

DecoderConfig configure(const Metadata& md) {
  DecoderConfig c =
      read_decoder_config(md, "exaone-moe",
                          {"attention.sliding_window_pattern", "expert_gating_func", "expert_shared_count",
                           "expert_shared_feed_forward_length", "leading_dense_block_count", "nextn_predict_layers"});
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  read_gating(md, c, Gating::Sigmoid);
  read_leading_dense(md, c);
  const std::int64_t shared = read_shared_width(md, c);  // of all of them, whatever expert_shared_count says
  c.moe->d_shared = shared > 0 ? shared : c.moe->d_ff;
  HyperParameters(md, c.architecture)
      .integer({"attention.sliding_window", 1, std::numeric_limits<std::uint32_t>::max()});
  leave_prediction_layers_out(md, c);
  read_local_layers(md, c, kPeriod);  // of the layers that are left: files have no flags for the others
  return c;
}

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  return c.is_local(s.layer()) ? head_norm_attention(s, c, rot, x) : unrotated_head_norm_attention(s, c, x);
}

Act forward(Net& net, const DecoderConfig& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, moe_or_dense_ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_exaone_moe(const Metadata& md) {
  const DecoderConfig c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }, .ignorable = c.unread};
}

}  // namespace llm
