#include "runtime/session_memory.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/programs.h"
#include "runtime/recurrent_states.h"

namespace llm {
namespace {

/// Rows of logits that a step of every sequence gives, and those of steps that nobody wants logits of.
std::uint64_t logit_bytes(Model& model, const SessionOptions& o) {
  const auto rows = static_cast<std::uint64_t>(o.sequences + model.backend().steps_at_once());
  return rows * static_cast<std::uint64_t>(model.dims().vocab) * sizeof(float);
}

ContextRequest request_for(Model& model, const SessionOptions& o, std::span<const Graph> largest) {
  ContextRequest r{.context = o.context,
                   .trained = model.dims().context,
                   .most = model.dims().positions,
                   .sequences = o.pool ? 1 : o.sequences,
                   .memories = {}};
  const std::int32_t slots = recurrent_slots(o.sequences, model.backend().draws());
  for (const MemoryShare& share : model.backend().memory(largest))
    r.memories.push_back(needs_of(share, o.cache, slots));
  for (MemoryNeeds& m : r.memories) {
    if (m.weights != MemoryNeeds::Weights::Mapped) continue;
    m.available += std::min(model.held_bytes(), m.weight_bytes);
  }
  for (MemoryNeeds& m : r.memories) {  // results come into this machine's memory; on a device they are in the workspace
    if (m.weights == MemoryNeeds::Weights::Mapped) m.work_bytes += logit_bytes(model, o);
    if (model.reads_files()) m.weights = MemoryNeeds::Weights::Kept;
  }
  add_needs(r, o.beside);
  return r;
}

/// The blocks that a choice of context comes to.
std::int32_t blocks_of(const ContextRequest& request, const ContextChoice& choice, const SessionOptions& o) {
  std::int64_t blocks = whole_blocks(choice.context) * o.sequences;
  if (o.pool) blocks = std::min(blocks, pool_blocks(request, choice.context, *o.pool));
  return static_cast<std::int32_t>(blocks);
}

/// A context of at most half as many positions, where one that nobody asked for may shrink: address space can be
/// limited more than memory.
std::optional<ContextChoice> smaller(const ContextChoice& choice, const SessionOptions& o) {
  constexpr std::int64_t kWorthTrying = 4 * kBlockPositions;
  if (o.context != 0 || choice.context < 2 * kWorthTrying) return std::nullopt;
  return ContextChoice{choice.context / 2 / kBlockPositions * kBlockPositions, "limited by memory that could be had"};
}

}  // namespace

int most_step_tokens(const Backend& backend, const SessionOptions& o) {
  const int most = std::min(backend.most_step_tokens(), kMaxBatchTokens);
  return o.batch_tokens == 0 ? most : std::clamp(o.batch_tokens, 1, most);
}

Bucket largest_bucket(const Backend& backend, const SessionOptions& o) {
  return bucket_for(most_step_tokens(backend, o), o.sequences);
}

ContextRequest memory_request(Model& model, const SessionOptions& o) {
  return request_for(model, o, model.graphs(largest_bucket(model.backend(), o)));
}

SessionMemory take_memory(Model& model, const SessionOptions& o) {
  Backend& backend = model.backend();
  const std::vector<Graph> graphs = model.graphs(largest_bucket(backend, o));
  const ContextRequest request = request_for(model, o, graphs);  // before anything is taken
  const Graph& largest = graphs.front();
  const std::vector<CacheType> caches = cache_types(largest);
  const std::vector<RecurrentType> recurrent = recurrent_types(largest);
  SessionMemory memory{.context = choose_context(request),
                       .workspace = backend.make_workspace(largest),
                       .store = nullptr,
                       .n_slots = recurrent.empty() ? 0 : recurrent_slots(o.sequences, backend.draws()),
                       .bytes_per_position = bytes_per_position(caches, o.cache)};
  while (memory.store == nullptr) {
    memory.n_blocks = blocks_of(request, memory.context, o);
    try {
      memory.store = backend.allocate({.caches = caches,
                                       .format = o.cache,
                                       .n_blocks = memory.n_blocks,
                                       .most_positions = whole_blocks(memory.context.context) * kBlockPositions,
                                       .recurrent = recurrent,
                                       .n_slots = memory.n_slots});
    } catch (const Error& error) {
      const auto next = error.kind() == ErrorKind::Memory ? smaller(memory.context, o) : std::nullopt;
      if (!next) throw;
      memory.context = *next;
    }
  }
  return memory;
}

}  // namespace llm
