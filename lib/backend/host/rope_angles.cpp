// Rotary angles in double precision: plain, divided (linear scaling) and mixed (YaRN).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "backend/host/host.h"
#include "base/error.h"

namespace llm::host {
namespace {

/// The pair (as a real number) that turns `turns` times over the original context.
double pair_of_turns(const RopeTable& a, double turns) {
  return a.n_rot * std::log(a.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(double{a.base}));
}

/// Share of the undivided angle per pair: 1 below the pair that turns beta_fast times over the original context, 0
/// above the one that turns beta_slow times, a ramp between.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeTable& a)
      : low_(std::max(0.0, std::floor(pair_of_turns(a, a.beta_fast)))),
        high_(std::min(a.n_rot - 1.0, std::ceil(pair_of_turns(a, a.beta_slow)))) {}

  double undivided(int pair) const {
    const double y = (pair - low_) / std::max(0.001, high_ - low_);
    return 1 - std::clamp(y, 0.0, 1.0);
  }

 private:
  double low_, high_;
};

}  // namespace

RopeAngles::RopeAngles(const RopeTable& a, const float* factors) {
  check(a.n_rot > 0 && a.n_rot % 2 == 0, "rotated dimensions come in pairs");
  check(a.base > 0 && a.factor > 0, "rotary base and factor are positive");
  offset_ = a.offset;
  const int pairs = a.n_rot / 2;
  theta_.resize(static_cast<std::size_t>(pairs));
  for (int i = 0; i < pairs; ++i) {
    double theta = std::pow(double{a.base}, -2.0 * i / a.n_rot);
    if (factors != nullptr) theta /= double{factors[i]};
    if (a.back) theta = -theta;
    theta_[static_cast<std::size_t>(i)] = theta;
  }
  magnitude_ = double{a.attention_factor};
  if (a.scaling == RopeScaling::None) return;
  if (a.scaling == RopeScaling::Linear) {
    for (double& theta : theta_) theta /= double{a.factor};
    return;
  }
  check(a.original_context > 0, "YaRN knows the original context");
  const YarnRamp ramp(a);
  for (int i = 0; i < pairs; ++i) {
    double& theta = theta_[static_cast<std::size_t>(i)];
    const double share = ramp.undivided(i) * double{a.extrapolation};
    theta = theta / double{a.factor} * (1 - share) + theta * share;
  }
  // A context that is not stretched needs no correction of its attention's temperature.
  magnitude_ *= 1 + 0.1 * std::log(std::max(1.0, double{a.factor}));
}

void RopeAngles::row(std::int32_t position, float* cos_sin) const {
  for (std::size_t i = 0; i < theta_.size(); ++i) {
    const double angle = (position + offset_) * theta_[i];
    cos_sin[2 * i] = static_cast<float>(std::cos(angle) * magnitude_);
    cos_sin[2 * i + 1] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

}  // namespace llm::host
