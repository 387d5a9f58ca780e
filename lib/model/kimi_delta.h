// Layers that go by Kimi Delta Attention (arXiv:2510.26692), a gated delta rule whose states decay element by element
// of a key, beside layers that attend to latents: Kimi Linear and K3, Ling 3.0, GLM-5.3-Flash.
#pragma once

#include <cstdint>

#include "model/latent_attention.h"

namespace llm {

struct KimiDeltaConfig : LatentConfig {
  int conv_width = 0, delta_head = 0;
  float delta_eps = 0;                        ///< GatedDelta::eps
  float floor = 0;                            ///< GatedDelta::floor
  int heads() const { return most().heads; }  // all layers have as many
  std::int64_t delta_width() const { return std::int64_t{heads()} * delta_head; }
};

/// ssm.conv_kernel and kda.head_dim, and the keys of attention, of files whose cache holds latents. Layers have as many
/// heads, and those without heads of keys are of the rule.
void read_kimi_delta(const Metadata&, KimiDeltaConfig&);
/// attn_q, attn_k and attn_v with convolutions of their own, the rule, ssm_norm gated by ssm_g, attn_output. Decays
/// (ssm_f) and gates are made by two matrices, with a width of a head's length between them, or by one.
Act kimi_delta_attention(Scope s, const KimiDeltaConfig& c, Act x);

}  // namespace llm
