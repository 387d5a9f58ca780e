// The tensors of tiny models.
#include <string>

#include "support/tiny_writer.h"

namespace llm::test {
namespace {

void add_head_norms(TinyWriter& w, const std::string& blk, const TinyLayer& l, int q, int kv) {
  if (w.family.qk_norm == TinyFamily::HeadNorms::None) return;
  const bool whole = w.family.qk_norm == TinyFamily::HeadNorms::Whole;
  w.vector(blk + "attn_q_norm.weight", whole ? q : l.head_dim, 1, 0.2f);
  if (l.keys) w.vector(blk + "attn_k_norm.weight", whole ? kv : l.head_dim, 1, 0.2f);
}

void add_attention(TinyWriter& w, int layer) {
  const TinyFamily& f = w.family;
  if (f.indexer != TinyFamily::Indexer::None) add_tiny_indexer(w, layer);
  if (f.latents != TinyFamily::Latents::None) return add_tiny_latents(w, layer);
  const TinyLayer& l = w.layer(layer);
  const std::string blk = w.block(layer);
  const int n = w.o.n_embd, q = l.heads * l.head_dim, kv = l.kv_heads * l.head_dim;
  const bool qkv_biases = w.has_biases() || f.qkv_biases;
  if (f.fused_qkv) {
    w.linear(blk + "attn_qkv", n, q + 2 * kv, qkv_biases);
  } else {
    w.linear(blk + "attn_q", n, f.joint_query_gates ? 2 * q : q, qkv_biases);
    if (l.keys) w.linear(blk + "attn_k", n, kv, qkv_biases);
    if (l.values) w.linear(blk + "attn_v", n, kv, qkv_biases);
  }
  w.linear(blk + "attn_output", q, n, w.has_biases() || f.output_bias);
  if (f.gates != TinyFamily::Gates::None)
    w.linear(blk + "attn_gate", n, f.gates == TinyFamily::Gates::OfHeads ? l.heads : q);
  const bool local = !TinyWriter::sees_all(layer);
  if (f.sinks == TinyFamily::Sinks::All || (f.sinks == TinyFamily::Sinks::WithWindow && local))
    w.vector(blk + "attn_sinks.weight", l.heads, 0, 2);
  add_head_norms(w, blk, l, q, kv);
}

void add_shared_expert(TinyWriter& w, const std::string& blk) {
  const int n = w.o.n_embd, width = w.family.shared * w.o.d_ff;
  if (!w.family.ungated) w.linear(blk + "ffn_gate_shexp", n, width);
  w.linear(blk + "ffn_up_shexp", n, width);
  w.linear(blk + "ffn_down_shexp", width, n);
  if (w.family.shared_gate) w.vector(blk + "ffn_gate_inp_shexp.weight", n, 0, 0.5f);
}

void add_usual_experts(TinyWriter& w, const std::string& blk) {
  const TinyFamily& f = w.family;
  const int n = w.o.n_embd, d_ff = w.o.d_ff;
  w.add({blk + "ffn_gate_inp.weight", {DType::F32, {n, w.experts}}, 0, 0.5f});
  if (!f.ungated) w.matrix(blk + "ffn_gate_exps.weight", {n, d_ff, w.experts});
  w.matrix(blk + "ffn_up_exps.weight", {n, d_ff, w.experts});
  w.matrix(blk + "ffn_down_exps.weight", {d_ff, n, w.experts});
  if (f.choice_bias) w.vector(blk + "exp_probs_b.bias", w.experts, 0, 0.3f);
  if (f.expert_biases) {
    w.vector(blk + "ffn_gate_inp.bias", w.experts, 0, 0.5f);
    w.add({blk + "ffn_gate_exps.bias", {DType::F32, {d_ff, w.experts}}, 0, 2});
    w.add({blk + "ffn_up_exps.bias", {DType::F32, {d_ff, w.experts}}, 0, 2});
    w.add({blk + "ffn_down_exps.bias", {DType::F32, {n, w.experts}}, 0, 0.5f});
  }
  if (f.shared > 0) add_shared_expert(w, blk);
}

void add_dense_ffn(TinyWriter& w, const std::string& blk, int d_ff) {
  const TinyFamily& f = w.family;
  if (!f.fused_ffn && !f.ungated) w.linear(blk + "ffn_gate", w.o.n_embd, d_ff, w.has_biases());
  w.linear(blk + "ffn_up", w.o.n_embd, (f.fused_ffn ? 2 : 1) * d_ff, w.has_biases());
  w.linear(blk + "ffn_down", d_ff, w.o.n_embd, w.has_biases());
}

void add_ffn(TinyWriter& w, int layer) {
  const TinyLayer& l = w.layer(layer);
  const bool routes = w.experts > 0 && !l.dense;
  if (routes && w.family.add_experts) w.family.add_experts(w, layer);
  if (routes && !w.family.add_experts) add_usual_experts(w, w.block(layer));
  if (!routes || w.family.dense_beside) add_dense_ffn(w, w.block(layer), l.d_ff);
}

void add_layer(TinyWriter& w, int i) {
  const TinyLayer& l = w.layer(i);
  for (const std::string_view name : l.norms) w.norm(w.block(i) + std::string(name));
  if (l.attends) add_attention(w, i);
  if (l.mixes) w.family.mixer->add(w, i);
  if (w.family.add_to_layer) w.family.add_to_layer(w, i);
  if (l.feeds) add_ffn(w, i);
}

void add_prediction(TinyWriter& w, const std::string& blk) {
  w.norm(blk + "nextn.enorm");
  w.norm(blk + "nextn.hnorm");
  w.linear(blk + "nextn.eh_proj", 2 * w.o.n_embd, w.o.n_embd);
}

}  // namespace

void add_tiny_tensors(TinyWriter& w) {
  const TinyOptions& o = w.o;
  const TinyFamily& f = w.family;
  const int vocab = tiny_vocabulary(o.tokenizer);
  w.matrix("token_embd.weight", {o.n_embd, vocab});
  if (!f.final_norm.empty()) w.norm(std::string(f.final_norm));
  if (!o.tied) w.matrix("output.weight", {o.n_embd, vocab});
  if (f.embedding_norm) w.norm("token_embd_norm");
  if (f.logit_bias) w.vector("output.bias", vocab, 0, 0.2f);
  if (f.positions) w.matrix("position_embd.weight", {o.n_embd, o.context});
  if (o.rope == TinyRope::Llama3) w.vector("rope_freqs.weight", o.head_dim / 2, 4.5f, 3.5f);
  if (f.add_ends) f.add_ends(w);
  for (int i = 0; i < o.layers; ++i) add_layer(w, i);
  if (o.predicting) add_prediction(w, w.block(o.layers - 1));
}

}  // namespace llm::test
