// Merging neighbouring symbols in the order of their ranks: what byte-pair vocabularies by merges and by scores share.
// Every merge removes one symbol, so there are at most n - 1 of them whatever the tables hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "text/token_sink.h"
#include "text/token_table.h"

namespace llm {

/// A stretch of the chunk that is being encoded.
struct Symbol {
  std::uint32_t begin, length;  ///< bytes
  Token id;                     ///< kNoToken: not (yet) known as a token
};

/// Reusable memory of merge_symbols.
class SymbolMerger {
 public:
  /// Merges `symbols` in place until no pair has a merge; of equal ranks the leftmost goes first. `find(left, right)`
  /// gives the Merge of two neighbours. O(n log n); O(n^2) with a small constant for short chunks.
  template <class Find>
  void run(std::vector<Symbol>& symbols, Find&& find) {
    if (symbols.size() < 2) return;
    if (symbols.size() <= kShort) {
      run_short(symbols, find);
    } else {
      run_long(symbols, find);
    }
  }

 private:
  static constexpr std::size_t kShort = 32;

  struct Link {
    std::uint32_t previous, next;  ///< kEnd at either end
    Merge merge;                   ///< of this symbol and the next
    bool alive;
  };
  static constexpr std::uint32_t kEnd = UINT32_MAX;

  template <class Find>
  void run_short(std::vector<Symbol>& symbols, Find& find) {
    Merge pairs[kShort];
    std::size_t n = symbols.size();
    for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
    while (n > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < n; ++i) {
        if (pairs[i].rank < pairs[best].rank) best = i;
      }
      if (pairs[best].rank == kNoRank) break;
      symbols[best].id = pairs[best].id;
      symbols[best].length += symbols[best + 1].length;
      --n;
      for (std::size_t i = best + 1; i < n; ++i) symbols[i] = symbols[i + 1];
      for (std::size_t i = best + 1; i + 1 < n; ++i) pairs[i] = pairs[i + 1];
      if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
      if (best + 1 < n) pairs[best] = find(symbols[best], symbols[best + 1]);
    }
    symbols.resize(n);
  }

  template <class Find>
  void run_long(std::vector<Symbol>& symbols, Find& find) {
    const auto n = static_cast<std::uint32_t>(symbols.size());
    links_.resize(n);
    queue_.clear();
    for (std::uint32_t i = 0; i < n; ++i) {
      links_[i] = {i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1, {}, true};
      if (i + 1 < n) links_[i].merge = find(symbols[i], symbols[i + 1]);
      if (links_[i].merge.rank != kNoRank) queue_.push_back(entry(links_[i].merge.rank, i));
    }
    std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
      const std::uint64_t top = queue_.back();
      queue_.pop_back();
      const auto i = static_cast<std::uint32_t>(top);
      // An entry whose symbol has changed since is stale; one of an equal rank stands for the pair as it is now.
      if (links_[i].alive && links_[i].merge.rank == top >> 32) join(symbols, i, find);
    }
    std::size_t kept = 0;
    for (std::uint32_t i = 0; i != kEnd; i = links_[i].next) symbols[kept++] = symbols[i];
    symbols.resize(kept);
  }

  template <class Find>
  void join(std::vector<Symbol>& symbols, std::uint32_t i, Find& find) {
    Link& link = links_[i];
    const std::uint32_t gone = link.next;
    symbols[i].id = link.merge.id;
    symbols[i].length += symbols[gone].length;
    links_[gone].alive = false;
    link.next = links_[gone].next;
    if (link.next != kEnd) links_[link.next].previous = i;
    update(symbols, i, find);
    if (link.previous != kEnd) update(symbols, link.previous, find);
  }

  template <class Find>
  void update(const std::vector<Symbol>& symbols, std::uint32_t i, Find& find) {
    Link& link = links_[i];
    link.merge = link.next == kEnd ? Merge{} : find(symbols[i], symbols[link.next]);
    if (link.merge.rank == kNoRank) return;
    queue_.push_back(entry(link.merge.rank, i));
    std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  }

  static std::uint64_t entry(std::uint32_t rank, std::uint32_t i) { return static_cast<std::uint64_t>(rank) << 32 | i; }

  std::vector<Link> links_;
  std::vector<std::uint64_t> queue_;
};

/// Remembers where in the output the tokens of a chunk stand, so that a word seen before is copied. Bounded, for one
/// call.
class ChunkCache {
 public:
  explicit ChunkCache(std::size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp<std::size_t>(text_bytes / 16, 1, kMaxEntries))), mask_(entries_.size() - 1) {}

  /// Appends the tokens of an equal chunk met before, now at `begin` in the text; false if there is none.
  bool append_known(std::string_view chunk, std::size_t begin, std::uint64_t hash, TokenSink& out) const {
    const Entry& e = entries_[hash & mask_];
    if (e.chunk != chunk || e.count == 0) return false;
    out.repeat(e.at, e.count, begin - e.begin);
    return true;
  }

  /// The tokens of `chunk` (which must outlive the cache), at `begin` in the text, are those of `out` from `at` on.
  void remember(std::string_view chunk, std::size_t begin, std::uint64_t hash, std::size_t at, const TokenSink& out) {
    entries_[hash & mask_] = {chunk, begin, at, out.size() - at};
  }

 private:
  static constexpr std::size_t kMaxEntries = 16384;
  struct Entry {
    std::string_view chunk;
    std::size_t begin = 0, at = 0, count = 0;
  };
  std::vector<Entry> entries_;
  std::size_t mask_;
};

}  // namespace llm
