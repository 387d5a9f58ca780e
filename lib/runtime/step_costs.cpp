#include "runtime/step_costs.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace llm {
namespace {

/// Largest number of tokens of each class.
constexpr std::array<std::size_t, 12> kSizes{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
static_assert(kSizes.back() == kMostColumns);
/// Cost of that number, as processor time of models of 0.1 and 1.2 billion parameters in 4 bits on one core of Zen 5.
constexpr std::array<double, 12> kExpected{1, 1.2, 1.3, 1.6, 2.2, 2.9, 3.6, 4.3, 5.7, 7.2, 10.5, 14};

}  // namespace

std::size_t StepCosts::class_of(std::size_t tokens) {
  check(tokens >= 1 && tokens <= kMostColumns, "tokens of a step with drafts");
  return static_cast<std::size_t>(std::lower_bound(kSizes.begin(), kSizes.end(), tokens) - kSizes.begin());
}

/// Between the sizes on straight lines.
double StepCosts::expected(std::size_t tokens) {
  const std::size_t c = class_of(tokens);
  if (kSizes[c] == tokens) return kExpected[c];
  const auto share = static_cast<double>(tokens - kSizes[c - 1]) / static_cast<double>(kSizes[c] - kSizes[c - 1]);
  return kExpected[c - 1] + share * (kExpected[c] - kExpected[c - 1]);
}

void StepCosts::took(std::size_t tokens, double seconds) {
  static_assert(kClasses == kSizes.size());
  constexpr double kOutlier = 1.5;  // another program had the processor
  constexpr int kMemory = 8;
  const std::size_t index = class_of(tokens);
  Class& c = classes_[index];
  const double known = estimate(index);
  double sample = seconds / expected(tokens);
  if (known > 0) sample = std::min(sample, kOutlier * known);
  c.samples = std::min(c.samples + 1, kMemory);
  c.seconds += (sample - c.seconds) / c.samples;
}

/// Of a class without a sample, that of the nearest one; 0 if there is none.
double StepCosts::estimate(std::size_t index) const {
  const auto at = [this](std::size_t i) -> const Class* {
    return i < kClasses && classes_[i].samples > 0 ? &classes_[i] : nullptr;
  };
  for (std::size_t away = 0; away < kClasses; ++away) {
    if (const Class* c = at(index + away)) return c->seconds;
    if (const Class* c = index >= away ? at(index - away) : nullptr) return c->seconds;
  }
  return 0;
}

double StepCosts::of(std::size_t tokens) const {
  const double measured = estimate(class_of(tokens)), one = estimate(0);
  return one > 0 ? expected(tokens) * measured / one : expected(tokens);
}

}  // namespace llm
