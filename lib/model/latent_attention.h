// Multi-head latent attention (arXiv:2405.04434): keys and values of all heads are products of one short vector, beside
// which only a part of the keys that the heads share, usually the rotated one, has to be known of a position.
//
// Of newer files, attention works on that vector: attn_k_b brings queries to it, attn_v_b the results from it, and the
// cache holds kv_lora_rank + n_rot and kv_lora_rank elements a position. Older ones have attn_kv_b, which makes keys
// and values from it, and theirs are kept. Which it is the keys say: attention.key_length_mla is the newer ones'.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/blocks.h"

namespace llm {

struct LatentConfig : DecoderConfig {
  bool latent_cache = false;                  ///< attention works on what the keys and values are made from
  std::int64_t latent = 0, query_latent = 0;  ///< query_latent: 0 if queries are made from the input itself
  std::optional<PositionScale> growth = {};   ///< of queries: Mistral Large 3
  std::int64_t head_key = 0, head_value = 0;  ///< of one head, the shared part of the key among the former
  std::int64_t unshared() const { return head_key - rope.n_rot; }  ///< all of it where rope.n_rot is 0
};

/// The keys of latents and of heads; key_length, value_length and head_count_kv are the cache's, of the newer files
/// those of a head have other keys.
void read_latent_heads(const Metadata&, LatentConfig&);
inline constexpr std::string_view kLatentMultiplier = "rope.scaling.yarn_log_multiplier";
/// Behind read_latent_heads(): what YaRN does to the length of keys and queries is done to the scale of all scores
/// instead, by a multiplier of the file's.
void read_latent_scale(const Metadata&, LatentConfig&);
/// What queries are made from.
Act query_latents(Scope s, const LatentConfig& c, Act x);
/// Of heads: [head_value, heads, tokens]. Without `rot` nothing is rotated; without `growth` queries are the same
/// everywhere.
Act latent_results(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, const std::optional<Act>& growth,
                   Act x);
/// attention_output() of these.
Act latent_attention(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, const std::optional<Act>& growth,
                     Act x);
/// latent_results() of files with a latent cache, each token attending to selected keys alone, with what its queries
/// are made from already there.
Act selected_latent_results(Scope s, const LatentConfig& c, const std::optional<Rotary>& rot, Act x, Act query_latents,
                            Index selected);

}  // namespace llm
