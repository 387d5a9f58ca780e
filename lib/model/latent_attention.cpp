#include "model/latent_attention.h"

#include <cmath>
#include <string>
#include <string_view>

#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr IntegerRule kLatent{"attention.kv_lora_rank", 1, 1 << 16}, kQueryLatent{"attention.q_lora_rank", 0, 1 << 16},
    kHeadKey{"attention.key_length_mla", 1, 1 << 16}, kHeadValue{"attention.value_length_mla", 1, 1 << 16};

void expect_of_cache(const HyperParameters& hp, std::string_view key, std::int64_t value, std::int64_t needed) {
  if (value != needed)
    hp.fail(key, "value " + std::to_string(value) + ", but what the cache holds needs " + std::to_string(needed));
}

/// Of each head: its own part, and what meets the part of the keys that heads share, if there is one.
struct LatentQueries {
  Act own;
  std::optional<Act> shared = {};
};

Act turned(Scope s, std::string_view name, Act x, const std::optional<Rotary>& rot) {
  return rot ? s.rope(name, x, *rot) : x;
}

/// x: query_latents().
LatentQueries latent_queries(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, Act x) {
  const int n = c.of(s.layer()).heads;
  const Act q = s.linear(c.query_latent > 0 ? "attn_q_b" : "attn_q", x, n * c.head_key);
  const Act heads = s.split_heads("attn_q_heads", q, n);
  if (c.rope.n_rot == 0) return {heads};
  const Act own = s.slice("attn_q_plain", heads, {0, c.unshared()});
  const Act rest = s.slice("attn_q_rest", heads, {c.unshared(), c.rope.n_rot});
  return {own, turned(s, "attn_q_rope", rest, rot)};
}

/// What a position's keys and values are made from.
struct Latents {
  Act kv;                          ///< [latent, tokens]
  std::optional<Act> shared = {};  ///< [n_rot, 1, tokens], of the keys of all heads
};

Latents latents(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, Act x) {
  const auto part = [&](std::string_view name, std::int64_t begin, std::int64_t n) {
    return s.linear_rows(name, "attn_kv_a_mqa", c.latent + c.rope.n_rot, x, {begin, n});
  };
  const Act kv = s.rms_norm("attn_kv_a_norm", part("attn_kv_latent", 0, c.latent), c.norm_eps);
  if (c.rope.n_rot == 0) return {kv};
  const Act rest = s.split_heads("attn_k_rest", part("attn_k_shared", c.latent, c.rope.n_rot), 1);
  const Act shared = s.has("attn_k_norm") ? s.rms_norm("attn_k_norm", rest, c.norm_eps) : rest;
  return {kv, turned(s, "attn_k_rope", shared, rot)};
}

/// `own`, and behind each head of it what is shared.
Act joined(Scope s, std::string_view name, Act own, const std::optional<Act>& shared) {
  return shared ? s.concat(name, own, *shared) : own;
}

struct LatentOperands {
  Act query, key, value;
};

LatentOperands latent_operands(Scope s, const LatentConfig& c, const std::optional<Act>& growth, const LatentQueries& q,
                               const Latents& from) {
  const Act brought = s.head_linear("attn_k_b", q.own, c.latent);
  const Act query = scale_queries(s, joined(s, "attn_query", brought, q.shared), growth);
  const Act value = s.split_heads("attn_value", from.kv, 1);
  return {query, joined(s, "attn_key", value, from.shared), value};
}

Act attend_to_latents(Scope s, const LatentConfig& c, const std::optional<Act>& growth, const LatentQueries& q,
                      const Latents& from) {
  const LatentOperands o = latent_operands(s, c, growth, q, from);
  const Attention attributes{.scale = c.attention_scale, .window = c.window_of(s.layer())};
  const Act seen = s.attention(o.query, s.kv_append(o.key, o.value), attributes);
  return s.head_linear("attn_v_b", seen, c.head_value);
}

Act attend_to_heads(Scope s, const LatentConfig& c, const std::optional<Act>& growth, const LatentQueries& q,
                    const Latents& from) {
  const int n = c.of(s.layer()).heads;
  const Act kv = s.linear("attn_kv_b", from.kv, n * (c.unshared() + c.head_value));
  const Act heads = s.split_heads("attn_kv_heads", kv, n);
  const Act key = joined(s, "attn_key", s.slice("attn_k_plain", heads, {0, c.unshared()}), from.shared);
  const Act value = s.slice("attn_value", heads, {c.unshared(), c.head_value});
  const Act query = scale_queries(s, joined(s, "attn_query", q.own, q.shared), growth);
  return s.attention(query, s.kv_append(key, value), {.scale = c.attention_scale});
}

}  // namespace

void read_latent_heads(const Metadata& md, LatentConfig& c) {
  const HyperParameters hp(md, c.architecture);
  c.latent = hp.integer(kLatent);
  c.query_latent = hp.optional_integer(kQueryLatent).value_or(0);
  c.latent_cache = hp.has(kHeadKey.key);
  c.head_key = c.latent_cache ? hp.integer(kHeadKey) : c.head_dim;
  c.head_value = c.latent_cache ? hp.integer(kHeadValue) : c.head_dim_v;
  expect_of_cache(hp, "attention.head_count_kv", c.most().kv_heads, c.latent_cache ? 1 : c.most().heads);
  if (c.latent_cache) {
    expect_of_cache(hp, "attention.key_length", c.head_dim, c.latent + c.rope.n_rot);
    expect_of_cache(hp, "attention.value_length", c.head_dim_v, c.latent);
  }
  if (c.unshared() < 1)
    hp.fail("rope.dimension_count",
            "value " + std::to_string(c.rope.n_rot) + " leaves nothing of heads of " + std::to_string(c.head_key));
}

void read_latent_scale(const Metadata& md, LatentConfig& c) {
  const HyperParameters hp(md, c.architecture);
  hp.expect_neutral("attention.scale", 0, 0);
  c.attention_scale = 1 / std::sqrt(static_cast<float>(c.head_key));
  const float multiplier = hp.nonzero_real({kLatentMultiplier, 0, kUnbounded}).value_or(0.0f);
  if (multiplier == 0) return;
  if (c.rope.scaling != RopeScaling::Yarn) hp.fail(kLatentMultiplier, "is of rope.scaling.type yarn alone");
  hp.expect_neutral("rope.scaling.attn_factor", 0, 1);
  const float log_factor = std::log(c.rope.factor), length = 1 + multiplier * log_factor;
  c.attention_scale *= length * length;
  c.rope.attention_factor = 1 / (1 + 0.1f * log_factor);
}

Act query_latents(Scope s, const LatentConfig& c, Act x) {
  if (c.query_latent == 0) return x;
  return s.rms_norm("attn_q_a_norm", s.linear("attn_q_a", x, c.query_latent), c.norm_eps);
}

Act latent_results(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, const std::optional<Act>& growth,
                   Act x) {
  const LatentQueries q = latent_queries(s, c, rot, query_latents(s, c, x));
  const Latents from = latents(s, c, rot, x);
  return c.latent_cache ? attend_to_latents(s, c, growth, q, from) : attend_to_heads(s, c, growth, q, from);
}

Act latent_attention(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, const std::optional<Act>& growth,
                     Act x) {
  return attention_output(s, c, latent_results(s, c, rot, growth, x));
}

Act selected_latent_results(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, Act x, Act query_latents,
                            Index selected) {
  const LatentQueries q = latent_queries(s, c, rot, query_latents);
  const LatentOperands o = latent_operands(s, c, {}, q, latents(s, c, rot, x));
  const Cache cache = s.selected_kv_append(o.key, o.value);
  const Act seen = s.selected_attention(o.query, cache, selected, {.scale = c.attention_scale});
  return s.head_linear("attn_v_b", seen, c.head_value);
}

}  // namespace llm
