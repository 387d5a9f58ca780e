// What families of Gemma share. gemma3n and gemma4: more embeddings of each token, a part for each layer, and layers at
// the end that read the keys and values of earlier ones.
#pragma once

#include <cstdint>
#include <map>

#include "model/blocks.h"

namespace llm {

/// The attention.scale of the largest models of Gemma 2 and 3, where the file does not say: as if their heads shared
/// out the embedding.
void read_scale_of_27b(const Metadata&, DecoderConfig&);

struct GemmaConfig : DecoderConfig {
  RopeTable local_rope = {};
  int keeping_layers = 0;  ///< the first ones, which keep keys and values; the others read those of the last of them
  std::int64_t d_per_layer = 0;  ///< width of a layer's part of the second embeddings; 0: there are none
  float logit_cap = 0;           ///< 0: none
  int local_head_dim = 0;        ///< of layers with a window, of keys and values
  bool spares_values = false;    ///< where layers have no attn_v, keys serve as values

  int head_dim_of(int layer) const { return is_local(layer) ? local_head_dim : head_dim; }
  /// Whose keys and values a layer reads: its own, or of the last that keeps some and sees as much.
  int kept_by(int layer) const;
};

/// Keys that both have; `shared` layers keep no keys where the file does not say. Heads are of one length.
void read_gemma(const Metadata&, GemmaConfig&, int shared);

/// What layers keep, by layer.
using KeptCaches = std::map<int, Cache>;
/// Attention with each head of q, k and v normalised and q and k rotated, over what kept_by() keeps; adds what the
/// layer keeps itself. Keys that serve as values are those from before the norm.
Act kept_attention(Scope s, const GemmaConfig& c, const Rotary& rot, KeptCaches& caches, Act x);

/// The second embeddings of the tokens and what is made of the first, x: [d_per_layer * layers, tokens].
Act per_layer_inputs(Net& net, const GemmaConfig& c, Index tokens, Act x);
/// What a layer makes of x and its part of them.
Act per_layer_part(Scope s, const GemmaConfig& c, Act x, Act inputs);

}  // namespace llm
