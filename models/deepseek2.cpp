// deepseek2: DeepSeek V2 and V3, Kimi K2, GLM-4.7-Flash, Mistral Large 3, with mistral4 Mistral Small 4, and others
// with multi-head latent attention (arXiv:2405.04434): keys and values of all heads are products of one short vector,
// beside which only the rotated part of the keys, which the heads share, has to be known of a position. Behind the
// dense layers, experts and one that all tokens share; Youtu-LLM has dense layers alone.
//
// Of newer files, attention works on that vector: attn_k_b brings queries to it, attn_v_b the results from it, and the
// cache holds kv_lora_rank + n_rot and kv_lora_rank elements a position. Older ones have attn_kv_b, which makes keys
// and values from it, and theirs are kept. Which it is the keys say: attention.key_length_mla is the newer ones'.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "model/blocks.h"
#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr std::string_view kMultiplier = "rope.scaling.yarn_log_multiplier";
constexpr IntegerRule kLatent{"attention.kv_lora_rank", 1, 1 << 16}, kQueryLatent{"attention.q_lora_rank", 0, 1 << 16},
    kGatingFunction{"expert_gating_func", 0, std::numeric_limits<std::uint32_t>::max()},
    kHeadKey{"attention.key_length_mla", 1, 1 << 16}, kHeadValue{"attention.value_length_mla", 1, 1 << 16};

struct Config : DecoderConfig {
  bool gating_known = true;                   ///< by the file's keys
  bool latent_cache = false;                  ///< attention works on what the keys and values are made from
  std::int64_t latent = 0, query_latent = 0;  ///< query_latent: 0 if queries are made from the input itself
  std::optional<PositionScale> growth = {};   ///< of queries: Mistral Large 3
  std::int64_t head_key = 0, head_value = 0;  ///< of one head, the rotated part of the key among the former
  std::int64_t unrotated() const { return head_key - rope.n_rot; }
};

void expect(const HyperParameters& hp, std::string_view key, std::int64_t value, std::int64_t needed) {
  if (value != needed)
    hp.fail(key, "value " + std::to_string(value) + ", but what the cache holds needs " + std::to_string(needed));
}

/// key_length, value_length and head_count_kv are the cache's; of the newer files those of a head have other keys.
void read_heads(const HyperParameters& hp, Config& c) {
  constexpr std::string_view kKvHeads = "attention.head_count_kv";
  c.latent = hp.integer(kLatent);
  c.query_latent = hp.optional_integer(kQueryLatent).value_or(0);
  c.latent_cache = hp.has(kHeadKey.key);
  c.head_key = c.latent_cache ? hp.integer(kHeadKey) : c.head_dim;
  c.head_value = c.latent_cache ? hp.integer(kHeadValue) : c.head_dim_v;
  expect(hp, kKvHeads, c.kv_heads, c.latent_cache ? 1 : c.heads);
  if (c.latent_cache) {
    expect(hp, "attention.key_length", c.head_dim, c.latent + c.rope.n_rot);
    expect(hp, "attention.value_length", c.head_dim_v, c.latent);
  }
  if (c.unrotated() < 1)
    hp.fail("rope.dimension_count",
            "value " + std::to_string(c.rope.n_rot) + " leaves nothing of heads of " + std::to_string(c.head_key));
}

/// What YaRN does to the length of keys and queries is done to the scale of all scores instead, by a multiplier of the
/// file's.
void read_scale(const HyperParameters& hp, Config& c) {
  hp.expect_neutral("attention.scale", 0, 0);
  c.attention_scale = 1 / std::sqrt(static_cast<float>(c.head_key));
  const float multiplier = hp.nonzero_real({kMultiplier, 0, kUnbounded}).value_or(0.0f);
  if (multiplier == 0) return;
  if (c.rope.scaling != RopeScaling::Yarn) hp.fail(kMultiplier, "is of rope.scaling.type yarn alone");
  hp.expect_neutral("rope.scaling.attn_factor", 0, 1);
  const float log_factor = std::log(c.rope.factor), length = 1 + multiplier * log_factor;
  c.attention_scale *= length * length;
  c.rope.attention_factor = 1 / (1 + 0.1f * log_factor);
}

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
  Config c{read_decoder_config(
      md, arch,
      {kGatingFunction.key, "expert_group_count", "expert_shared_count", "leading_dense_block_count",
       "nextn_predict_layers", kMultiplier, "attention.temperature_scale"})};
  const HyperParameters hp(md, arch);
  read_heads(hp, c);
  read_scale(hp, c);
  c.growth = read_position_scale(md, c);
  c.moe = read_moe_config(md, c, /*d_ff=*/0, RouteWeights::AsGated);
  if (c.moe) read_experts(md, c);
  refuse_window(md, c);
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

/// Of each head: what is not rotated, and what is.
struct Queries {
  Act plain, rotated;
};

Queries queries(Scope s, const Config& c, const Rotary& rot, Act x) {
  if (c.query_latent > 0) x = s.rms_norm("attn_q_a_norm", s.linear("attn_q_a", x, c.query_latent), c.norm_eps);
  const Act q = s.linear(c.query_latent > 0 ? "attn_q_b" : "attn_q", x, c.heads * c.head_key);
  const Act heads = s.split_heads("attn_q_heads", q, c.heads);
  const Act plain = s.slice("attn_q_plain", heads, {0, c.unrotated()});
  const Act rest = s.slice("attn_q_rest", heads, {c.unrotated(), c.rope.n_rot});
  return {plain, s.rope("attn_q_rope", rest, rot)};
}

/// What a position's keys and values are made from.
struct Latent {
  Act kv;       ///< [latent, tokens]
  Act rotated;  ///< [n_rot, 1, tokens], of the keys of all heads
};

Latent latent(Scope s, const Config& c, const Rotary& rot, Act x) {
  const auto part = [&](std::string_view name, std::int64_t begin, std::int64_t n) {
    return s.linear_rows(name, "attn_kv_a_mqa", c.latent + c.rope.n_rot, x, {begin, n});
  };
  const Act kv = s.rms_norm("attn_kv_a_norm", part("attn_kv_latent", 0, c.latent), c.norm_eps);
  const Act rest = s.split_heads("attn_k_rest", part("attn_k_shared", c.latent, c.rope.n_rot), 1);
  return {kv, s.rope("attn_k_rope", rest, rot)};
}

using Growth = std::optional<Act>;  ///< of queries with the position

Act attend_to_latents(Scope s, const Config& c, const Growth& growth, const Queries& q, const Latent& from) {
  const Act brought = s.head_linear("attn_k_b", q.plain, c.latent);
  const Act query = scale_queries(s, s.concat("attn_query", brought, q.rotated), growth);
  const Act value = s.split_heads("attn_value", from.kv, 1);
  const Act key = s.concat("attn_key", value, from.rotated);
  const Act seen = s.attention(query, s.kv_append(key, value), {.scale = c.attention_scale});
  return s.head_linear("attn_v_b", seen, c.head_value);
}

Act attend_to_heads(Scope s, const Config& c, const Growth& growth, const Queries& q, const Latent& from) {
  const Act kv = s.linear("attn_kv_b", from.kv, c.heads * (c.unrotated() + c.head_value));
  const Act heads = s.split_heads("attn_kv_heads", kv, c.heads);
  const Act key = s.concat("attn_key", s.slice("attn_k_plain", heads, {0, c.unrotated()}), from.rotated);
  const Act value = s.slice("attn_value", heads, {c.unrotated(), c.head_value});
  const Act query = scale_queries(s, s.concat("attn_query", q.plain, q.rotated), growth);
  return s.attention(query, s.kv_append(key, value), {.scale = c.attention_scale});
}

Act attention(Scope s, const Config& c, const Rotary& rot, const Growth& growth, Act x) {
  const Queries q = queries(s, c, rot, x);
  const Latent from = latent(s, c, rot, x);
  const Act y = c.latent_cache ? attend_to_latents(s, c, growth, q, from) : attend_to_heads(s, c, growth, q, from);
  return s.linear("attn_output", s.flatten_heads("attn_flat", y), c.n_embd);
}

Act forward(Net& net, const Config& c) {
  const Step step = net.step();
  const Rotary rot = net.rotary(c.rope, RopePairing::Interleaved);
  const Growth growth = c.growth ? Growth(net.position_scale(*c.growth)) : std::nullopt;
  Act x = net.embed("token_embd", step.tokens, c.vocab, c.n_embd);
  for (int i = 0; i < c.n_layers; ++i) {
    Scope a = net.layer(i, Role::Attention);
    x = a.add("attn_residual", x, attention(a, c, rot, growth, a.rms_norm("attn_norm", x, c.norm_eps)));
    Scope f = net.layer(i, Role::Ffn);
    const Act y = f.rms_norm("ffn_norm", x, c.norm_eps);
    x = f.add("ffn_residual", x, c.moe ? moe_or_dense_ffn(f, c, y) : glu_ffn(f, Activation::Silu, y, c.d_ff, c.n_embd));
  }
  x = net.top(Role::Head).rms_norm("output_norm", net.rows(x, step.out_rows), c.norm_eps);
  return net.head("output", x, c.vocab, /*tied_to=*/"token_embd");
}

}  // namespace

ModelSpec open_deepseek2(const Metadata& md) {
  Config c = configure(md);
  std::vector<std::string> unread = leave_prediction_layers_out(md, c);
  return {.dims = c.dims(),
          .build = [c](Net& net) { return forward(net, with_gating(net, c)); },
          .ignorable = std::move(unread)};
}

}  // namespace llm
