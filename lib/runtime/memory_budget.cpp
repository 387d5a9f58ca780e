#include "runtime/memory_budget.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"
#include "runtime/figures.h"

namespace llm {
namespace {

/// Cache slots are 32-bit numbers over all sequences.
std::int64_t most_positions(int sequences) {
  return std::numeric_limits<std::int32_t>::max() / sequences / kBlockPositions * kBlockPositions;
}

/// What weights leave that cannot be read from their file again.
std::uint64_t left_by_weights(const MemoryNeeds& m) {
  if (m.weights == MemoryNeeds::Weights::Mapped) return m.available;
  return m.available > m.weight_bytes ? m.available - m.weight_bytes : 0;
}

/// Of whatever context.
std::uint64_t fixed_bytes(const MemoryNeeds& m) { return m.work_bytes + m.state_bytes; }

bool holds(const ContextRequest& r, const MemoryNeeds& m, std::int64_t context) {
  const std::uint64_t available = left_by_weights(m);
  const bool kept = m.weights == MemoryNeeds::Weights::Kept;
  if (kept && m.weight_bytes > m.available) return false;
  return fixed_bytes(m) <= available && cache_bytes(r, m, context) <= available - fixed_bytes(m);
}

/// Which memory a figure is of, where a model is in several: " in the GPU's memory".
std::string where(const ContextRequest& r, const MemoryNeeds& m) {
  return r.memories.size() > 1 ? " in " + owned_text(m.name) : "";
}

[[noreturn]] void does_not_fit(const ContextRequest& r, std::int64_t context) {
  const auto full =
      std::find_if(r.memories.begin(), r.memories.end(), [&](const MemoryNeeds& m) { return !holds(r, m, context); });
  const MemoryNeeds& m = full == r.memories.end() ? r.memories.front() : *full;
  const std::uint64_t cache = cache_bytes(r, m, context);
  const std::uint64_t needed = checked_add(cache, fixed_bytes(m)).value_or(~std::uint64_t{0});
  const std::string weights = "weights of " + bytes_text(m.weight_bytes);
  const bool mapped = m.weights == MemoryNeeds::Weights::Mapped;
  throw Error(ErrorKind::Memory,
              "a context of " + number_text(context) + " tokens" +
                  (r.sequences > 1 ? " for each of " + std::to_string(r.sequences) + " sequences" : "") +
                  " needs more memory than is available" + where(r, m) + ": cache " + bytes_text(cache) +
                  (m.state_bytes > 0 ? " + recurrent states " + bytes_text(m.state_bytes) : "") + " + work " +
                  bytes_text(m.work_bytes) + " = " + bytes_text(needed) + "; " + bytes_text(left_by_weights(m)) +
                  (mapped ? " available (" + weights + " stay in the file and are not counted)"
                          : " available" + (m.weight_bytes > 0 ? " beside " + weights : "")));
}

ContextChoice explicit_context(const ContextRequest& r) {
  if (r.most > 0 && r.context > r.most)
    throw Error(ErrorKind::Usage, "a context of " + number_text(r.context) + " tokens is longer than the " +
                                      number_text(r.most) + " positions that the model has embeddings of");
  if (r.context > most_positions(r.sequences) || !fits(r, r.context)) does_not_fit(r, r.context);
  return {r.context, "as asked for"};
}

/// Positions of every sequence that fit into one memory beside the weights; where mapped ones leave less than that, in
/// an eighth of it.
std::uint64_t fitting_positions(const ContextRequest& r, const MemoryNeeds& m) {
  const std::uint64_t beside_weights = m.available > m.weight_bytes ? m.available - m.weight_bytes : 0;
  const bool mapped = m.weights == MemoryNeeds::Weights::Mapped;
  const std::uint64_t least = mapped ? std::min(m.available, fixed_bytes(m) + m.available / 8) : 0;
  const std::uint64_t budget = std::max(beside_weights, least);
  const std::uint64_t cache_budget = budget > fixed_bytes(m) ? budget - fixed_bytes(m) : 0;
  const std::uint64_t per_position =
      std::max<std::uint64_t>(1, m.bytes_per_position) * static_cast<std::uint64_t>(r.sequences);
  return std::min(cache_budget / per_position, static_cast<std::uint64_t>(most_positions(r.sequences)));
}

/// The memory that the fewest positions fit into.
const MemoryNeeds& tightest(const ContextRequest& r) {
  check(!r.memories.empty(), "a model lies in some memory");
  return *std::min_element(r.memories.begin(), r.memories.end(), [&](const MemoryNeeds& a, const MemoryNeeds& b) {
    return fitting_positions(r, a) < fitting_positions(r, b);
  });
}

template <class F>
std::uint64_t sum_over(const ContextRequest& r, F&& figure) {
  std::uint64_t sum = 0;
  for (const MemoryNeeds& m : r.memories) sum += figure(m);
  return sum;
}

}  // namespace

MemoryNeeds needs_of(const MemoryShare& share, CacheFormat format, std::int32_t slots) {
  return {.name = share.name,
          .bytes_per_position = bytes_per_position(share.caches, format),
          .work_bytes = share.workspace,
          .state_bytes = bytes_per_state(share.recurrent) * static_cast<std::uint64_t>(slots),
          .weight_bytes = share.weights,
          .weights = share.layout == Layout::Device ? MemoryNeeds::Weights::Kept : MemoryNeeds::Weights::Mapped,
          .available = share.available};
}

void add_needs(ContextRequest& r, std::span<const MemoryNeeds> others) {
  for (const MemoryNeeds& other : others) {
    const auto same =
        std::find_if(r.memories.begin(), r.memories.end(), [&](const MemoryNeeds& m) { return m.name == other.name; });
    if (same == r.memories.end()) continue;
    same->bytes_per_position += other.bytes_per_position;
    same->work_bytes += other.work_bytes;
    same->state_bytes += other.state_bytes;
    same->weight_bytes += other.weight_bytes;
  }
}

std::uint64_t weight_bytes(const ContextRequest& r) {
  return sum_over(r, [](const MemoryNeeds& m) { return m.weight_bytes; });
}
std::uint64_t work_bytes(const ContextRequest& r) {
  return sum_over(r, [](const MemoryNeeds& m) { return m.work_bytes; });
}
std::uint64_t state_bytes(const ContextRequest& r) {
  return sum_over(r, [](const MemoryNeeds& m) { return m.state_bytes; });
}
std::uint64_t bytes_per_position(const ContextRequest& r) {
  return sum_over(r, [](const MemoryNeeds& m) { return m.bytes_per_position; });
}

std::uint64_t cache_bytes(const ContextRequest& r, const MemoryNeeds& m, std::int64_t context) {
  const auto all = checked_mul(static_cast<std::uint64_t>(whole_blocks(context) * kBlockPositions),
                               static_cast<std::uint64_t>(r.sequences));
  return all ? checked_mul(*all, m.bytes_per_position).value_or(~std::uint64_t{0}) : ~std::uint64_t{0};
}

bool fits(const ContextRequest& r, std::int64_t context) {
  return std::all_of(r.memories.begin(), r.memories.end(), [&](const MemoryNeeds& m) { return holds(r, m, context); });
}

std::vector<CacheType> cache_types(const Graph& graph) {
  std::vector<CacheType> types;
  for (const ValueInfo& value : graph.values()) {
    const bool is_new = std::find(types.begin(), types.end(), value.cache) == types.end();
    if (value.kind == ValueKind::Cache && is_new) types.push_back(value.cache);
  }
  return types;
}

std::vector<RecurrentType> recurrent_types(const Graph& graph) {
  std::vector<RecurrentType> types;
  for (const ValueInfo& value : graph.values()) {
    if (value.kind == ValueKind::Recurrent) types.push_back(value.recurrent);
  }
  return types;
}

std::uint64_t bytes_per_state(std::span<const RecurrentType> types) {
  std::uint64_t bytes = 0;
  for (const RecurrentType& type : types) bytes += type.bytes();
  return bytes;
}

std::int64_t whole_blocks(std::int64_t positions) { return (positions + kBlockPositions - 1) / kBlockPositions; }

std::int64_t pool_blocks(const ContextRequest& r, std::int64_t context, std::int64_t positions) {
  const auto fitting = static_cast<std::int64_t>(fitting_positions(r, tightest(r))) / kBlockPositions;
  const std::int64_t wanted = positions > 0 ? std::min(fitting, whole_blocks(positions)) : fitting;
  return std::max(wanted, whole_blocks(context));
}

namespace {

std::optional<CacheMisfit> misfit(CacheMisfit::Side side, DType type, int head_dim) {
  const int block = static_cast<int>(info(type).block_elems);
  if (head_dim % block == 0) return std::nullopt;
  return CacheMisfit{side, std::string("cached ") + (side == CacheMisfit::Side::Keys ? "keys" : "values") +
                               " cannot be " + std::string(name(type)) + ": the model's heads of " +
                               number_text(head_dim) + " are not whole blocks of " + number_text(block) +
                               "; choose f8_e4m3, f16, bf16 or f32"};
}

}  // namespace

std::optional<CacheMisfit> find_misfit(std::span<const CacheType> caches, CacheFormat format) {
  for (const CacheType& c : caches) {
    if (auto found = misfit(CacheMisfit::Side::Keys, format.k, c.head_dim_k)) return found;
    if (auto found = misfit(CacheMisfit::Side::Values, format.v, c.head_dim_v)) return found;
  }
  return std::nullopt;
}

std::uint64_t bytes_per_position(std::span<const CacheType> caches, CacheFormat format) {
  if (const auto found = find_misfit(caches, format)) throw Error(ErrorKind::Usage, found->problem);
  std::uint64_t bytes = 0;
  for (const CacheType& c : caches) {
    bytes += TensorType{format.k, {c.head_dim_k, c.kv_heads}}.bytes() +
             TensorType{format.v, {c.head_dim_v, c.kv_heads}}.bytes();
  }
  return bytes;
}

ContextChoice choose_context(const ContextRequest& r) {
  if (r.context > 0) return explicit_context(r);
  const MemoryNeeds& m = tightest(r);
  const std::uint64_t fitting = fitting_positions(r, m);
  if (static_cast<std::uint64_t>(r.trained) <= fitting) return {r.trained, "as the model was trained"};
  const std::int64_t context = static_cast<std::int64_t>(fitting) / kBlockPositions * kBlockPositions;
  if (context == 0) does_not_fit(r, std::min<std::int64_t>(r.trained, kBlockPositions));
  return {context, "limited by memory: the model was trained with " + number_text(r.trained) + ", a position takes " +
                       bytes_text(m.bytes_per_position) + ", " + bytes_text(m.available) + " available" + where(r, m)};
}

}  // namespace llm
