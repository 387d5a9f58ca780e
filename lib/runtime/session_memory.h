// What a session is to have, and the memory that it takes for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "runtime/memory_budget.h"
#include "runtime/model.h"

namespace llm {

struct SessionOptions {
  std::int64_t context = 0;  ///< positions per sequence; 0: as many as the model was trained for and memory can hold
  int sequences = 1;         ///< that can be alive at once
  int batch_tokens = 0;      ///< most tokens of one step; 0, and more than the backend's, counts as the backend's most
  /// Positions that all sequences have together, at least one context; 0: what memory holds. Who uses such a pool minds
  /// free_positions(). Without it every sequence can reach the context.
  std::optional<std::int64_t> pool = {};
  CacheFormat cache = {};
  /// What others need at the same time; their bytes per position are of each of this session's.
  std::vector<MemoryNeeds> beside = {};
};

/// Most tokens of one step of a session with these options.
int most_step_tokens(const Backend&, const SessionOptions&);
/// Its largest step.
Bucket largest_bucket(const Backend&, const SessionOptions&);
/// What it asks of this machine's memory now: Session's own figures.
ContextRequest memory_request(Model&, const SessionOptions&);

struct SessionMemory {
  ContextChoice context;
  std::unique_ptr<Workspace> workspace;  ///< of the largest step
  std::unique_ptr<StateStore> store;     ///< of so many blocks and slots
  std::int32_t n_blocks = 0;
  std::int32_t n_slots = 0;              ///< of recurrent states; 0 of models without such layers
  std::uint64_t bytes_per_position = 0;  ///< of the cache
};
/// Throws ErrorKind::Memory with the byte figures if an explicit context does not fit.
SessionMemory take_memory(Model&, const SessionOptions&);

}  // namespace llm
