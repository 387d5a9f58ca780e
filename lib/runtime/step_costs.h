// What a step of several tokens costs, measured while steps run.
#pragma once

#include <array>
#include <cstddef>

namespace llm {

/// Most tokens of a step that an answer takes with its drafts.
inline constexpr std::size_t kMostColumns = 64;

/// Steps of 1 to kMostColumns tokens in units of a step of one. Where nothing was measured, by the shape that products
/// with few columns have where decoding is bound by reading weights.
class StepCosts {
 public:
  void took(std::size_t tokens, double seconds);
  /// Above 1, more for more tokens as a rule.
  double of(std::size_t tokens) const;
  /// Seconds of a step of one; nothing measured: 0.
  double one() const { return classes_.front().samples > 0 ? classes_.front().seconds : 0; }

 private:
  /// Sizes that share an estimate: of a step as it would be if it had the expected shape and one token.
  struct Class {
    double seconds = 0;
    int samples = 0;
  };
  static constexpr std::size_t kClasses = 12;
  static std::size_t class_of(std::size_t tokens);
  static double expected(std::size_t tokens);
  double estimate(std::size_t index) const;

  std::array<Class, kClasses> classes_;
};

}  // namespace llm
