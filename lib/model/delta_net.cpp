#include "model/delta_net.h"

#include <cstdint>
#include <string>

#include "model/hyper_parameters.h"

namespace llm {
namespace {

constexpr std::int64_t kMostHeads = 4096;
constexpr IntegerRule kConvKernel{"ssm.conv_kernel", 2, 1 << 10};
constexpr IntegerRule kStateSize{"ssm.state_size", 1, 1 << 16};
constexpr IntegerRule kKeyHeads{"ssm.group_count", 1, kMostHeads};
constexpr IntegerRule kValueHeads{"ssm.time_step_rank", 1, kMostHeads};
constexpr IntegerRule kInnerSize{"ssm.inner_size", 1, 1 << 28};
constexpr IntegerRule kInterval{"full_attention_interval", 1, 1024};
constexpr std::string_view kRecurrentLayers = "attention.recurrent_layers";
constexpr std::string_view kSections = "rope.dimension_sections";

/// Every fourth layer attends, unless the file says otherwise.
std::vector<bool> recurrent_layers(const HyperParameters& hp, int layers, int of_file) {
  if (auto flags = hp.optional_flags(kRecurrentLayers, of_file)) {
    flags->resize(static_cast<std::size_t>(layers));
    return *flags;
  }
  const std::int64_t interval = hp.optional_integer(kInterval).value_or(4);
  std::vector<bool> recurrent(static_cast<std::size_t>(layers));
  for (int i = 0; i < layers; ++i) recurrent[static_cast<std::size_t>(i)] = (i + 1) % interval != 0;
  return recurrent;
}

void read_delta(const HyperParameters& hp, DeltaConfig& c) {
  c.conv_width = static_cast<int>(hp.integer(kConvKernel));
  c.head_length = static_cast<int>(hp.integer(kStateSize));
  c.key_heads = static_cast<int>(hp.integer(kKeyHeads));
  c.value_heads = static_cast<int>(hp.integer(kValueHeads));
  if (c.value_heads % c.key_heads != 0)
    hp.fail(kKeyHeads.key, "value " + std::to_string(c.key_heads) + " does not divide ssm.time_step_rank " +
                               std::to_string(c.value_heads));
  if (const std::int64_t inner = hp.integer(kInnerSize); inner != c.values())
    hp.fail(kInnerSize.key, "value " + std::to_string(inner) + " is not ssm.time_step_rank times ssm.state_size, " +
                                std::to_string(c.values()) + ": values of another length than keys are not supported");
}

}  // namespace

DeltaConfig read_delta_config(const Metadata& md, std::string_view arch, OwnKeys own) {
  DeltaConfig c{read_decoder_config(md, arch, own)};
  const HyperParameters hp(md, arch);
  refuse_window(md, c);
  if (c.head_dim_v != c.head_dim)
    hp.fail("attention.value_length", "value " + std::to_string(c.head_dim_v) + " is not attention.key_length " +
                                          std::to_string(c.head_dim) + ", which gates of results are as long as");
  read_delta(hp, c);
  const int of_file = c.n_layers;
  leave_prediction_layers_out(md, c);
  c.recurrent = recurrent_layers(hp, c.n_layers, of_file);
  return c;
}

void read_delta_experts(const Metadata& md, DeltaConfig& c) {
  c.moe = require_moe_config(md, c, /*d_ff=*/0, RouteWeights::Renormalized);
  const std::int64_t shared = read_shared_width(md, c);
  c.moe->d_shared = shared > 0 ? shared : c.moe->d_ff;
}

/// Sections take turns, pair after pair, until they are used up; a pair of a section that is used up has the position
/// of the fourth one, which a token of text has not.
void require_text_sections(const Metadata& md, const DeltaConfig& c) {
  const HyperParameters hp(md, c.architecture);
  const std::string key = hp.key(kSections);
  if (!md.has(key)) return;
  const std::vector<std::int64_t> sections = md.array<std::int64_t>(key);
  std::int64_t all = 0;
  for (const std::int64_t s : sections) all += s;
  for (std::int64_t pair = 0; all > 0 && pair < c.rope.n_rot / 2; ++pair) {
    const std::int64_t place = pair % all;
    if (static_cast<std::size_t>(place % 3) < sections.size() &&
        place < 3 * sections[static_cast<std::size_t>(place % 3)])
      continue;
    hp.fail(kSections, "leaves pair " + std::to_string(place) + " of a head without a position in text");
  }
}

GatedHeads gated_heads(Scope s, const DeltaConfig& c, const Rotary& rot, Act x) {
  const LayerSizes& n = c.of(s.layer());
  const Act both = s.split_heads("attn_q_heads", s.linear("attn_q", x, 2 * n.heads * c.head_dim), n.heads);
  Act q = s.slice("attn_q_query", both, {.begin = 0, .n = c.head_dim});
  const Act gate = s.slice("attn_q_gate", both, {.begin = c.head_dim, .n = c.head_dim});
  Act k = s.split_heads("attn_k_heads", s.linear("attn_k", x, n.kv_heads * c.head_dim), n.kv_heads);
  const Act v = s.split_heads("attn_v_heads", s.linear("attn_v", x, n.kv_heads * c.head_dim), n.kv_heads);
  q = s.rope("attn_q_rope", s.rms_norm("attn_q_norm", q, c.norm_eps), rot);
  k = s.rope("attn_k_rope", s.rms_norm("attn_k_norm", k, c.norm_eps), rot);
  return {{q, k, v}, gate};
}

Act gated_output(Scope s, const DeltaConfig& c, Act results, Act gate) {
  const Act y = s.flatten_heads("attn_flat", results);
  const Act gates = s.flatten_heads("attn_gates", gate);
  return s.linear("attn_output", s.glu(Activation::Sigmoid, gates, y, "attn_gated"), c.n_embd);
}

Act gated_attention(Scope s, const DeltaConfig& c, const Rotary& rot, Act x) {
  const GatedHeads g = gated_heads(s, c, rot, x);
  return gated_output(s, c, results_by_heads(s, c, g.heads), g.gate);
}

DeltaGates delta_gates(Scope s, const DeltaConfig& c, Act x) {
  const Act alpha = s.linear("ssm_alpha", x, c.value_heads);
  const Act beta = s.linear("ssm_beta", x, c.value_heads);
  return {alpha, beta};
}

Act delta_layer(Scope s, const DeltaConfig& c, Act x, const DeltaGates& gates, HeadSharing sharing) {
  const Act qkv = s.short_conv("ssm_conv1d", s.linear("attn_qkv", x, 2 * c.keys() + c.values()), c.conv_width);
  const Act z = s.linear("attn_gate", x, c.values());
  const Act y =
      s.gated_delta(qkv, gates.alpha, gates.beta, {.key_heads = c.key_heads, .sharing = sharing, .eps = c.norm_eps},
                    {c.head_length, c.head_length, c.value_heads});
  const Act normal = s.flatten_heads("delta_flat", s.rms_norm("ssm_norm", y, c.norm_eps));
  return s.linear("ssm_out", s.glu(c.gate, z, normal, "delta_gated"), c.n_embd);
}

}  // namespace llm
