#include "runtime/dry_run_cache.h"

#include "backend/backend.h"
#include "base/error.h"

namespace llm {

DryRunCache::DryRunCache(const Options& options)
    : options_(options),
      cache_(static_cast<std::int32_t>(options.positions / kBlockPositions), kBlockPositions, options.sequences) {}

void DryRunCache::append(SequenceId id, std::int64_t n) {
  slots_.clear();
  copies_.clear();
  check(cache_.append(id, n, slots_, copies_), "the cache of a dry run has no block left");
}

std::int64_t DryRunCache::free_positions() const { return std::int64_t{cache_.blocks_free()} * kBlockPositions; }

std::int64_t DryRunCache::positions_needed(SequenceId id, std::int64_t n) const {
  return cache_.blocks_needed(id, n) * kBlockPositions;
}

}  // namespace llm
