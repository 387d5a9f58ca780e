// A block is free, or counted once per sequence that holds it. Only blocks held once are written to.
#include "runtime/kv_cache.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"

namespace llm {

KvCache::KvCache(std::int32_t n_blocks, std::int32_t block_positions, int max_sequences)
    : n_blocks_(n_blocks), block_positions_(block_positions) {
  check(n_blocks >= 0 && block_positions > 0 && max_sequences > 0, "sizes of a cache");
  // Slots are 32-bit.
  check(n_blocks <= std::numeric_limits<std::int32_t>::max() / block_positions, "a cache of more than 2^31 positions");
  sequences_.resize(static_cast<std::size_t>(max_sequences));
}

const KvCache::Sequence& KvCache::at(SequenceId id) const {
  check(alive(id), "a sequence that does not exist");
  return sequences_[static_cast<std::size_t>(id)];
}

KvCache::Sequence& KvCache::at(SequenceId id) { return const_cast<Sequence&>(std::as_const(*this).at(id)); }

bool KvCache::alive(SequenceId id) const {
  return id >= 0 && static_cast<std::size_t>(id) < sequences_.size() && sequences_[static_cast<std::size_t>(id)].alive;
}

std::int64_t KvCache::length(SequenceId id) const { return at(id).length; }

std::span<const std::int32_t> KvCache::blocks(SequenceId id) const { return at(id).blocks; }

std::int32_t KvCache::blocks_in_use() const { return static_cast<std::int32_t>(references_.size() - free_.size()); }

std::int64_t KvCache::blocks_for(std::int64_t positions) const {
  return (positions + block_positions_ - 1) / block_positions_;
}

SequenceId KvCache::create() {
  const auto unused = std::find_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.alive; });
  check(unused != sequences_.end(), "more sequences than the cache was made for");
  unused->alive = true;
  return static_cast<SequenceId>(unused - sequences_.begin());
}

void KvCache::remove(SequenceId id) {
  Sequence& s = at(id);
  shrink(s, 0);
  s = Sequence{};
}

void KvCache::truncate(SequenceId id, std::int64_t length) {
  Sequence& s = at(id);
  check(length >= 0 && length <= s.length, "truncation to a length that the sequence does not have");
  shrink(s, blocks_for(length));
  s.length = length;
}

SequenceId KvCache::fork(SequenceId from, std::int64_t length) {
  check(length >= 0 && length <= at(from).length, "fork at a length that the sequence does not have");
  const SequenceId id = create();
  const Sequence& source = at(from);
  Sequence& copy = at(id);
  copy.blocks.assign(source.blocks.begin(), source.blocks.begin() + static_cast<std::ptrdiff_t>(blocks_for(length)));
  copy.length = length;
  for (const std::int32_t block : copy.blocks) ++references_[static_cast<std::size_t>(block)];
  return id;
}

/// Only blocks held once are written to.
bool KvCache::must_copy_last(const Sequence& s) const {
  return s.length % block_positions_ != 0 && references_[static_cast<std::size_t>(s.blocks.back())] > 1;
}

std::int64_t KvCache::blocks_needed(SequenceId id, std::int64_t n) const {
  const Sequence& s = at(id);
  if (n == 0) return 0;
  return blocks_for(s.length + n) - static_cast<std::int64_t>(s.blocks.size()) + (must_copy_last(s) ? 1 : 0);
}

bool KvCache::append(SequenceId id, std::int64_t n, std::vector<std::int32_t>& slots, std::vector<BlockCopy>& copies) {
  Sequence& s = at(id);
  check(n >= 0, "a negative number of positions");
  if (n == 0) return true;
  if (blocks_needed(id, n) > blocks_free()) return false;
  const std::int64_t more = blocks_for(s.length + n) - static_cast<std::int64_t>(s.blocks.size());
  if (must_copy_last(s)) {
    const std::int32_t own = take();
    copies.push_back({s.blocks.back(), own});
    drop(s.blocks.back());
    s.blocks.back() = own;
  }
  for (std::int64_t i = 0; i < more; ++i) s.blocks.push_back(take());
  for (std::int64_t p = s.length; p < s.length + n; ++p) {
    const std::int32_t block = s.blocks[static_cast<std::size_t>(p / block_positions_)];
    slots.push_back(block * block_positions_ + static_cast<std::int32_t>(p % block_positions_));
  }
  s.length += n;
  return true;
}

std::int32_t KvCache::take() {
  if (free_.empty()) {
    references_.push_back(1);
    return static_cast<std::int32_t>(references_.size() - 1);
  }
  std::pop_heap(free_.begin(), free_.end(), std::greater<>{});
  const std::int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void KvCache::drop(std::int32_t block) {
  if (--references_[static_cast<std::size_t>(block)] > 0) return;
  free_.push_back(block);
  std::push_heap(free_.begin(), free_.end(), std::greater<>{});
}

void KvCache::shrink(Sequence& s, std::int64_t n_blocks) {
  while (static_cast<std::int64_t>(s.blocks.size()) > n_blocks) {
    drop(s.blocks.back());
    s.blocks.pop_back();
  }
}

}  // namespace llm
