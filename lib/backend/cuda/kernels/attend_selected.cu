// Attention to selected keys. Of latents in F16, BF16 or E4M3 the kernels of wide heads read the rows where they lie
// (attend_wide.cuh): 2,048 selected rows of 576 F16 numbers are 2.4 MB, 0.5 us at the read limit. Of all other caches
// the rows of some tokens are packed into a cache of their own first, which attend() then reads as if each token were a
// sequence: the rows are read, written and read again.
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

struct PackArgs {
  PackedSide k, v;
  const std::int32_t *positions, *sequence, *block_table, *selected;
  std::int32_t *packed_positions, *packed_sequence, *packed_table;
  int table_stride, kv_heads, top_k, blocks;  ///< blocks of a token
};

/// How many of `most` positions there are: what is missing, less than a block, is -1 behind them.
__device__ int count_selected(const std::int32_t* selected, int most, int lane) {
  int missing = 0;
  for (int back = lane; back < min(most, kCacheBlock); back += 32) missing += __ldcg(selected + most - 1 - back) < 0;
  return most - __reduce_add_sync(0xffffffffu, missing);
}

/// A warp has a row of one KV head. Rows that a token does not select are zeros: they are multiplied by weights of 0.
__global__ void __launch_bounds__(kPackThreads) pack_keys_kernel(const __grid_constant__ PackArgs a) {
  let_next_start();
  const int token = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const int item = static_cast<int>(blockIdx.x) * (kPackThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int row = item / a.kv_heads, kv_head = item % a.kv_heads;
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  const int most = min(position + 1, a.top_k);
  const std::int32_t* const selected = a.selected + static_cast<std::int64_t>(token) * a.top_k;
  wait_for_previous();
  if (item == 0) {
    const int n = sequence < 0 ? 1 : count_selected(selected, most, lane);
    if (lane == 0) {
      a.packed_positions[token] = n - 1;
      a.packed_sequence[token] = sequence < 0 ? -1 : token;
    }
  }
  if (row >= a.blocks * kCacheBlock || sequence < 0) return;
  const int block = token * a.blocks + row / kCacheBlock;
  if (kv_head == 0 && row % kCacheBlock == 0 && lane == 0) a.packed_table[block] = block;
  const auto row_of = [&](std::int64_t of_block, int in_block) {
    return static_cast<std::size_t>((of_block * a.kv_heads + kv_head) * kCacheBlock + in_block);
  };
  const std::size_t to = row_of(block, row % kCacheBlock);
  const int key = row < most ? __ldcg(selected + row) : -1;
  if (key < 0) {
    for (const PackedSide& s : {a.k, a.v}) {
      for (int i = lane; i < s.row_bytes; i += 32) s.to[to * static_cast<std::size_t>(s.row_bytes) + i] = 0;
    }
    return;
  }
  const std::size_t from =
      row_of(__ldcg(a.block_table + static_cast<std::int64_t>(sequence) * a.table_stride + key / kCacheBlock),
             key % kCacheBlock);
  copy_row(a.k, from, to, lane);
  copy_row(a.v, from, to, lane);
}

/// Where what is packed lies in scratch.
struct PackPlan {
  int at_once = 1, blocks = 1;  ///< tokens; blocks of one
  std::size_t k_bytes = 0, v_bytes = 0, step_bytes = 0;
  std::size_t bytes() const { return k_bytes + v_bytes + step_bytes; }
};

PackPlan plan_pack(const CacheView& c, int top_k, int tokens) {
  PackPlan p;
  p.blocks = (top_k + kCacheBlock - 1) / kCacheBlock;
  const auto rows = static_cast<std::size_t>(p.blocks) * kCacheBlock * static_cast<std::size_t>(c.kv_heads);
  const std::size_t k = rows * static_cast<std::size_t>(cache_row_bytes(c.k_type, c.head_dim_k));
  const std::size_t v = rows * static_cast<std::size_t>(cache_row_bytes(c.v_type, c.head_dim_v));
  const auto most = static_cast<int>(std::clamp<std::size_t>(kPackedBytes / (k + v), 1, kMostPacked));
  p.at_once = std::clamp(tokens, 1, most);
  // Rows of a block are multiples of 64 bytes.
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto n = static_cast<std::size_t>(p.at_once);
  p.k_bytes = aligned(n * k);
  p.v_bytes = aligned(n * v);
  p.step_bytes = aligned(n * (2 + static_cast<std::size_t>(p.blocks)) * sizeof(std::int32_t));
  return p;
}

AttentionMemory most_of(const AttentionMemory& a, const AttentionMemory& b) {
  return {std::max(a.scratch, b.scratch), std::max(a.arrivals, b.arrivals)};
}

/// The cache that rows are packed into, and the step that attends to it.
CacheView packed_cache(const CacheView& c, const PackPlan& p, std::byte* scratch) {
  CacheView packed = c;
  packed.k = scratch;
  packed.v = scratch + p.k_bytes;
  packed.values_in_keys = false;
  return packed;
}

}  // namespace

AttentionMemory selected_attention_memory(const CacheView& c, const AttentionShape& s, int top_k, int tokens) {
  AttentionMemory memory;
  const bool in_place = attends_wide_selected(c);
  const PackPlan p = plan_pack(c, top_k, tokens);
  const CacheView packed = packed_cache(c, p, nullptr);
  const std::int64_t positions = std::int64_t{p.blocks} * kCacheBlock;
  for (int n = 1; n <= (in_place ? tokens : p.at_once); ++n) {
    const AttentionMemory own = in_place ? attention_memory(c, s, n, top_k) : attention_memory(packed, s, n, positions);
    memory = most_of(memory, own);
    if (n > 1024) break;  // more tokens are split no more
  }
  if (!in_place) memory.scratch += p.bytes();
  return memory;
}

void attend_selected(const float* q, float* y, const CacheView& c, const AttentionShape& s, const Selected& keys,
                     const StepView& step, int tokens, std::byte* scratch, std::byte* arrivals, const Launch& at) {
  if (tokens <= 0) return;
  if (attends_wide_selected(c)) return attend_wide_selected(q, y, c, s, keys, step, tokens, scratch, at);
  const PackPlan p = plan_pack(c, keys.top_k, tokens);
  const CacheView packed = packed_cache(c, p, scratch);
  auto* const of_step = reinterpret_cast<std::int32_t*>(scratch + p.k_bytes + p.v_bytes);
  const auto side = [](const std::byte* from, std::byte* to, DType type, int head_dim) {
    return PackedSide{reinterpret_cast<const unsigned char*>(from), reinterpret_cast<unsigned char*>(to),
                      cache_row_bytes(type, head_dim)};
  };
  PackArgs a{};
  a.k = side(c.k, packed.k, c.k_type, c.head_dim_k);
  a.v = side(c.v, packed.v, c.v_type, c.head_dim_v);
  a.positions = step.positions;
  a.sequence = step.sequence;
  a.block_table = step.block_table;
  a.selected = keys.positions;
  a.packed_positions = of_step;
  a.packed_sequence = of_step + p.at_once;
  a.packed_table = of_step + 2 * p.at_once;
  a.table_stride = step.table_stride;
  a.kv_heads = c.kv_heads;
  a.top_k = keys.top_k;
  a.blocks = p.blocks;
  StepView of_packed = step;
  of_packed.positions = a.packed_positions;
  of_packed.sequence = a.packed_sequence;
  of_packed.block_table = a.packed_table;
  of_packed.table_stride = p.blocks;
  const std::int64_t positions = std::int64_t{p.blocks} * kCacheBlock;
  const std::int64_t items = positions * c.kv_heads;
  constexpr int kPackWarps = kPackThreads / 32;
  for (int first = 0; first < tokens; first += p.at_once) {
    const int n = std::min(p.at_once, tokens - first);
    launch(pack_keys_kernel,
           dim3(static_cast<unsigned>((items + kPackWarps - 1) / kPackWarps), static_cast<unsigned>(n)),
           dim3(kPackThreads), 0, at, a);
    // Which reads its step before earlier kernels have ended: here one of them writes it.
    attend(q + std::int64_t{first} * s.heads * c.head_dim_k, y + std::int64_t{first} * s.heads * c.head_dim_v, packed,
           s, of_packed, n, positions, scratch + p.bytes(), arrivals, {.stream = at.stream, .overlap = false});
    a.positions += p.at_once;
    a.sequence += p.at_once;
    a.selected += std::int64_t{p.at_once} * keys.top_k;
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
