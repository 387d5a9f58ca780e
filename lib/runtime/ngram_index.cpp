#include "runtime/ngram_index.h"

#include <algorithm>

namespace llm {
namespace {

constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio

std::uint64_t mixed(std::uint64_t hash, Token token) {
  hash = (hash ^ static_cast<std::uint32_t>(token)) * kOdd;
  return hash ^ (hash >> 32);
}

}  // namespace

void NgramIndex::clear() {
  text_.clear();
  std::fill(entries_.begin(), entries_.end(), Entry{});
  used_ = 0;
  match_ = {};
}

void NgramIndex::append(Token token) {
  text_.push_back(token);
  if (2 * (used_ + kNgramLengths.size()) > entries_.size()) grow();
  match_ = enter(text_.size());
}

/// Enters the n-grams that end before `end`, the latest of equal ones in the place of the others; what was found there.
NgramIndex::Match NgramIndex::enter(std::size_t end) {
  std::uint64_t hash = kOdd;  // larger than any token: no token makes it 0, from where zeros would leave it
  std::size_t hashed = 0, earlier = 0;
  for (const std::size_t n : kNgramLengths) {
    if (n > end) break;
    for (; hashed < n; ++hashed) hash = mixed(hash, text_[end - 1 - hashed]);
    Entry& e = entry_of(hash);
    // Hashes of other n-grams may be equal, if not often: even that of a shorter one of these.
    if (e.end != 0 && e.end != end && agreeing(e.end, end) >= n) earlier = e.end;
    e.end = static_cast<std::uint32_t>(end);
  }
  if (earlier == 0) return {};
  return {.length = agreeing(earlier, end), .next = earlier};
}

/// The entry with this hash, or a free one that gets it.
NgramIndex::Entry& NgramIndex::entry_of(std::uint64_t hash) {
  const auto check = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = entries_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    Entry& e = entries_[i];
    if (e.end != 0 && e.check != check) continue;
    if (e.end == 0) {
      e.check = check;
      ++used_;
    }
    return e;
  }
}

/// Tokens by which the text before `a` and that before the later `b` are equal.
std::size_t NgramIndex::agreeing(std::size_t a, std::size_t b) const {
  const std::size_t most = std::min(a, kLongest);
  std::size_t n = 0;
  while (n < most && text_[a - 1 - n] == text_[b - 1 - n]) ++n;
  return n;
}

void NgramIndex::grow() {
  constexpr std::size_t kLeast = 1024;
  entries_.assign(std::max(kLeast, 2 * entries_.size()), Entry{});
  used_ = 0;
  for (std::size_t end = 1; end < text_.size(); ++end) enter(end);
}

}  // namespace llm
