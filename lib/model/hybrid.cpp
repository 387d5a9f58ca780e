#include "model/hybrid.h"

#include <string>

#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr std::int64_t kMostScanHeads = 1 << 16;
constexpr IntegerRule kConvRows{"shortconv.l_cache", 2, 1 << 10};
constexpr IntegerRule kScanConv{"ssm.conv_kernel", 2, 1 << 10};
constexpr IntegerRule kScanState{"ssm.state_size", 1, 1 << 16};
constexpr IntegerRule kScanGroups{"ssm.group_count", 1, kMostScanHeads};
constexpr IntegerRule kScanHeads{"ssm.time_step_rank", 1, kMostScanHeads};
constexpr IntegerRule kScanInner{"ssm.inner_size", 1, 1 << 28};

void require_divides(const HyperParameters& hp, const IntegerRule& part, std::int64_t n, const IntegerRule& all,
                     std::int64_t of) {
  if (of % n != 0)
    hp.fail(part.key,
            "value " + std::to_string(n) + " does not divide " + std::string(all.key) + " " + std::to_string(of));
}

void read_scan(const HyperParameters& hp, MambaConfig& c) {
  c.conv_width = static_cast<int>(hp.integer(kScanConv));
  c.state = hp.integer(kScanState);
  c.groups = static_cast<int>(hp.integer(kScanGroups));
  c.ssm_heads = static_cast<int>(hp.integer(kScanHeads));
  c.inner = hp.integer(kScanInner);
  require_divides(hp, kScanHeads, c.ssm_heads, kScanInner, c.inner);
  require_divides(hp, kScanGroups, c.groups, kScanHeads, c.ssm_heads);
}

}  // namespace

ConvConfig read_conv_config(const Metadata& md, std::string_view arch, OwnKeys own) {
  ConvConfig c{read_decoder_config(md, arch, own)};
  refuse_window(md, c);
  require_alike_heads(md, c);
  c.conv_width = static_cast<int>(HyperParameters(md, arch).integer(kConvRows));
  return c;
}

Act gated_short_conv(Scope s, const ConvConfig& c, Act x) {
  const auto part = [&](std::string_view name, int i) {
    return s.linear_rows(name, "shortconv.in_proj", 3 * c.n_embd, x, {i * c.n_embd, c.n_embd});
  };
  const Act b = part("shortconv_b", 0);
  const Act gate = part("shortconv_c", 1);
  const Act in = s.glu(Activation::Identity, b, part("shortconv_x", 2), "shortconv_in");
  const Act y = s.short_conv("shortconv.conv", in, c.conv_width, {.activation = Activation::Identity});
  return s.linear("shortconv.out_proj", s.glu(Activation::Identity, gate, y, "shortconv_gated"), c.n_embd);
}

ScanSizes read_scan_sizes(const Metadata& md, const DecoderConfig& c) {
  const HyperParameters hp(md, c.architecture);
  ScanSizes n;
  n.conv_width = static_cast<int>(hp.integer(kScanConv));
  n.inner = hp.integer(kScanInner);
  n.state = hp.integer(kScanState);
  n.rank = hp.integer(kScanHeads);
  return n;
}

Act scan_layer(Scope s, const DecoderConfig& c, const ScanSizes& n, ScanNorm norm, Act x) {
  const Act in = s.linear_rows("ssm_x_in", "ssm_in", 2 * n.inner, x, {0, n.inner});
  const Act z = s.linear_rows("ssm_z", "ssm_in", 2 * n.inner, x, {n.inner, n.inner});
  const Act convolved = s.short_conv("ssm_conv1d", in, n.conv_width);
  const auto made = [&](const char* name, const char* norm_name, std::int64_t begin, std::int64_t rows) {
    return norm(s, c, norm_name, s.linear_rows(name, "ssm_x", n.rank + 2 * n.state, convolved, {begin, rows}));
  };
  const Act low = made("ssm_dt_low", "ssm_dt_norm", 0, n.rank);
  const Act b = s.split_heads("scan_b", made("ssm_b", "ssm_b_norm", n.rank, n.state), 1);
  const Act out = s.split_heads("scan_c", made("ssm_c", "ssm_c_norm", n.rank + n.state, n.state), 1);
  const Act dt = s.unscaled_linear("ssm_dt", low, n.inner);  // its bias is the scan's
  const Act bc = s.concat("scan_bc", b, out);
  const Act all = s.concat("scan_all", s.split_heads("scan_x", convolved, 1), bc);
  const Act xbc = s.flatten_heads("scan_xbc", all);
  const Act y = s.flatten_heads("scan_flat", s.selective_scan(xbc, dt, {.groups = 1}, {n.inner, n.state, 1}));
  return s.linear("ssm_out", s.glu(Activation::Silu, z, y, "scan_gated"), c.n_embd);
}

MambaConfig read_mamba_config(const Metadata& md, std::string_view arch, OwnKeys own) {
  MambaConfig c{read_decoder_config(md, arch, own)};
  refuse_window(md, c);
  require_alike_heads(md, c);
  read_scan(HyperParameters(md, arch), c);
  return c;
}

MambaConfig read_mamba_alone(const Metadata& md, std::string_view arch) {
  MambaConfig c{read_recurrent_config(md, arch)};
  read_scan(HyperParameters(md, arch), c);
  return c;
}

Act mamba_layer(Scope s, const MambaConfig& c, Act x) {
  const std::int64_t all = c.inner + c.conv_channels() + c.ssm_heads;
  const Act z = s.linear_rows("ssm_z", "ssm_in", all, x, {0, c.inner});
  const Act xbc = s.linear_rows("ssm_xbc", "ssm_in", all, x, {c.inner, c.conv_channels()});
  const Act dt = s.linear_rows("ssm_dt", "ssm_in", all, x, {c.inner + c.conv_channels(), c.ssm_heads});
  const Act convolved = s.short_conv("ssm_conv1d", xbc, c.conv_width);
  const Act scanned =
      s.selective_scan(convolved, dt, {.groups = c.groups}, {c.ssm_head_length(), c.state, c.ssm_heads});
  Act y = s.glu(Activation::Silu, z, s.flatten_heads("scan_flat", scanned), "scan_gated");
  if (s.has("ssm_norm")) {
    const Act by_groups = s.split_heads("scan_groups", y, c.groups);
    y = s.flatten_heads("scan_normal", s.head_rms_norm("ssm_norm", by_groups, c.norm_eps));
  }
  return s.linear("ssm_out", y, c.n_embd);
}

}  // namespace llm
