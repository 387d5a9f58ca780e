// Hyper-parameters that every decoder-only family shares, read and validated from one table before any is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gguf/metadata.h"
#include "graph/op.h"
#include "model/arch.h"

namespace llm {

struct MoeConfig {
  int experts = 0;
  int active = 0;
  std::int64_t d_ff = 0;
  Gating gate = Gating::Softmax;
  RouteWeights weights = RouteWeights::AsGated;
  float scale = 1;
};

struct DecoderConfig {
  std::string architecture;
  std::int64_t vocab = 0, context = 0, n_embd = 0, d_ff = 0;
  int n_layers = 0;
  int heads = 0, kv_heads = 0;
  int head_dim = 0;     ///< of keys
  int head_dim_v = 0;   ///< of values
  float norm_eps = 0;
  float attention_scale = 0;  ///< 1/sqrt(head_dim) unless the family says otherwise
  int window = 0;
  RopeTable rope;
  std::optional<MoeConfig> moe;
  ModelDims dims() const;
};

/// Keys under `arch`.: ranges and relations by the loader contract; throws ErrorKind::Model naming the key.
DecoderConfig read_decoder_config(const Metadata&, std::string_view arch);
/// Expert keys, for families that have experts; nothing if expert_count is absent or 0.
std::optional<MoeConfig> read_moe_config(const Metadata&, std::string_view arch, std::int64_t d_ff);

}  // namespace llm
