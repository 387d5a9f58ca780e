#include "runtime/prediction_drafter.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "runtime/logit_scan.h"
#include "runtime/step_costs.h"

namespace llm {
namespace {

/// More pairs than that are read as soon as they are told: few are read best together with the next guess.
constexpr std::size_t kMostUnread = 64;
/// Rows that may be wanted again: guesses that came in a step and were then not the text's.
constexpr std::size_t kKeptRows = kMostColumns;

}  // namespace

PredictionDrafter::PredictionDrafter(Model& model, Options o)
    : width_(static_cast<std::size_t>(model.dims().n_embd)), steps_(model, o.context, o.cache), p_min_(o.p_min) {}

void PredictionDrafter::start_at(std::int64_t position) {
  start_ = position;
  told_.clear();
  rows_.clear();
  first_row_ = 0;
  paired_.clear();
}

/// The text goes on otherwise from there.
void PredictionDrafter::forget_from(std::size_t index) {
  told_.resize(std::min(told_.size(), index));
  first_row_ = std::min(first_row_, index);
  rows_.resize((told_.size() - first_row_) * width_);
  paired_.resize(std::min(paired_.size(), std::max<std::size_t>(index, 1) - 1));
}

void PredictionDrafter::saw(const HiddenRows& step) {
  if (faulty_) return;
  const std::int64_t end = start_ + std::ssize(told_);
  if (step.position < start_ || step.position > end) start_at(step.position);
  const auto at = static_cast<std::size_t>(step.position - start_);
  // A recurrent state may have seen some again.
  const auto old = std::mismatch(step.tokens.begin(), step.tokens.end(),
                                 told_.begin() + static_cast<std::ptrdiff_t>(at), told_.end());
  const auto known = static_cast<std::size_t>(old.first - step.tokens.begin());
  if (known == step.tokens.size()) return;
  const std::size_t first = at + known;
  const bool is_paired = first > 0 && paired_.size() >= first && paired_[first - 1] == step.tokens[known];
  if (first < told_.size() || !is_paired) forget_from(first);
  told_.insert(told_.end(), old.first, step.tokens.end());
  const auto rows = step.rows.subspan(known * width_);
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  if (told_.size() > paired_.size() + 1 + kMostUnread) {
    steps_.rewind(std::ssize(paired_));
    catch_up(std::span(told_).subspan(paired_.size() + 1));
  }
}

void PredictionDrafter::begin(std::span<const Token> text) {
  text_.assign(text.begin(), text.end());
  record_.forget_guesses();
  if (std::ssize(text) <= start_) return;
  const auto own = text.subspan(static_cast<std::size_t>(start_));
  const auto agreed = std::ranges::mismatch(told_, own);
  const bool is_behind = agreed.in2 == own.end() && own.size() < first_row_;  // where rows are no longer kept
  if (agreed.in1 != told_.end() && (agreed.in2 != own.end() || is_behind))
    forget_from(static_cast<std::size_t>(agreed.in1 - told_.begin()));
}

void PredictionDrafter::append(Token token) {
  record_.came(token);
  text_.push_back(token);
}

/// Reads pairs, each with a row of the model's: `tokens` are the second ones of those that follow what was read.
std::optional<PredictionSteps::Result> PredictionDrafter::catch_up(std::span<const Token> tokens) {
  const std::size_t first = paired_.size();
  if (first < first_row_) {  // where a text went on otherwise further back than rows are kept
    rows_.insert(rows_.begin(), (first_row_ - first) * width_, 0.0f);
    first_row_ = first;
  }
  const auto result = read(tokens, std::span(rows_).subspan((first - first_row_) * width_, tokens.size() * width_));
  if (!result) return result;
  paired_.insert(paired_.end(), tokens.begin(), tokens.end());
  drop_old_rows();
  return result;
}

void PredictionDrafter::drop_old_rows() {
  if (paired_.size() < first_row_ + 2 * kKeptRows) return;
  const std::size_t n = paired_.size() - kKeptRows - first_row_;
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(n * width_));
  first_row_ += n;
}

std::optional<PredictionSteps::Result> PredictionDrafter::read(std::span<const Token> tokens,
                                                               std::span<const float> hidden) {
  if (steps_.length() + std::ssize(tokens) > steps_.context()) return std::nullopt;
  return steps_.run(tokens, hidden);
}

/// The pairs that the text has beyond those read: their tokens but the last were told with rows, the last is not.
bool PredictionDrafter::ready() {
  record_.forget_guesses();
  last_ = 0;
  const std::int64_t last = std::ssize(text_) - 1 - start_;
  if (faulty_ || last < 1) return true;
  const std::span own = std::span<const Token>(text_).subspan(static_cast<std::size_t>(start_));
  for (std::size_t i = paired_.size(); i < std::min<std::size_t>(told_.size(), own.size()); ++i) {
    if (told_[i] == own[i]) continue;
    forget_from(i);
    break;
  }
  const auto end = static_cast<std::size_t>(last);
  if (told_.size() < end) return true;
  paired_.resize(std::min(paired_.size(), end - 1));  // the last pair is read again for its result
  steps_.rewind(std::ssize(paired_));
  last_ = end;
  return true;
}

std::optional<Guess> PredictionDrafter::guess(std::span<const Token> ahead) {
  if (faulty_ || last_ == 0) return std::nullopt;
  std::optional<PredictionSteps::Result> result;
  if (ahead.empty()) {
    const auto rest = std::span<const Token>(text_).subspan(static_cast<std::size_t>(start_) + paired_.size() + 1);
    result = catch_up(rest);
  } else {
    result = read(ahead.last(1), chain_);
  }
  if (!result) return std::nullopt;
  const Candidate best = best_of(result->logits);
  const double probability = 1 / exp_sums(result->logits, best.logit).total;
  if (!std::isfinite(probability) || !std::isfinite(best.logit)) {
    faulty_ = true;
    fault_ = "the prediction layer guesses no more: it computes what is no number";
    return std::nullopt;
  }
  if (probability < p_min_) return std::nullopt;
  chain_.assign(result->hidden.begin(), result->hidden.end());
  return Guess{best.token, record_.made(best.token, probability)};
}

}  // namespace llm
