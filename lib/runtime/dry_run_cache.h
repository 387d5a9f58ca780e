// The book that a session keeps of its sequences, without a session: what a RowQueue runs over where nothing is
// computed.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kv_cache.h"

namespace llm {

class DryRunCache {
 public:
  struct Options {
    int sequences = 1;
    std::int64_t positions = 0;  ///< of all sequences together, in whole blocks
    std::int64_t context = 0;    ///< most of one
    bool recurrent = false;      ///< the model remembers states, not positions alone
  };
  explicit DryRunCache(const Options&);

  SequenceId create() { return cache_.create(); }
  SequenceId fork(SequenceId from, std::int64_t length) { return cache_.fork(from, length); }
  void remove(SequenceId id) { cache_.remove(id); }
  void rewind(SequenceId id, std::int64_t length) { cache_.truncate(id, length); }
  /// Takes tokens as a step does.
  void append(SequenceId, std::int64_t n);

  std::int64_t length(SequenceId id) const { return cache_.length(id); }
  std::int64_t context() const { return options_.context; }
  bool recurrent() const { return options_.recurrent; }
  std::int64_t free_positions() const;
  std::int64_t positions_needed(SequenceId, std::int64_t n) const;

 private:
  Options options_;
  KvCache cache_;
  std::vector<std::int32_t> slots_;
  std::vector<KvCache::BlockCopy> copies_;
};

}  // namespace llm
