// What gemma3n and gemma4 share: more embeddings of each token, a part for each layer, and layers at the end that read
// the keys and values of earlier ones.
#pragma once

#include <cstdint>

#include "model/decoder_config.h"
#include "model/net.h"

namespace llm {

struct GemmaConfig : DecoderConfig {
  RopeTable local_rope = {};
  int keeping_layers = 0;  ///< the first ones, which keep keys and values; the others read those of the last of them
  std::int64_t d_per_layer = 0;  ///< width of a layer's part of the second embeddings; 0: there are none
  float logit_cap = 0;           ///< 0: none

  /// Whose keys and values a layer reads: its own, or of the last that keeps some and sees as much.
  int kept_by(int layer) const;
};

/// Keys that both have; `shared` layers keep no keys where the file does not say.
void read_gemma(const Metadata&, GemmaConfig&, int shared);

/// The second embeddings of the tokens and what is made of the first, x: [d_per_layer * layers, tokens].
Act per_layer_inputs(Net& net, const GemmaConfig& c, Index tokens, Act x);
/// What a layer makes of x and its part of them.
Act per_layer_part(Scope s, const GemmaConfig& c, Act x, Act inputs);

}  // namespace llm
