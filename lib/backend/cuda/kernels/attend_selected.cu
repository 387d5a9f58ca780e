// Attention to selected keys. Of latents in F16, BF16 or E4M3 the kernels of wide heads read the rows where they lie
// (attend_wide.cuh): 2,048 selected rows of 576 F16 numbers are 2.4 MB, 0.5 us at the read limit. Of all other caches
// attend() reads them as if each token were a sequence of its own: where they are whole blocks of the cache by a table
// of these, otherwise from a cache into which the rows of some tokens are packed first: they are read, written and read
// again. Where each KV head has a selection of its own, each is a sequence of that head alone.
#include <algorithm>

#include "backend/cuda/kernels/attend_selected.h"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/packed_rows.cuh"

namespace llm::cuda {
namespace {

constexpr int kPackThreads = 256;
constexpr int kMostPacked = 16;                              ///< tokens
constexpr std::size_t kPackedBytes = std::size_t{64} << 20;  ///< of these, unless one takes more

constexpr int kPackWarps = kPackThreads / 32;
constexpr int kMostInPlace = 8192;  ///< selections, which are blocks of a grid

/// Some selections, and the step of as many sequences that attend() gets for them.
struct SelectionArgs {
  const std::int32_t *positions, *sequence, *block_table, *selected;
  std::int32_t *own_positions, *own_sequence, *own_table;
  int table_stride, top_k;
  int first, n;    ///< selections of the step
  int selections;  ///< of a token
  int blocks;      ///< of the cache, that a selection has
};
struct PackArgs : SelectionArgs {
  PackedSide k, v;
  int kv_heads;  ///< of a selection
};

/// One selection.
struct OwnSelection {
  int sequence, most;  ///< most keys that there may be
  int of_token;        ///< its number among the token's
  const std::int32_t* keys;

  __device__ __forceinline__ OwnSelection(const SelectionArgs& a, int i) {
    const int token = (a.first + i) / a.selections;
    of_token = (a.first + i) % a.selections;
    sequence = __ldcg(a.sequence + token);
    most = min(__ldcg(a.positions + token) + 1, a.top_k);
    keys = a.selected + static_cast<std::int64_t>(a.first + i) * a.top_k;
  }
};

/// How many of `most` positions there are; behind them is -1. Each lane looks at the end of a stretch.
__device__ int count_selected(const std::int32_t* selected, int most, int lane) {
  int begin = 0, end = most;  // those before `begin` are there, none from `end` on
  while (begin < end) {
    const int stretch = (end - begin + 31) / 32, last = begin + (lane + 1) * stretch - 1;
    const bool is_there = last < end && __ldcg(selected + last) >= 0;
    begin += __popc(__ballot_sync(0xffffffffu, is_there)) * stretch;
    end = min(end, begin + stretch - 1);
  }
  return begin;
}

/// A warp writes what attend() asks of the step.
__device__ void write_own_step(const SelectionArgs& a, const OwnSelection& own, int i, int lane) {
  const int n = own.sequence < 0 ? 1 : count_selected(own.keys, own.most, lane);
  if (lane == 0) {
    a.own_positions[i] = n - 1;
    a.own_sequence[i] = own.sequence < 0 ? -1 : i;
  }
}
__device__ __forceinline__ int block_of(const SelectionArgs& a, int sequence, int key) {
  return __ldcg(a.block_table + static_cast<std::int64_t>(sequence) * a.table_stride + key / kCacheBlock);
}

/// A warp has a row of one KV head. Rows that are not selected are zeros: they are multiplied by weights of 0.
__global__ void __launch_bounds__(kPackThreads) pack_keys_kernel(const __grid_constant__ PackArgs a) {
  let_next_start();
  const int i = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const int item = static_cast<int>(blockIdx.x) * kPackWarps + static_cast<int>(threadIdx.x) / 32;
  const int row = item / a.kv_heads, kv_head = item % a.kv_heads;
  const OwnSelection own(a, i);
  wait_for_previous();
  if (item == 0) write_own_step(a, own, i, lane);
  if (row >= a.blocks * kCacheBlock || own.sequence < 0) return;
  const int block = i * a.blocks + row / kCacheBlock;
  if (kv_head == 0 && row % kCacheBlock == 0 && lane == 0) a.own_table[block] = block;
  const auto row_of = [](std::int64_t of_block, int heads, int head, int in_block) {
    return static_cast<std::size_t>((of_block * heads + head) * kCacheBlock + in_block);
  };
  const std::size_t to = row_of(block, a.kv_heads, kv_head, row % kCacheBlock);
  const int key = row < own.most ? __ldcg(own.keys + row) : -1;
  if (key < 0) {
    for (const PackedSide& s : {a.k, a.v}) {
      for (int at = lane; at < s.row_bytes; at += 32) s.to[to * static_cast<std::size_t>(s.row_bytes) + at] = 0;
    }
    return;
  }
  const std::size_t from = row_of(block_of(a, own.sequence, key), a.kv_heads * a.selections,
                                  own.of_token * a.kv_heads + kv_head, key % kCacheBlock);
  copy_row(a.k, from, to, lane);
  copy_row(a.v, from, to, lane);
}

/// A warp has a selection of whole blocks of the cache. One that has them for some of the KV heads counts the blocks of
/// a cache with as many: theirs lie side by side.
__global__ void __launch_bounds__(kPackThreads) list_blocks_kernel(const __grid_constant__ SelectionArgs a) {
  let_next_start();
  const int i = static_cast<int>(blockIdx.x) * kPackWarps + static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const OwnSelection own(a, min(i, a.n - 1));
  wait_for_previous();
  if (i >= a.n) return;
  write_own_step(a, own, i, lane);
  if (own.sequence < 0) return;
  for (int b = lane; b < a.blocks; b += 32) {
    const int key = b * kCacheBlock < own.most ? __ldcg(own.keys + b * kCacheBlock) : -1;
    const int block = key < 0 ? 0 : block_of(a, own.sequence, key) * a.selections + own.of_token;
    a.own_table[static_cast<std::int64_t>(i) * a.blocks + b] = block;
  }
}

/// Selections that are attended to at a time, and where what they are read by lies in scratch.
struct SelectionPlan {
  bool in_place = false;  ///< rows are read where they lie, by a table of blocks
  int at_once = 1;        ///< selections
  int blocks = 1;         ///< of one
  std::size_t k_bytes = 0, v_bytes = 0, step_bytes = 0;
  std::size_t bytes() const { return k_bytes + v_bytes + step_bytes; }
  std::int64_t positions() const { return std::int64_t{blocks} * kCacheBlock; }
};

SelectionPlan plan_selections(const CacheView& c, const Selected& keys, int tokens) {
  SelectionPlan p;
  p.in_place = whole_blocks(keys);
  p.blocks = (keys.top_k + kCacheBlock - 1) / kCacheBlock;
  const int kv_heads = c.kv_heads / keys.selections;
  const std::size_t rows =
      p.in_place ? 0 : static_cast<std::size_t>(p.blocks) * kCacheBlock * static_cast<std::size_t>(kv_heads);
  const std::size_t k = rows * static_cast<std::size_t>(cache_row_bytes(c.k_type, c.head_dim_k));
  const std::size_t v = rows * static_cast<std::size_t>(cache_row_bytes(c.v_type, c.head_dim_v));
  const std::size_t step = (2 + static_cast<std::size_t>(p.blocks)) * sizeof(std::int32_t);
  const auto most = static_cast<std::size_t>(p.in_place ? kMostInPlace : kMostPacked * keys.selections);
  p.at_once = static_cast<int>(std::clamp<std::size_t>(kPackedBytes / (k + v + step), 1, most));
  p.at_once = std::clamp(tokens * keys.selections, 1, p.at_once);
  // Rows of a block are multiples of 64 bytes.
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto n = static_cast<std::size_t>(p.at_once);
  p.k_bytes = aligned(n * k);
  p.v_bytes = aligned(n * v);
  p.step_bytes = aligned(n * step);
  return p;
}

AttentionMemory most_of(const AttentionMemory& a, const AttentionMemory& b) {
  return {std::max(a.scratch, b.scratch), std::max(a.arrivals, b.arrivals)};
}

/// The cache of a selection.
CacheView own_cache(const CacheView& c, const Selected& keys, const SelectionPlan& p, std::byte* scratch) {
  CacheView own = c;
  own.kv_heads = c.kv_heads / keys.selections;
  if (p.in_place) return own;
  own.k = scratch;
  own.v = scratch + p.k_bytes;
  own.values_in_keys = false;
  return own;
}
AttentionShape own_shape(const AttentionShape& s, const Selected& keys) {
  AttentionShape own = s;
  own.heads = s.heads / keys.selections;
  return own;
}

PackArgs selection_arguments(const CacheView& c, const CacheView& own, const Selected& keys, const StepView& step,
                             const SelectionPlan& p, std::byte* scratch) {
  auto* const of_step = reinterpret_cast<std::int32_t*>(scratch + p.k_bytes + p.v_bytes);
  const auto side = [](const std::byte* from, std::byte* to, DType type, int head_dim) {
    return PackedSide{reinterpret_cast<const unsigned char*>(from), reinterpret_cast<unsigned char*>(to),
                      cache_row_bytes(type, head_dim)};
  };
  PackArgs a{};
  a.k = side(c.k, own.k, c.k_type, c.head_dim_k);
  a.v = side(c.v, own.v, c.v_type, c.head_dim_v);
  a.kv_heads = own.kv_heads;
  a.positions = step.positions;
  a.sequence = step.sequence;
  a.block_table = step.block_table;
  a.selected = keys.positions;
  a.own_positions = of_step;
  a.own_sequence = of_step + p.at_once;
  a.own_table = of_step + 2 * p.at_once;
  a.table_stride = step.table_stride;
  a.top_k = keys.top_k;
  a.selections = keys.selections;
  a.blocks = p.blocks;
  return a;
}

}  // namespace

bool whole_blocks(const Selected& keys) { return keys.block % kCacheBlock == 0; }

AttentionMemory selected_attention_memory(const CacheView& c, const AttentionShape& s, const Selected& keys,
                                          int tokens) {
  AttentionMemory memory;
  if (attends_wide_selected(c)) {
    for (int n = 1; n <= std::min(tokens, 1025); ++n)  // more tokens are split no more
      memory = most_of(memory, attention_memory(c, s, n, keys.top_k));
    return memory;
  }
  const SelectionPlan p = plan_selections(c, keys, tokens);
  const CacheView own = own_cache(c, keys, p, nullptr);
  for (int n = 1; n <= std::min(p.at_once, 1025); ++n)
    memory = most_of(memory, attention_memory(own, own_shape(s, keys), n, p.positions()));
  memory.scratch += p.bytes();
  return memory;
}

void attend_selected(const float* q, float* y, const CacheView& c, const AttentionShape& s, const Selected& keys,
                     const StepView& step, int tokens, std::byte* scratch, std::byte* arrivals, const Launch& at) {
  if (tokens <= 0) return;
  if (attends_wide_selected(c)) return attend_wide_selected(q, y, c, s, keys, step, tokens, scratch, at);
  const SelectionPlan p = plan_selections(c, keys, tokens);
  const CacheView own = own_cache(c, keys, p, scratch);
  const AttentionShape shape = own_shape(s, keys);
  PackArgs a = selection_arguments(c, own, keys, step, p, scratch);
  StepView of_own = step;
  of_own.positions = a.own_positions;
  of_own.sequence = a.own_sequence;
  of_own.block_table = a.own_table;
  of_own.table_stride = p.blocks;
  const auto ctas = [](std::int64_t warps) { return static_cast<unsigned>((warps + kPackWarps - 1) / kPackWarps); };
  for (a.first = 0; a.first < tokens * keys.selections; a.first += p.at_once) {
    a.n = std::min(p.at_once, tokens * keys.selections - a.first);
    if (p.in_place) {
      launch(list_blocks_kernel, dim3(ctas(a.n)), dim3(kPackThreads), 0, at, a);
    } else {
      launch(pack_keys_kernel, dim3(ctas(p.positions() * own.kv_heads), static_cast<unsigned>(a.n)), dim3(kPackThreads),
             0, at, a);
    }
    // Which reads its step before earlier kernels have ended: here one of them writes it.
    attend(q + std::int64_t{a.first} * shape.heads * c.head_dim_k,
           y + std::int64_t{a.first} * shape.heads * c.head_dim_v, own, shape, of_own, a.n, p.positions(),
           scratch + p.bytes(), arrivals, {.stream = at.stream, .overlap = false});
  }
}

bool attends_prompt_selected(const CacheView& c) {
  return c.head_dim_k == 576 && has_wide_heads(c) && (c.values_in_keys || c.k_type != c.v_type) &&
         prompt_attention_refusal(c) == nullptr;
}

void attend_prompt_selected(const float* q, float* y, const CacheView& c, const AttentionShape& s, const Selected& keys,
                            const StepView& step, int tokens, const Launch& at) {
  if (tokens > 0) attend_wide_prompt_selected(q, y, c, s, keys, step, tokens, at);
}

}  // namespace llm::cuda
