// How many positions a cache can hold, decided before anything large is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"

namespace llm {

/// The caches of a graph, one per layer: it has a value for a cache before and after the step's rows were stored.
std::vector<CacheType> cache_types(const Graph&);
/// The recurrent states of a graph.
std::vector<RecurrentType> recurrent_types(const Graph&);
/// Bytes of a slot that holds all of them.
std::uint64_t bytes_per_state(std::span<const RecurrentType>);
/// Keys or values of which a format cannot hold the heads, since they are no whole blocks of it.
struct CacheMisfit {
  enum class Side : std::uint8_t { Keys, Values } side;
  std::string problem;  ///< what to say of it
};
std::optional<CacheMisfit> find_misfit(std::span<const CacheType>, CacheFormat);
/// Bytes of all layers' keys and values at one position. Throws ErrorKind::Usage if heads are no whole blocks of the
/// format.
std::uint64_t bytes_per_position(std::span<const CacheType>, CacheFormat);

/// What a model takes of one memory, and what there is.
struct MemoryNeeds {
  std::string name = "CPU";  ///< MemoryShare::name
  std::uint64_t bytes_per_position = 0;
  std::uint64_t work_bytes = 0;   ///< workspace and logits
  std::uint64_t state_bytes = 0;  ///< recurrent states of all sequences
  std::uint64_t weight_bytes = 0;
  enum class Weights : std::uint8_t {
    Mapped,  ///< page cache: reclaimable, but better kept
    Kept,    ///< their bytes will be taken out of `available`
  } weights = Weights::Mapped;
  std::uint64_t available = 0;
};
/// With so many slots of recurrent states. Throws as bytes_per_position() does.
MemoryNeeds needs_of(const MemoryShare&, CacheFormat, std::int32_t slots);

struct ContextRequest {
  std::int64_t context = 0;  ///< 0: choose
  std::int64_t trained = 0;  ///< what the model was trained with
  std::int64_t most = 0;     ///< ModelDims::positions
  int sequences = 1;
  std::vector<MemoryNeeds> memories;  ///< at least one; the cache has as many positions in each
};
/// What others need at the same time, counted in the memories that the model needs, too.
void add_needs(ContextRequest&, std::span<const MemoryNeeds> others);
/// Of all memories.
std::uint64_t weight_bytes(const ContextRequest&);
std::uint64_t work_bytes(const ContextRequest&);
std::uint64_t state_bytes(const ContextRequest&);
std::uint64_t bytes_per_position(const ContextRequest&);

/// Bytes of `context` positions in every sequence; the largest number if that overflows.
std::uint64_t cache_bytes(const ContextRequest&, const MemoryNeeds&, std::int64_t context);
/// Whether every sequence can have so many positions beside weights that do not give way.
bool fits(const ContextRequest&, std::int64_t context);

struct ContextChoice {
  std::int64_t context;
  std::string reason;  ///< "as the model was trained", "as asked for", "limited by memory: ..."
};
/// Blocks that hold so many positions.
std::int64_t whole_blocks(std::int64_t positions);
/// Blocks of a cache that sequences share: `positions` (0: all that memory holds), at least the `context` that was
/// chosen for this request.
std::int64_t pool_blocks(const ContextRequest&, std::int64_t context, std::int64_t positions);

/// Throws ErrorKind::Memory with the figures if what was asked for, or a single block, does not fit, ErrorKind::Usage
/// for more positions than the model has.
ContextChoice choose_context(const ContextRequest&);

}  // namespace llm
