// Layers of models that mix attention with the gated delta rule (Gated DeltaNet, arXiv:2412.06464): Qwen3-Next,
// Qwen3.5.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"

namespace llm {

struct DeltaConfig : DecoderConfig {
  int conv_width = 0;
  int key_heads = 0, value_heads = 0;
  int head_length = 0;                 ///< of keys and of values
  Activation gate = Activation::Silu;  ///< of a layer's results
  std::vector<bool> recurrent = {};    ///< layers

  std::int64_t keys() const { return std::int64_t{key_heads} * head_length; }
  std::int64_t values() const { return std::int64_t{value_heads} * head_length; }
};

/// The configuration of an architecture whose files have the keys ssm.* and full_attention_interval. `own` is what
/// these families read, or more.
DeltaConfig read_delta_config(const Metadata&, std::string_view arch,
                              OwnKeys own = {"nextn_predict_layers", "expert_shared_feed_forward_length"});
/// Experts in every layer, whose weights sum to 1, and a shared one.
void read_delta_experts(const Metadata&, DeltaConfig&);
/// Refuses rope.dimension_sections that would leave pairs without a token's position.
void require_text_sections(const Metadata&, const DeltaConfig&);

/// Heads of q and k normalised, part of each rotated, and what results are gated by: a head of attn_q is its query,
/// then its gate.
struct GatedHeads {
  AttentionHeads heads;
  Act gate;
};
GatedHeads gated_heads(Scope s, const DeltaConfig& c, const Rotary& rot, Act x);
/// Results [head_dim, heads, tokens], gated by a sigmoid: attn_output.
Act gated_output(Scope s, const DeltaConfig& c, Act results, Act gate);
/// Attention of these to all keys.
Act gated_attention(Scope s, const DeltaConfig& c, const Rotary& rot, Act x);
/// What of a layer with the delta rule is made in front of it: of x [n_embd, tokens] `alpha` and `beta` [value_heads,
/// tokens].
struct DeltaGates {
  Act alpha, beta;
};
/// ssm_alpha, ssm_beta.
DeltaGates delta_gates(Scope s, const DeltaConfig& c, Act x);
/// attn_qkv, the convolution ssm_conv1d, the rule, ssm_norm gated by attn_gate, ssm_out.
Act delta_layer(Scope s, const DeltaConfig& c, Act x, const DeltaGates& gates, HeadSharing sharing);

}  // namespace llm
