// What came of the guesses of something that computes a probability for each: how often those of one kind came true.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "runtime/hit_rate.h"
#include "text/tokenizer.h"

namespace llm {

class GuessRecord {
 public:
  /// Another text, or another place in it: what was guessed is not compared with what comes.
  void forget_guesses() { made_.clear(); }
  /// A guess that was computed to have this probability; the one that guesses of its kind lately had.
  double made(Token token, double probability) {
    made_.push_back({token, kind_of(probability)});
    return rates_[made_.back().kind].rate();
  }
  /// The text has one more token.
  void came(Token token) {
    constexpr double kForgotten = 0.99;  // nothing was learned: another attempt becomes likelier
    if (made_.empty()) return outlook_.fade(kForgotten);
    const bool hit = made_.front().token == token;
    rates_[made_.front().kind].saw(hit);
    outlook_.saw(hit);
    if (hit) {
      made_.erase(made_.begin());
    } else {
      made_.clear();
    }
  }
  /// Of the next guess, before it is made.
  double outlook() const { return outlook_.rate(); }

 private:
  struct Made {
    Token token;
    std::size_t kind;
  };
  /// By tenths of the probability, and a last one above 0.99.
  static constexpr std::size_t kKinds = 11;
  static std::size_t kind_of(double probability) {
    if (probability > 0.99) return kKinds - 1;
    return std::min<std::size_t>(kKinds - 2, static_cast<std::size_t>(probability * 10));
  }

  std::vector<Made> made_;  ///< guesses that no token of the text has been compared with
  HitRate outlook_{0.7};
  std::array<HitRate, kKinds> rates_{HitRate(0.05), HitRate(0.15), HitRate(0.25), HitRate(0.35),
                                     HitRate(0.45), HitRate(0.55), HitRate(0.65), HitRate(0.75),
                                     HitRate(0.85), HitRate(0.95), HitRate(0.98)};
};

}  // namespace llm
