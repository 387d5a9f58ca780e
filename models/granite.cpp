// granite, granitemoe, granite_swa: the Granite models without state space layers, 3.x and 4.0, dense and with experts,
// and those of which some layers see a window. Four scales that the file gives: of the embedding, of each block's
// result before it is added, of attention (read with what decoders share) and of the logits, which are divided by
// theirs. With experts, every layer routes its tokens, the weights of the chosen ones sum to 1, and beside them there
// may be an expert that all tokens share. With windows, heads have sinks, and the file may say which layers turn them.
#include <string_view>
#include <vector>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  Scales scales = {};
  bool sinks = false;
  std::vector<bool> turning = {};  ///< layers that turn heads; empty: all

  bool turns(int layer) const { return turning.empty() || turning[static_cast<std::size_t>(layer)]; }
};

Config configure_windows(const Metadata& md) {
  Config c{read_decoder_config(md, "granite_swa",
                               {"attention.sliding_window_pattern", "embedding_scale", "residual_scale", "logit_scale",
                                "expert_shared_feed_forward_length"})};
  require_local_layers(md, c);
  c.scales = read_scales(md, c);
  c.sinks = true;
  c.turning = HyperParameters(md, c.architecture)
                  .optional_flags("attention.rope_pattern", c.n_layers)
                  .value_or(std::vector<bool>());
  c.moe = read_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  if (c.moe) c.moe->d_shared = read_shared_width(md, c);
  return c;
}

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  if (arch == "granite_swa") return configure_windows(md);
  Config c{read_decoder_config(
      md, arch, {"embedding_scale", "residual_scale", "logit_scale", "expert_shared_feed_forward_length"})};
  refuse_window(md, c);
  c.scales = read_scales(md, c);
  HyperParameters(md, arch).expect_neutral("rope.scaling.finetuned", 1, 1);  // 0: without positions
  if (arch == "granite") {
    refuse_experts(md, c);
    return c;
  }
  c.moe = require_moe_config(md, c, c.most().d_ff, RouteWeights::Renormalized);
  c.moe->d_shared = read_shared_width(md, c);  // converters write it for dense models, too
  return c;
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  const AttentionHeads plain = attention_heads(s, c, x);
  const AttentionHeads heads = c.turns(s.layer()) ? rotate_heads(s, plain, rot) : plain;
  return attention_output(s, c, c.sinks ? results_with_sinks(s, c, heads) : results_by_heads(s, c, heads));
}

/// Of newer files gate and up are rows of one matrix.
Act joint_shared_expert(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd) {
  const Act gate = s.linear_rows("ffn_gate_shexp", "ffn_up_shexp", 2 * m.d_shared, x, {0, m.d_shared});
  const Act up = s.linear_rows("ffn_up_shexp", "ffn_up_shexp", 2 * m.d_shared, x, {m.d_shared, m.d_shared});
  return s.linear("ffn_down_shexp", s.glu(Activation::Silu, gate, up, "ffn_glu_shexp"), n_embd);
}

Act ffn(Scope s, const Config& c, Act x) {
  if (!c.moe) return glu_ffn(s, c, Activation::Silu, x);
  if (c.moe->d_shared == 0 || s.has("ffn_gate_shexp")) return shared_moe_ffn(s, *c.moe, x, c.n_embd);
  const Act y = moe_ffn(s, *c.moe, x, c.n_embd);
  return s.add("ffn_sum", y, joint_shared_expert(s, *c.moe, x, c.n_embd));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved, "rope_freqs");
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  x = net.top(Role::Embed).scale("embed_scaled", x, c.scales.embedding);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    Act y = attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps));
    x = a.add("attn_residual", x, a.scale("attn_scaled", y, c.scales.residual));
    Scope f = net.layer(i, Role::Ffn);
    y = ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps));
    x = f.add("ffn_residual", x, f.scale("ffn_scaled", y, c.scales.residual));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  x = net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
  return net.top(Role::Head).scale("output_scaled", x, 1 / c.scales.logits);
}

}  // namespace

ModelSpec open_granite(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
