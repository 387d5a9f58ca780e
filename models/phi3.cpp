// phi3: Phi-3, 3.5 and 4, dense. Queries, keys and values are rows of one matrix, gate and up of another; files for
// long contexts have two sets of divisors of the rotary frequencies (arXiv:2402.13753).
#include <cstdint>
#include <limits>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr IntegerRule kOriginalContext{"rope.scaling.original_context_length", 0,
                                       std::numeric_limits<std::uint32_t>::max()};

struct Config : DecoderConfig {
  std::string_view factors;  ///< the tensor, where a file has it
};

/// Keys in the cache are turned once, so a model has one set for all positions: the long one if it may go beyond the
/// context that the short one is for.
Config configure(const Metadata& md) {
  Config c{read_decoder_config(md, "phi3", {"rope.scaling.type"}), {}};
  refuse_experts(md, c);
  const std::int64_t original = HyperParameters(md, "phi3").optional_integer(kOriginalContext).value_or(0);
  c.factors = original > 0 && c.context > original ? "rope_factors_long" : "rope_factors_short";
  return c;
}

Act attention(Scope s, const DecoderConfig& c, const Rotary& rot, Act x) {
  const std::int64_t q_rows = c.heads * c.head_dim, k_rows = c.kv_heads * c.head_dim,
                     v_rows = c.kv_heads * c.head_dim_v;
  const auto heads = [&](std::string_view name, RowRange rows, int n) {
    const Act y = s.linear_rows(name, "attn_qkv", q_rows + k_rows + v_rows, x, rows);
    return s.split_heads(std::string(name) + "_heads", y, n);
  };
  Act q = heads("attn_q", {0, q_rows}, c.heads);
  Act k = heads("attn_k", {q_rows, k_rows}, c.kv_heads);
  Act v = heads("attn_v", {q_rows + k_rows, v_rows}, c.kv_heads);
  q = s.rope("attn_q_rope", q, rot);
  k = s.rope("attn_k_rope", k, rot);
  return attend(s, c, q, k, v);
}

Act ffn(Scope s, const DecoderConfig& c, Act x) {
  Act gate = s.linear_rows("ffn_gate", "ffn_up", 2 * c.d_ff, x, {0, c.d_ff});
  Act up = s.linear_rows("ffn_up", "ffn_up", 2 * c.d_ff, x, {c.d_ff, c.d_ff});
  return s.linear("ffn_down", s.glu(Activation::Silu, gate, up), c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Halves, c.factors);
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    x = f.add("ffn_residual", x, ffn(f, c, f.rms_norm("ffn_norm", x, c.norm_eps)));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_phi3(const Metadata& md) {
  const Config c = configure(md);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, c); },
          .ignorable = {"rope_factors_long.weight", "rope_factors_short.weight"}};
}

}  // namespace llm
