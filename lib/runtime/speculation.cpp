#include "runtime/speculation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "runtime/figures.h"

namespace llm {
namespace {

/// Gains that are expected to be smaller are left to chance.
constexpr double kWorthwhile = 1.2;
/// What drafts may cost beyond what they give, in steps of one token: so much at first, and this share of each step
/// without a draft. What they have gained may be spent again, up to a limit. So a text on which no draft comes true
/// takes no more than that share longer, and a few steps; and one failure leaves enough for shorter drafts.
constexpr double kFirstPurse = 2, kEarned = 0.01, kFullPurse = 12;

}  // namespace

Speculation::Speculation(std::vector<std::unique_ptr<Drafter>> drafters, SpeculationOptions options)
    : options_(options), purse_(kFirstPurse) {
  options_.most = std::min(options_.most, kMostColumns - 1);
  for (auto& d : drafters) sources_.push_back({.drafter = std::move(d)});
}

void Speculation::begin(std::span<const Token> text) {
  draft_.clear();
  checked_ = 0;
  draft_seconds_ = 0;
  for (const Source& s : sources_) s.drafter->begin(text);
}

void Speculation::append(Token token) {
  if (checked_ < draft_.size() && draft_[checked_] == token) {
    ++checked_;
    ++counts_.accepted;
    purse_ += 1;  // the step that it would have taken
  } else {
    draft_.clear();
    checked_ = 0;
  }
  for (const Source& s : sources_) s.drafter->append(token);
}

void Speculation::shifted(std::span<const Token> held) {
  for (const Source& s : sources_) s.drafter->shifted(held);
}

std::span<const Token> Speculation::draft(std::size_t most) {
  draft_.clear();
  checked_ = 0;
  purse_ = std::min(purse_, kFullPurse);
  most = std::min(most, options_.most);
  if (options_.length == SpeculationOptions::Length::Fixed) {
    draft_fixed(most);
  } else if (costs_.one() > 0) {
    draft_adaptive(most);
  }
  if (draft_.size() < options_.least) draft_.clear();
  if (!draft_.empty()) ++counts_.drafts;
  counts_.drafted += static_cast<std::int64_t>(draft_.size());
  return draft_;
}

void Speculation::withdraw() {
  if (draft_.empty()) return;
  --counts_.drafts;
  counts_.drafted -= static_cast<std::int64_t>(draft_.size());
  draft_.clear();
}

void Speculation::stepped(double seconds, Step step) {
  constexpr double kMostCompiling = 5;  // the rest is another program's
  const std::size_t columns = draft_.size() + 1;
  double cost = costs_.of(columns);
  if (step == Step::Usual) {
    costs_.took(columns, seconds);
    cost = costs_.of(columns);
  } else if (columns > 1) {
    cost = std::clamp(in_steps(seconds), cost, cost + kMostCompiling);
  }
  purse_ -= cost - 1 + in_steps(std::exchange(draft_seconds_, 0));
  if (columns == 1) purse_ = std::max(purse_, std::min(purse_ + kEarned, kFirstPurse));
}

void Speculation::draft_fixed(std::size_t most) {
  for (Source& s : sources_) {
    if (most == 0 || !timed_ready(s)) continue;
    while (draft_.size() < most) {
      const auto guess = timed_guess(s, draft_);
      if (!guess) break;
      draft_.push_back(guess->token);
    }
    if (!draft_.empty()) return;
  }
}

void Speculation::draft_adaptive(std::size_t most) {
  constexpr double kForgotten = 0.99;
  double best = kWorthwhile;
  for (Source& s : sources_) {
    if (!promises(s, best, most)) {
      s.guess_seconds *= kForgotten;  // was it another program that made it slow? It will be tried again.
      continue;
    }
    if (!timed_ready(s)) continue;
    const double rate = try_out(s, most);
    if (rate <= best) continue;
    best = rate;
    draft_.swap(trial_);
  }
}

/// Whether more tokens than that may be hoped for in the time of a step of one, before a guess is made.
bool Speculation::promises(const Source& s, double rate, std::size_t most) const {
  const double p = s.drafter->outlook(), cost = in_steps(s.guess_seconds);
  double reach = 1, tokens = 1;
  for (std::size_t n = 1; n <= most; ++n) {
    reach *= p;
    tokens += reach;
    if (tokens > rate * (costs_.of(n + 1) + static_cast<double>(n) * cost)) return true;
  }
  return false;
}

/// Leaves in trial_ the draft that promises most tokens in the time of a step of one; that number.
double Speculation::try_out(Source& s, std::size_t most) {
  // What one more guess costs at least: made, and looked at.
  const double column = (costs_.of(kMostColumns) - 1) / static_cast<double>(kMostColumns - 1);
  double reach = 1, tokens = 1, spent = 0, best = 1;
  std::size_t length = 0;
  trial_.clear();
  while (trial_.size() < most) {
    if (costs_.of(trial_.size() + 2) + spent + in_steps(s.guess_seconds) - 1 > purse_) break;
    const auto guess = timed_guess(s, trial_);
    if (!guess) break;
    trial_.push_back(guess->token);
    reach *= guess->probability;
    tokens += reach;
    spent += in_steps(s.guess_seconds);
    const double rate = tokens / (costs_.of(trial_.size() + 1) + spent);
    if (rate > best) {
      best = rate;
      length = trial_.size();
    }
    if (reach < best * (column + in_steps(s.guess_seconds))) break;  // no later guess can raise it
  }
  trial_.resize(length);
  return best;
}

/// Reading on is a price of the text, not of the guesses.
bool Speculation::timed_ready(Source& s) {
  const auto start = Clock::now();
  const bool ready = s.drafter->ready();
  counts_.draft_seconds += seconds_since(start);
  return ready;
}

std::optional<Guess> Speculation::timed_guess(Source& s, std::span<const Token> ahead) {
  constexpr double kOutlier = 2;
  constexpr std::int64_t kMemory = 32;
  const auto start = Clock::now();
  const auto guess = s.drafter->guess(ahead);
  const double seconds = seconds_since(start);
  draft_seconds_ += seconds;
  counts_.draft_seconds += seconds;
  // The first one may have compiled a program.
  s.guesses = std::min(s.guesses + 1, kMemory);
  if (s.guesses <= 2) {
    s.guess_seconds = s.guesses == 1 ? seconds : std::min(s.guess_seconds, seconds);
  } else {
    s.guess_seconds +=
        (std::min(seconds, kOutlier * s.guess_seconds) - s.guess_seconds) / static_cast<double>(s.guesses);
  }
  return guess;
}

double Speculation::in_steps(double seconds) const { return costs_.one() > 0 ? seconds / costs_.one() : 0; }

std::vector<std::string> Speculation::take_faults() {
  std::vector<std::string> faults;
  for (const Source& source : sources_) {
    if (std::string fault = source.drafter->take_fault(); !fault.empty()) faults.push_back(std::move(fault));
  }
  return faults;
}

std::string Speculation::describe() const {
  const SpeculationCounts& c = counts_;
  std::string text = "speculation:";
  for (const Source& s : sources_) text += (&s == sources_.data() ? " " : ", ") + std::string(s.drafter->name());
  text += "; " + number_text(c.drafted) + " tokens in " + number_text(c.drafts) + " drafts, " +
          number_text(c.accepted) + " accepted; drafting took " + fixed_text(c.draft_seconds * 1e3, 1) + " ms";
  if (costs_.one() <= 0) return text;
  text += "; a step of 1 token " + fixed_text(costs_.one() * 1e3, 1) + " ms";
  for (const std::size_t n : std::array<std::size_t, 5>{2, 4, 8, 16, 32}) {
    text += ", of " + std::to_string(n) + " " + fixed_text(costs_.of(n), 1) + "x";
  }
  return text;
}

}  // namespace llm
