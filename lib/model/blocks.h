// Parts of a layer that several families share. A family that differs writes its own block in its own file: no
// switches. Heads and widths are those of the scope's layer.
#pragma once

#include <cstdint>
#include <optional>

#include "model/decoder_config.h"
#include "model/net.h"

namespace llm {

/// Queries, keys and values by heads.
struct AttentionHeads {
  Act q, k, v;
};
/// attn_q, attn_k, attn_v, or the rows of attn_qkv, one after another, where the file has it.
AttentionHeads attention_heads(Scope s, const DecoderConfig& c, Act x);

/// Every element kept within limit of 0; all as they are where it is 0.
AttentionHeads clamp_heads(Scope s, const AttentionHeads& heads, float limit);
/// Each head of q and k normalised: attn_q_norm, attn_k_norm [head_dim].
AttentionHeads normalize_heads(Scope s, const DecoderConfig& c, const AttentionHeads& heads);
/// q and k rotated.
AttentionHeads rotate_heads(Scope s, const AttentionHeads& heads, const Rotary& rot);
/// q times `scale`, net.position_scale(), where there is one.
Act scale_queries(Scope s, Act q, const std::optional<Act>& scale);

/// Stores keys and values and attends: [head_dim_v, heads, tokens].
Act results_by_heads(Scope s, const DecoderConfig& c, const AttentionHeads& heads);
/// The same with a sink in each head: attn_sinks.
Act results_with_sinks(Scope s, const DecoderConfig& c, const AttentionHeads& heads);
/// From these back to [n_embd, tokens]: attn_output.
Act attention_output(Scope s, const DecoderConfig& c, Act results);
/// attention_output() of results_by_heads().
Act attend(Scope s, const DecoderConfig& c, const AttentionHeads& heads);

/// A norm by `name`, or by `name`.weight where the file has that: converters of some families leave out the end.
Act bare_rms_norm(Scope s, std::string_view name, Act x, float eps);

/// Grouped-query attention with rotary positions over x [n_embd, tokens]: attention_heads(), attn_output.
Act rotary_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
Act rotary_attention(Scope s, const DecoderConfig& c, const Rotary& rot, const AttentionHeads& heads);
/// The same with each head of q and k normalised before it is rotated: attn_q_norm, attn_k_norm [head_dim].
Act head_norm_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// The same with q and k normalised over their whole width before they are split into heads.
Act whole_norm_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// The same with each head of q and k normalised after it is rotated.
Act norm_rotated_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// The same with each head normalised by a layer norm with weights of its own, attn_q_norm and attn_k_norm [head_dim,
/// heads], where the file has them.
Act own_norms_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// rotary_attention() without positions: nothing is rotated.
Act unrotated_attention(Scope s, const DecoderConfig& c, Act x);
/// head_norm_attention() without positions.
Act unrotated_head_norm_attention(Scope s, const DecoderConfig& c, Act x);

/// x [n_embd, tokens] as each of n streams: [n_embd, n, tokens].
Act several_streams(Scope s, Act x, int n);

/// cap * tanh(logits / cap); the logits where cap is 0.
Act capped_logits(Net& net, Act logits, float cap);

/// down(activation(gate(x)) * up(x)), as wide as the layer's d_ff: ffn_gate, ffn_up, ffn_down.
Act glu_ffn(Scope s, const DecoderConfig& c, Activation activation, Act x);
Act glu_ffn(Scope s, const DecoderConfig& c, const Glu& gated, Act x);
/// The same with gate and up as rows of ffn_up, one after the other.
Act fused_glu_ffn(Scope s, const DecoderConfig& c, Activation activation, Act x);
/// down(function(up(x))): ffn_up, ffn_down.
Act ungated_ffn(Scope s, const DecoderConfig& c, Nonlinearity function, Act x);
/// The weights of experts, declared ahead of their use: ffn_gate_exps, ffn_up_exps, ffn_down_exps.
struct ExpertWeights {
  Weight gate, up, down;
  bool merged = false;  ///< `gate` is ffn_gate_up_exps: its rows, then those of `up`, which is not there
};
ExpertWeights expert_weights(Scope s, const MoeConfig& m, std::int64_t n_embd);
/// How a router of these experts chooses.
Route routing(const MoeConfig& m);
/// Those that the router ffn_gate_inp chooses for each token, with exp_probs_b where the file has it.
Routes choose_experts(Scope s, const MoeConfig& m, Act x);
/// What experts that are already chosen make of x by glu_ffn() with the configured activation: [n_embd, active,
/// tokens]. `glu`: of that node.
Act expert_results(Scope s, const MoeConfig& m, const ExpertWeights& w, Act x, const Routes& routes,
                   std::string_view glu = "ffn_glu");
/// The weighted sum of these: [n_embd, tokens].
Act expert_ffn(Scope s, const MoeConfig& m, const ExpertWeights& w, Act x, const Routes& routes,
               std::string_view glu = "ffn_glu");
/// The same as glu_ffn(), with the configured activation, by choose_experts().
Act moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd);
/// The expert that all tokens share: ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp.
Act shared_expert(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd);
/// Both, or the experts alone where none is shared.
Act shared_moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd);
/// Both, the shared one behind a gate of its own, a sigmoid: ffn_gate_inp_shexp [n_embd].
Act gated_shared_moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd);
/// For families of which some layers are dense: one or the other, as c.moe says.
Act moe_or_dense_ffn(Scope s, const DecoderConfig& c, Act x);

}  // namespace llm
