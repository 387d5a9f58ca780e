#include "runtime/ngram_drafter.h"

#include <algorithm>

namespace llm {
namespace {

constexpr std::size_t kResumed = 0;
/// Shortest matches of the kinds after it.
constexpr std::array<std::size_t, 8> kLengths{2, 3, 4, 6, 10, 16, 32, 64};
static_assert(kLengths.back() == NgramIndex::kLongest);

}  // namespace

std::size_t NgramDrafter::kind_of(std::size_t length) {
  static_assert(kKinds == 1 + kLengths.size());
  return static_cast<std::size_t>(std::upper_bound(kLengths.begin(), kLengths.end(), length) - kLengths.begin());
}

void NgramDrafter::begin(std::span<const Token> text) {
  index_.clear();
  resumed_.reset();
  for (const Token t : text) index_.append(t);
}

void NgramDrafter::append(Token token) {
  constexpr std::size_t kWorthResuming = 6;
  const NgramIndex::Match match = index_.match();
  const bool copied = match.length > 0 && index_.text()[match.next] == token;
  if (match.length > 0) rates_[kind_of(match.length)].saw(copied);
  if (resumed_) {
    const bool hit = index_.text()[*resumed_] == token;
    rates_[kResumed].saw(hit);
    resumed_ = hit ? std::optional(*resumed_ + 1) : std::nullopt;
  }
  if (!copied && match.length >= kWorthResuming) resumed_ = match.next + 1;
  index_.append(token);
  // Where a match has found the same place again, it knows more.
  if (resumed_ && index_.match().length > 0 && index_.match().next == *resumed_) resumed_.reset();
}

/// Of the guess behind `ahead` others.
std::optional<NgramDrafter::Source> NgramDrafter::source(std::size_t ahead) const {
  std::optional<Source> best;
  const NgramIndex::Match match = index_.match();
  if (match.length > 0) best = {match.next, kind_of(match.length)};
  if (resumed_ && (!best || rates_[kResumed].rate() > rates_[best->kind].rate())) best = {*resumed_, kResumed};
  if (best && best->kind != kResumed) best->kind = kind_of(match.length + ahead);
  return best;
}

std::optional<Guess> NgramDrafter::guess(std::span<const Token> ahead) {
  const auto from = source(ahead.size());
  if (!from) return std::nullopt;
  // A text that repeats itself goes on into what was guessed.
  const std::span<const Token> text = index_.text();
  const std::size_t place = from->next + ahead.size();
  return Guess{place < text.size() ? text[place] : ahead[place - text.size()], rates_[from->kind].rate()};
}

}  // namespace llm
