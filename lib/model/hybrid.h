// Layers of models that mix attention with others that remember: gated short convolutions (LFM2) and the selective
// state spaces of Mamba-2 (arXiv:2405.21060; Granite 4.0, Nemotron-H, Falcon-H1).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/blocks.h"

namespace llm {

/// attention.head_count_kv, of which a family reads none elsewhere: whether each layer attends, which those with 0
/// heads do not. The others have the same number.
std::vector<bool> read_attending_layers(const Metadata&, DecoderConfig&);

struct ConvConfig : DecoderConfig {
  std::vector<bool> attends = {};  ///< layers; the others convolve
  int conv_width = 0;
};
/// With the key shortconv.l_cache.
ConvConfig read_conv_config(const Metadata&, std::string_view arch, std::initializer_list<std::string_view> own);
/// shortconv.out_proj of c * conv(b * x), where b, c and x are rows of shortconv.in_proj.
Act gated_short_conv(Scope s, const ConvConfig& c, Act x);

struct MambaConfig : DecoderConfig {
  int conv_width = 0;
  int ssm_heads = 0, groups = 0;
  std::int64_t inner = 0;  ///< width of all heads
  std::int64_t state = 0;  ///< of each element of a head

  std::int64_t ssm_head_length() const { return inner / ssm_heads; }
  std::int64_t conv_channels() const { return inner + 2 * groups * state; }
};
/// The keys ssm.*; `own` as read_decoder_config() has it.
MambaConfig read_mamba_config(const Metadata&, std::string_view arch, std::initializer_list<std::string_view> own);
/// The same of models in which no layer attends.
MambaConfig read_mamba_alone(const Metadata&, std::string_view arch);
/// ssm_in, the convolution ssm_conv1d, the scan, its result gated and then normalised by groups (ssm_norm, if the file
/// has it), ssm_out.
Act mamba_layer(Scope s, const MambaConfig& c, Act x);

/// Of Nemotron-H, where each layer is one thing alone.
struct SingleConfig : MambaConfig {
  enum class Kind : std::uint8_t { Scan, Attention, Ffn };
  std::vector<Kind> kinds = {};               ///< of the layers
  std::vector<std::int64_t> layer_d_ff = {};  ///< 0 of layers that are no feed-forward network
  std::vector<std::string> unread = {};       ///< tensors of the layers that predict tokens ahead
};
/// A layer is a feed-forward network if it has a feed_forward_length, otherwise it attends if it has heads of keys.
SingleConfig read_single_config(const Metadata&, std::string_view arch, std::initializer_list<std::string_view> own);
/// A layer that is no feed-forward network; nothing is rotated.
Act single_layer(Scope s, const SingleConfig& c, Act x);

}  // namespace llm
