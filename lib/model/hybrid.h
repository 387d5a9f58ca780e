// Layers of models that mix attention with others that remember: gated short convolutions (LFM2) and the selective
// state spaces of Mamba (arXiv:2312.00752; Jamba) and Mamba-2 (arXiv:2405.21060; Granite 4.0, Nemotron-H, Falcon-H1).
#pragma once

#include <cstdint>
#include <string_view>

#include "model/blocks.h"

namespace llm {

/// Layers that do not attend convolve.
struct ConvConfig : DecoderConfig {
  int conv_width = 0;
};
/// With the key shortconv.l_cache.
ConvConfig read_conv_config(const Metadata&, std::string_view arch, OwnKeys own);
/// shortconv.out_proj of c * conv(b * x), where b, c and x are rows of shortconv.in_proj.
Act gated_short_conv(Scope s, const ConvConfig& c, Act x);

/// Of layers of the first Mamba, in which each element has a step of its own.
struct ScanSizes {
  int conv_width = 0;
  std::int64_t inner = 0, state = 0;
  std::int64_t rank = 0;  ///< of what steps are made of
};
/// The keys ssm.*
ScanSizes read_scan_sizes(const Metadata&, const DecoderConfig&);
/// ssm_in, the convolution ssm_conv1d, the scan by what ssm_x and ssm_dt make of it, its result gated, ssm_out.
/// `norm(s, name, y)`: of what ssm_x gives, named ssm_dt_norm, ssm_b_norm and ssm_c_norm.
using ScanNorm = Act (*)(Scope s, const DecoderConfig& c, std::string_view name, Act y);
Act scan_layer(Scope s, const DecoderConfig& c, const ScanSizes& n, ScanNorm norm, Act x);

struct MambaConfig : DecoderConfig {
  int conv_width = 0;
  int ssm_heads = 0, groups = 0;
  std::int64_t inner = 0;  ///< width of all heads
  std::int64_t state = 0;  ///< of each element of a head

  std::int64_t ssm_head_length() const { return inner / ssm_heads; }
  std::int64_t conv_channels() const { return inner + 2 * groups * state; }
};
/// The keys ssm.*; `own` as read_decoder_config() has it.
MambaConfig read_mamba_config(const Metadata&, std::string_view arch, OwnKeys own);
/// The same of models in which no layer attends.
MambaConfig read_mamba_alone(const Metadata&, std::string_view arch);
/// ssm_in, the convolution ssm_conv1d, the scan, its result gated and then normalised by groups (ssm_norm, if the file
/// has it), ssm_out.
Act mamba_layer(Scope s, const MambaConfig& c, Act x);

}  // namespace llm
