// How often guesses of one kind came true lately.
#pragma once

namespace llm {

/// A guess weighs half as much after the next 35. As long as there are few, what was expected beforehand counts too.
class HitRate {
 public:
  explicit constexpr HitRate(double expected) : expected_(expected) {}

  void saw(bool hit) {
    fade(kFade);
    hits_ += hit ? 1 : 0;
    seen_ += 1;
  }
  /// What was seen counts less, what was expected more.
  void fade(double factor) {
    hits_ *= factor;
    seen_ *= factor;
  }
  double rate() const { return (hits_ + kExpectedWeight * expected_) / (seen_ + kExpectedWeight); }

 private:
  static constexpr double kFade = 0.98, kExpectedWeight = 2;
  double expected_, hits_ = 0, seen_ = 0;
};

}  // namespace llm
