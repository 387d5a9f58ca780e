// Lists of the best of many keys, or of blocks of them, in one order over all.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu {

/// A key as one number, the larger the better: its score, then the earlier place among the index's keys.
inline std::uint64_t ranked(float score, std::int32_t place) {
  constexpr std::uint32_t kSign = 0x80000000;
  if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // the zeros are equal
  const std::uint32_t ascending = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return std::uint64_t{ascending} << 32 | static_cast<std::uint32_t>(~place);
}
inline std::int32_t place_of(std::uint64_t rank) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(rank));
}

/// The best keys of those that were added.
class BestKeys {
 public:
  static std::int64_t room(std::int64_t most) { return most + std::max<std::int64_t>(most, kKeyChunk); }
  BestKeys(std::uint64_t* memory, std::int64_t most) : ranks_(memory), most_(most) {}

  /// At most kKeyChunk, from `place` on.
  void add(std::span<const float> scores, std::int32_t place) {
    make_room(std::ssize(scores));
    for (const float score : scores) keep(ranked(score, place++));
  }
  /// At most as many as are kept, from another list.
  void add(std::span<const std::uint64_t> ranks) {
    make_room(std::ssize(ranks));
    for (const std::uint64_t rank : ranks) keep(rank);
  }
  std::span<std::uint64_t> best() {
    drop_others();
    return {ranks_, static_cast<std::size_t>(n_)};
  }

 private:
  void keep(std::uint64_t rank) {
    if (rank > least_) ranks_[n_++] = rank;
  }
  void make_room(std::int64_t more) {
    if (n_ + more > room(most_)) drop_others();
  }
  void drop_others() {
    if (n_ < most_) return;
    std::nth_element(ranks_, ranks_ + most_ - 1, ranks_ + n_, std::greater<>());
    n_ = most_;
    least_ = ranks_[most_ - 1];
  }

  std::uint64_t* ranks_;
  std::int64_t most_, n_ = 0;
  std::uint64_t least_ = 0;  ///< what ranks no higher is not among the best; no key's rank is 0
};

}  // namespace llm::cpu
