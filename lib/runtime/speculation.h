// How far an answer looks ahead: drafts that are worth their time. They never change its tokens, only when each is
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/drafter.h"
#include "runtime/hit_rate.h"
#include "runtime/step_costs.h"

namespace llm {

struct SpeculationOptions {
  std::size_t most = 31;  ///< tokens of a draft; more than kMostColumns - 1 counts as that
  std::size_t least = 0;  ///< shorter drafts are not used
  enum class Length : std::uint8_t {
    Adaptive,  ///< what promises most tokens in a second, by the costs and the luck so far; often none
    Fixed,     ///< `most` whenever the drafter has so many
  } length = Length::Adaptive;
};

struct SpeculationCounts {
  std::int64_t drafts = 0, drafted = 0, accepted = 0;  ///< tokens, but for the first
  double draft_seconds = 0;                            ///< that making the drafts took

  SpeculationCounts since(const SpeculationCounts& before) const {
    return {drafts - before.drafts, drafted - before.drafted, accepted - before.accepted,
            draft_seconds - before.draft_seconds};
  }
};

/// Of one sequence at a time; what was learned in one answer serves the next. Time decides what is drafted, so that
/// counts differ from run to run.
class Speculation {
 public:
  /// Of several drafters the one that promises more is asked.
  Speculation(std::vector<std::unique_ptr<Drafter>>, SpeculationOptions);

  /// The text that is to go on.
  void begin(std::span<const Token> text);
  /// It has one more token, drafted or not.
  void append(Token);
  /// Of it, the session holds this much from now on.
  void shifted(std::span<const Token> held);
  /// What to evaluate behind its last token: at most so many tokens.
  std::span<const Token> draft(std::size_t most);
  /// The draft given last is not evaluated.
  void withdraw();
  /// Longer: a program was compiled first, or tokens were read again, so its time is no measure.
  enum class Step : std::uint8_t { Usual, Longer };
  /// A step of the last token and its draft ran.
  void stepped(double seconds, Step);

  const SpeculationCounts& counts() const { return counts_; }
  /// Why drafters guess no more, each told once.
  std::vector<std::string> take_faults();
  std::string describe() const;  ///< what was drafted, and what steps cost

 private:
  /// A drafter and what a guess of its takes.
  struct Source {
    std::unique_ptr<Drafter> drafter;
    double guess_seconds = 0;
    std::int64_t guesses = 0;
  };
  void draft_fixed(std::size_t most);
  void draft_adaptive(std::size_t most);
  bool promises(const Source&, double rate, std::size_t most) const;
  double try_out(Source&, std::size_t most);
  bool timed_ready(Source&);
  std::optional<Guess> timed_guess(Source&, std::span<const Token> ahead);
  double in_steps(double seconds) const;

  std::vector<Source> sources_;
  SpeculationOptions options_;
  StepCosts costs_;
  SpeculationCounts counts_;
  std::vector<Token> draft_, trial_;
  std::size_t checked_ = 0;   ///< tokens of the draft that the text has confirmed
  double draft_seconds_ = 0;  ///< that guesses took since the last step
  double purse_;              ///< steps of one token that drafts may still lose
};

}  // namespace llm
