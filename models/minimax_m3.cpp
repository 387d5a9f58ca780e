// minimax-m3: MiniMax-M3, the text part. Heads are normalised and turned in part; gates are gpt-oss's. Behind the dense
// layers, experts chosen by sigmoids and a bias, beside them one that all tokens share; and there the heads of each KV
// head attend to blocks of keys that an index of theirs selects (MiniMax sparse attention).
#include <cstdint>
#include <string>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

struct Config : DecoderConfig {
  int index_dim = 0;
  SelectBlocks selection = {};
};

/// Files count blocks.
void read_index(const Metadata& md, Config& c) {
  const HyperParameters hp(md, c.architecture);
  const std::int64_t heads = hp.integer({"attention.indexer.head_count", 1, 4096});
  if (heads != c.most().kv_heads)
    hp.fail("attention.indexer.head_count", "value " + std::to_string(heads) + ", but attention.head_count_kv is " +
                                                std::to_string(c.most().kv_heads) + ", and each selects for itself");
  c.index_dim = static_cast<int>(hp.integer({"attention.indexer.key_length", c.rope.n_rot, 1 << 16}));
  const std::int64_t block = hp.integer({"attention.indexer.block_size", 1, 1 << 14});
  const std::int64_t blocks = hp.integer({"attention.indexer.top_k", 1, (1 << 20) / block});
  const std::int64_t local = hp.integer({"attention.indexer.local_blocks", 1, blocks});
  c.selection = {
      .top_k = static_cast<int>(block * blocks), .block = static_cast<int>(block), .local = static_cast<int>(local)};
}

Config configure(const Metadata& md) {
  Config c{read_decoder_config(
      md, "minimax-m3",
      {"expert_gating_func", "expert_shared_count", "leading_dense_block_count", "attention.indexer.top_k"})};
  read_sigmoid_experts(md, c);
  c.moe->activation = Activation::ClampedSilu;
  refuse_window(md, c);
  read_index(md, c);
  return c;
}

Index select(Scope s, const Config& c, const Rotary& rot, Act x) {
  const int n = c.of(s.layer()).kv_heads;
  const Act all = s.linear("indexer.q_proj", x, std::int64_t{n} * c.index_dim);
  const Act q = s.rms_norm("indexer.q_norm", s.split_heads("indexer.q_heads", all, n), c.norm_eps);
  const Act one = s.split_heads("indexer.k_head", s.linear("indexer.k_proj", x, c.index_dim), 1);
  const Act k = s.rms_norm("indexer.k_norm", one, c.norm_eps);
  const Cache index = s.index_append(s.rope("indexer.k_rope", k, rot));
  return s.select_blocks(s.rope("indexer.q_rope", q, rot), index, c.selection);
}

Act attention(Scope s, const Config& c, const Rotary& rot, Act x) {
  if (!c.moe->is_in(s.layer())) return head_norm_attention(s, c, rot, x);
  const Index selected = select(s, c, rot, x);
  const AttentionHeads heads = rotate_heads(s, normalize_heads(s, c, attention_heads(s, c, x)), rot);
  const Cache cache = s.selected_kv_append(heads.k, heads.v);
  return attention_output(s, c, s.selected_attention(heads.q, cache, selected, {.scale = c.attention_scale}));
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves);
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

ModelSpec open_minimax_m3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(), .build = [c](Net& net) { return forward(net, c); }};
}

}  // namespace llm
