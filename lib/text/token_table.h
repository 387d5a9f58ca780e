// Hash tables over a vocabulary, built once and then only read: string -> id, and pair of ids -> merge.
// Open addressing, never more than two thirds full; the strings themselves stay where they are (the mapped file or the
// tokenizer's arena).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace llm {

/// Another one in each process: with a known one a file could have all its tokens in one place of a table. Nothing but
/// the places in tables depends on it.
inline const std::uint64_t kHashSeed = std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();

/// 64 bits folded by a multiplication.
inline std::uint64_t mix(std::uint64_t x) {
  const unsigned __int128 product = static_cast<unsigned __int128>(x ^ kHashSeed) * 0xD6E8FEB86659FD93u;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view s) {
  const auto load64 = [](const char* p) {
    std::uint64_t v = 0;
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  const auto load32 = [](const char* p) {
    std::uint32_t v = 0;
    std::memcpy(&v, p, sizeof v);
    return static_cast<std::uint64_t>(v);
  };
  const char* p = s.data();
  std::size_t n = s.size();
  std::uint64_t h = mix(n);
  for (; n > 8; p += 8, n -= 8) h = mix(h ^ load64(p));
  // The last one to eight bytes; reads may overlap, the length in the seed keeps strings apart.
  if (n >= 4) return mix(h ^ (load32(p) | load32(p + n - 4) << 32));
  if (n == 0) return h;
  const auto at = [p](std::size_t i) { return static_cast<std::uint64_t>(static_cast<std::uint8_t>(p[i])); };
  return mix(h ^ (at(0) | at(n / 2) << 8 | at(n - 1) << 16));
}

/// Ids of the strings of a list that the table does not own: the same list goes with every call.
class TokenTable {
 public:
  using Texts = std::span<const std::string_view>;

  explicit TokenTable(std::size_t n_tokens = 0)
      : slots_(std::bit_ceil(2 * n_tokens + 2), Slot{0, kNoToken}), mask_(slots_.size() - 1) {}

  /// Adds texts[id]; false if an equal string is there already (it stays: the first id wins).
  bool insert(Token id, Texts texts) {
    const std::string_view text = texts[static_cast<std::size_t>(id)];
    const std::uint64_t hash = hash_bytes(text);
    std::size_t i = slot(hash, text, texts);
    if (slots_[i].id != kNoToken) return false;
    slots_[i] = {tag(hash), id};
    return true;
  }

  Token find(std::string_view text, std::uint64_t hash, Texts texts) const {
    return slots_[slot(hash, text, texts)].id;
  }
  Token find(std::string_view text, Texts texts) const { return find(text, hash_bytes(text), texts); }
  void prefetch(std::uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }

 private:
  struct Slot {
    std::uint32_t tag;
    Token id;
  };
  static std::uint32_t tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  std::size_t slot(std::uint64_t hash, std::string_view text, Texts texts) const {
    std::size_t i = hash & mask_;
    while (slots_[i].id != kNoToken &&
           (slots_[i].tag != tag(hash) || texts[static_cast<std::size_t>(slots_[i].id)] != text)) {
      i = (i + 1) & mask_;
    }
    return i;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

inline constexpr std::uint32_t kNoRank = UINT32_MAX;

/// What two neighbouring symbols become, and how early: the smallest rank merges first.
struct Merge {
  std::uint32_t rank = kNoRank;
  Token id = kNoToken;
};

class MergeTable {
 public:
  explicit MergeTable(std::size_t n_merges = 0)
      : slots_(std::bit_ceil(n_merges + n_merges / 2 + 2)), mask_(slots_.size() - 1) {}

  /// False if the pair is there already (it stays: the first rank wins).
  bool insert(Token left, Token right, Merge merge) {
    const std::uint64_t k = key(left, right);
    Slot& s = slots_[slot(k)];
    if (s.key != kEmpty) return false;
    s = {k, merge};
    return true;
  }

  Merge find(Token left, Token right) const { return slots_[slot(key(left, right))].merge; }
  void prefetch(Token left, Token right) const { __builtin_prefetch(&slots_[mix(key(left, right)) & mask_], 1); }

 private:
  static constexpr std::uint64_t kEmpty = UINT64_MAX;  // the pair (kNoToken, kNoToken), which is never inserted
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t key(Token left, Token right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot(std::uint64_t k) const {
    std::size_t i = mix(k) & mask_;
    while (slots_[i].key != kEmpty && slots_[i].key != k) i = (i + 1) & mask_;
    return i;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

}  // namespace llm
