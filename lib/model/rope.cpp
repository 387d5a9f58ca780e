#include "model/rope.h"

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace llm {
namespace {

constexpr RealRule kBase{"rope.freq_base", 0, kUnbounded};
constexpr RealRule kScalingFactor{"rope.scaling.factor", 0, kUnbounded};
constexpr RealRule kScaleLinear{"rope.scale_linear", 0, kUnbounded};  // the factor's key before scaling had types
constexpr RealRule kAttentionFactor{"rope.scaling.attn_factor", 0, kUnbounded};
constexpr RealRule kBetaFast{"rope.scaling.yarn_beta_fast", 0, kUnbounded};
constexpr RealRule kBetaSlow{"rope.scaling.yarn_beta_slow", 0, kUnbounded};
constexpr IntegerRule kOriginalContext{"rope.scaling.original_context_length", 0,
                                       std::numeric_limits<std::uint32_t>::max()};
constexpr std::string_view kType = "rope.scaling.type";
constexpr std::string_view kMix = "rope.scaling.yarn_ext_factor";
constexpr std::string_view kUnmixedFactor = "rope.scaling.yarn_attn_factor";

float scaling_factor(const HyperParameters& hp) {
  if (hp.has(kScalingFactor.key)) return hp.nonzero_real(kScalingFactor).value_or(1.0f);
  return hp.nonzero_real(kScaleLinear).value_or(1.0f);
}

RopeScaling scaling_type(const HyperParameters& hp) {
  const std::string type = hp.text(kType, "linear");  // files from before types existed are linear
  if (type == "none") return RopeScaling::None;
  if (type == "linear") return RopeScaling::Linear;
  if (type == "yarn") return RopeScaling::Yarn;
  if (type == "longrope") return RopeScaling::None;  // by factors in tensors: read_decoder_config() asks the family
  hp.fail(kType, "\"" + escaped(type) + "\" is not supported; known are none, linear and yarn");
}

/// Below 0 is how llama.cpp says that a factor is not set.
std::optional<float> read_unless_negative(const HyperParameters& hp, std::string_view key) {
  if (!hp.has(key)) return std::nullopt;
  const auto value = hp.metadata().get<float>(hp.key(key));
  if (value < 0) return std::nullopt;
  if (!std::isfinite(value)) hp.fail(key, "value " + value_text(value) + " is not a finite number");
  return value;
}

void read_yarn(const HyperParameters& hp, std::int64_t context, RopeTable& rope) {
  if (rope.factor < 1)
    hp.fail(kScalingFactor.key, "value " + value_text(rope.factor) + " is below 1, which yarn does not define");
  const std::int64_t original = hp.optional_integer(kOriginalContext).value_or(0);
  rope.original_context = static_cast<float>(original > 0 ? original : context);
  rope.beta_fast = hp.optional_real(kBetaFast).value_or(rope.beta_fast);
  rope.beta_slow = hp.optional_real(kBetaSlow).value_or(rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow)
    hp.fail(kBetaFast.key,
            "value " + value_text(rope.beta_fast) + " is below that of yarn_beta_slow, " + value_text(rope.beta_slow));
  hp.expect_neutral(kUnmixedFactor, 1, -1);
}

int rotated_elements(const HyperParameters& hp, int head_dim, bool may_be_none) {
  const IntegerRule rule{"rope.dimension_count", may_be_none ? 0 : 2, head_dim};
  const std::int64_t n_rot = hp.optional_integer(rule).value_or(head_dim);
  if (n_rot % 2 != 0)
    hp.fail(rule.key, "value " + std::to_string(n_rot) + " is odd, but elements are rotated in pairs");
  return static_cast<int>(n_rot);
}

}  // namespace

/// What `rope.scaling.yarn_ext_factor` says of the mix decides, not the type: without a mix all angles are divided
/// alike, and another factor belongs to the magnitude. So llama.cpp has it.
RopeTable read_rope(const HyperParameters& hp, int head_dim, std::int64_t context, bool may_be_none) {
  RopeTable rope;
  rope.n_rot = rotated_elements(hp, head_dim, may_be_none);
  rope.base = hp.optional_real(kBase).value_or(rope.base);
  rope.scaling = scaling_type(hp);
  rope.factor = scaling_factor(hp);
  if (rope.scaling == RopeScaling::None) rope.factor = 1;
  rope.attention_factor = hp.nonzero_real(kAttentionFactor).value_or(1.0f);
  const float by_type = rope.scaling == RopeScaling::Yarn ? 1.0f : 0.0f;
  const float mix = read_unless_negative(hp, kMix).value_or(by_type);
  if (mix != 0 && rope.scaling != RopeScaling::None) {
    rope.scaling = RopeScaling::Yarn;
    rope.extrapolation = mix;
    read_yarn(hp, context, rope);
    return rope;
  }
  if (mix == 0) rope.attention_factor *= read_unless_negative(hp, kUnmixedFactor).value_or(1.0f);
  rope.scaling = rope.factor == 1 ? RopeScaling::None : RopeScaling::Linear;
  return rope;
}

}  // namespace llm
