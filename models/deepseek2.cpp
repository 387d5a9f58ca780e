// deepseek2: DeepSeek V2 and V3, Kimi K2, GLM-4.7-Flash, Mistral Large 3, with mistral4 Mistral Small 4, and others
// with multi-head latent attention (arXiv:2405.04434): keys and values of all heads are products of one short vector,
// beside which only the rotated part of the keys, which the heads share, has to be known of a position. Behind the
// dense layers, experts and one that all tokens share; Youtu-LLM has dense layers alone. Files are of both forms of
// model/latent_attention.h.
#include <algorithm>
#include <limits>
#include <optional>

#include "model/blocks.h"
#include "model/hyper_parameters.h"
#include "model/latent_attention.h"
#include "model/prediction.h"

namespace llm {
namespace {

constexpr IntegerRule kGatingFunction{"expert_gating_func", 0, std::numeric_limits<std::uint32_t>::max()};

struct Config : LatentConfig {
  bool gating_known = true;  ///< by the file's keys
};

/// V2 goes by a group's best expert, V3 by its best two.
void set_gating(MoeConfig& m, Gating gate) {
  m.gate = gate;
  m.group_best = gate == Gating::Softmax ? 1 : 2;
}

void read_experts(const Metadata& md, Config& c) {
  c.gating_known = HyperParameters(md, c.architecture).optional_integer(kGatingFunction).value_or(0) != 0;
  read_gating(md, c, Gating::Sigmoid);
  set_gating(*c.moe, c.moe->gate);
  read_expert_groups(md, c);
  read_shared_experts(md, c);
  read_leading_dense(md, c);
}

Config configure(const Metadata& md) {
  const auto arch = md.get<std::string_view>("general.architecture");
  Config c{{read_decoder_config(
      md, arch,
      {kGatingFunction.key, "expert_group_count", "expert_shared_count", "leading_dense_block_count",
       "nextn_predict_layers", kLatentMultiplier, "attention.temperature_scale"})}};
  read_latent_heads(md, c);
  read_latent_scale(md, c);
  c.growth = read_position_scale(md, c);
  c.moe = read_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  if (c.moe) read_experts(md, c);
  refuse_window(md, c);
  leave_prediction_layers_out(md, c);
  return c;
}

/// Neither files of V2 nor those of GLM-4.7-Flash say how experts are gated; only sigmoids come with a bias of the
/// choice.
Config with_gating(Net& net, Config c) {
  if (!c.moe || c.gating_known) return c;
  const Scope first = net.layer(std::min(c.moe->leading_dense, c.n_layers - 1), Role::Router);
  set_gating(*c.moe, first.has_tensor("exp_probs_b.bias") ? Gating::Sigmoid : Gating::Softmax);
  return c;
}

/// What layers make of positions.
struct Positions {
  Rotary rot;
  std::optional<Act> growth;
};

Positions positions(Net& net, const Config& c) {
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  return {rot, c.growth ? std::optional(net.position_scale(*c.growth)) : std::nullopt};
}

/// Layer i.
Act block(Net& net, const Config& c, const Positions& p, int i, Act x) {
  Scope a = net.layer(i, Role::Attention);
  x = a.add("attn_residual", x, latent_attention(a, c, p.rot, p.growth, a.rms_norm("attn_norm", x, c.norm_eps)));
  Scope f = net.layer(i, Role::Ffn);
  const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
  return f.add("ffn_residual", x, c.moe ? moe_or_dense_ffn(f, c, y) : glu_ffn(f, c, Activation::Silu, y));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Positions p = positions(net, c);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) x = block(net, c, p, i, x);
  return net.head("output", final_norm(net, c, x, step.out_rows), c.vocab, /*tied_to=*/"token_embd");
}

Act predict(Net& net, const Config& c) {
  const Step step = net.step();
  const Positions p = positions(net, c);
  const Act x = block(net, c, p, c.n_layers, prediction_input(net, c, step.tokens));
  return prediction_logits(net, c, x, step.out_rows);
}

}  // namespace

ModelSpec open_deepseek2(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, with_gating(net, c)); },
          .ignorable = c.unread,
          .predict = [c](Net& net) { return predict(net, with_gating(net, c)); }};
}

}  // namespace llm
