// Parts of a layer that several families share. A family that differs writes its own block in its own file: no
// switches.
#pragma once

#include <cstdint>

#include "model/decoder_config.h"
#include "model/net.h"

namespace llm {

/// Grouped-query attention with rotary positions over x [n_embd, tokens]: attn_q, attn_k, attn_v, attn_output.
Act rotary_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// The same with each head of q and k normalised before it is rotated: attn_q_norm, attn_k_norm [head_dim].
Act head_norm_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// The same with each head normalised by a layer norm with weights of its own, attn_q_norm and attn_k_norm [head_dim,
/// heads], where the file has them.
Act own_norms_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// The same by the rows of one matrix: attn_qkv.
Act fused_attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x);
/// rotary_attention() without positions: nothing is rotated.
Act unrotated_attention(Scope s, const DecoderConfig& c, Act x);
/// From q, k, v by heads to the projection back to n_embd: stores keys and values, attends, attn_output.
Act attend(Scope s, const DecoderConfig& c, Act q, Act k, Act v);

/// cap * tanh(logits / cap); the logits where cap is 0.
Act capped_logits(Net& net, Act logits, float cap);

/// down(activation(gate(x)) * up(x)): ffn_gate, ffn_up, ffn_down.
Act glu_ffn(Scope s, Activation activation, Act x, std::int64_t d_ff, std::int64_t n_embd);
/// The same where gate and up are rows of one matrix, ffn_up, gate first.
Act fused_glu_ffn(Scope s, Activation activation, Act x, std::int64_t d_ff, std::int64_t n_embd);
/// down(function(up(x))): ffn_up, ffn_down.
Act ungated_ffn(Scope s, Nonlinearity function, Act x, std::int64_t d_ff, std::int64_t n_embd);
/// glu_ffn(), with the configured activation, by the experts that the router ffn_gate_inp chooses for each token:
/// ffn_gate_exps, ffn_up_exps, ffn_down_exps.
Act moe_ffn(Scope s, const MoeConfig& m, Act x, std::int64_t n_embd);

}  // namespace llm
