// Book-keeping of a paged cache: which physical blocks hold which positions of which sequence. No data, no backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace llm {

using SequenceId = int;

class KvCache {
 public:
  /// `n_blocks` blocks of `block_positions` positions for up to `max_sequences` sequences.
  KvCache(std::int32_t n_blocks, std::int32_t block_positions, int max_sequences);

  /// The lowest free id. Throws ErrorKind::Internal if all are in use.
  SequenceId create();
  void remove(SequenceId);
  std::int64_t length(SequenceId) const;
  bool alive(SequenceId) const;
  void truncate(SequenceId, std::int64_t length);

  /// A copy that the caller has to make in the state store before it writes: the last, partly filled block of a shared
  /// prefix.
  struct BlockCopy {
    std::int32_t from = -1, to = -1;
  };
  /// A new sequence that shares the blocks of the first `length` positions of another.
  SequenceId fork(SequenceId, std::int64_t length);
  /// Takes blocks for `n` more positions and appends their slots to `slots`; a shared last block is replaced and
  /// appended to `copies`. Returns false, changing nothing, if the blocks do not suffice.
  bool append(SequenceId, std::int64_t n, std::vector<std::int32_t>& slots, std::vector<BlockCopy>& copies);

  std::span<const std::int32_t> blocks(SequenceId) const;  ///< physical block of each logical block
  std::int32_t blocks_in_use() const;
  std::int32_t blocks_free() const { return n_blocks_ - blocks_in_use(); }
  /// Free blocks that append() would take for `n` more positions.
  std::int64_t blocks_needed(SequenceId, std::int64_t n) const;

 private:
  struct Sequence {
    bool alive = false;
    std::int64_t length = 0;
    std::vector<std::int32_t> blocks;
  };
  const Sequence& at(SequenceId) const;
  Sequence& at(SequenceId);
  std::int64_t blocks_for(std::int64_t positions) const;
  bool must_copy_last(const Sequence&) const;
  std::int32_t take();
  void drop(std::int32_t block);
  void shrink(Sequence&, std::int64_t n_blocks);
  std::int32_t n_blocks_;
  std::int32_t block_positions_;
  std::vector<std::int32_t> references_;  ///< per block that was ever used; the rest of the pool is free
  std::vector<std::int32_t> free_;        ///< min-heap of blocks given back: memory fills from the start
  std::vector<Sequence> sequences_;
};

}  // namespace llm
