// Attention to a window and to compressed keys. Heads of 512 that are their own values in F16, BF16 or E4M3 have the
// kernels of wide heads, which read the rows where they lie (attend_wide.cuh): a CTA has up to 32 heads of one token,
// or of prompts 64, as many as DeepSeek V4 has for its one key. So of prompts a token's keys are read once: 128 of the
// window and 512 chosen ones are 640 KB of F16 and 84 MFLOP, which a multiprocessor's share of the second cache brings
// in less time than its tensor cores take. Neighbours could share the window alone.
//
// Of all other caches the keys of some tokens are packed into a cache of their own first, which attend() then reads as
// if each token were a sequence. Where values are kept in another type than keys, both kinds of them become f32.
#include <algorithm>

#include "backend/cuda/kernels/attend_compressed.h"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/packed_rows.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kPackThreads = 256, kPackWarps = kPackThreads / 32;
constexpr int kMostPacked = 16;                              ///< tokens
constexpr std::size_t kPackedBytes = std::size_t{64} << 20;  ///< of these, unless one takes more

struct CompressedPackArgs {
  PackedSide k, v;  ///< from the cache of the window
  const unsigned char* compressed;
  DType k_type, v_type;
  bool widens;  ///< values to f32
  CompressedOrder order;
  const std::int32_t *positions, *sequence, *block_table;
  const std::int32_t* chosen;  ///< [tokens][order.most]; null: all
  std::int32_t *packed_positions, *packed_sequence, *packed_table;
  int table_stride, dim, blocks;  ///< blocks of a token
};

__device__ void widen_row(DType type, const unsigned char* row, int dim, float* to, int lane) {
  for (int e = lane * 8; e < dim; e += 32 * 8) {
    float x[8];
    decode8_in_memory(type, row, e, dim, x);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (e + j < dim) to[e + j] = x[j];
    }
  }
}

__device__ __forceinline__ void clear_row(const PackedSide& s, std::size_t row, int lane) {
  for (int i = lane; i < s.row_bytes; i += 32) s.to[row * static_cast<std::size_t>(s.row_bytes) + i] = 0;
}

/// A warp has a key. Rows of a block behind the last one are zeros: they are multiplied by weights of 0.
__global__ void __launch_bounds__(kPackThreads) pack_compressed_kernel(const __grid_constant__ CompressedPackArgs a) {
  let_next_start();
  const int token = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x) % 32;
  const int item = static_cast<int>(blockIdx.x) * kPackWarps + static_cast<int>(threadIdx.x) / 32;
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  const int of_window = a.order.of_window(position), n = a.order.keys(position);
  wait_for_previous();
  if (item == 0 && lane == 0) {
    a.packed_positions[token] = sequence < 0 ? 0 : n - 1;
    a.packed_sequence[token] = sequence < 0 ? -1 : token;
  }
  if (sequence < 0 || item >= (n + kCacheBlock - 1) / kCacheBlock * kCacheBlock) return;
  const int block = token * a.blocks + item / kCacheBlock;
  if (item % kCacheBlock == 0 && lane == 0) a.packed_table[block] = block;
  const auto to = static_cast<std::size_t>(block) * kCacheBlock + static_cast<std::size_t>(item % kCacheBlock);
  if (item >= n) {
    clear_row(a.k, to, lane);
    clear_row(a.v, to, lane);
    return;
  }
  const bool compressed = item >= of_window;
  int key = item - of_window;
  if (compressed && a.chosen != nullptr) key = __ldcg(a.chosen + static_cast<std::int64_t>(token) * a.order.most + key);
  const int at = compressed ? (key + 1) * a.order.stride - 1 : a.order.window.first_key(position) + item;
  const int in_block = compressed ? at % kCacheBlock / a.order.stride : at % kCacheBlock;
  const int own_block = __ldcg(a.block_table + static_cast<std::int64_t>(sequence) * a.table_stride + at / kCacheBlock);
  const auto from = static_cast<std::size_t>(own_block) * kCacheBlock + static_cast<std::size_t>(in_block);
  PackedSide k = a.k, v = a.v;
  if (compressed) k.from = v.from = a.compressed;
  copy_row(k, from, to, lane);
  if (!a.widens) return copy_row(v, from, to, lane);
  const DType type = compressed ? a.k_type : a.v_type;
  widen_row(type, v.from + from * static_cast<std::size_t>(cache_row_bytes(type, a.dim)), a.dim,
            reinterpret_cast<float*>(v.to) + to * static_cast<std::size_t>(a.dim), lane);
}

/// Of a token.
int most_keys(const AttentionShape& s, const CompressedKeys& keys, std::int64_t max_positions) {
  const auto all = static_cast<int>(max_positions);
  const int of_window = s.window.length > 0 ? std::min(all, s.window.length) : all;
  const int compressed = all / keys.stride;
  return of_window + (keys.chosen != nullptr ? std::min(compressed, keys.top_k) : compressed);
}

/// Tokens whose keys are packed at a time, and where these lie in scratch.
struct PackPlan {
  int at_once = 1, blocks = 1;  ///< tokens; blocks of one
  std::size_t k_bytes = 0, v_bytes = 0, step_bytes = 0;
  std::size_t bytes() const { return k_bytes + v_bytes + step_bytes; }
  std::int64_t positions() const { return std::int64_t{blocks} * kCacheBlock; }
};
/// `c` is of the types that are packed.
PackPlan plan_pack(const CacheView& c, int most, int tokens) {
  PackPlan p;
  p.blocks = (most + kCacheBlock - 1) / kCacheBlock;
  const auto rows = static_cast<std::size_t>(p.positions());
  const std::size_t k = rows * static_cast<std::size_t>(cache_row_bytes(c.k_type, c.head_dim_k));
  const std::size_t v = rows * static_cast<std::size_t>(cache_row_bytes(c.v_type, c.head_dim_v));
  const auto fitting = static_cast<int>(std::clamp<std::size_t>(kPackedBytes / (k + v), 1, kMostPacked));
  p.at_once = std::clamp(tokens, 1, fitting);
  // Rows of a block are multiples of 64 bytes.
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  const auto n = static_cast<std::size_t>(p.at_once);
  p.k_bytes = aligned(n * k);
  p.v_bytes = aligned(n * v);
  p.step_bytes = aligned(n * (2 + static_cast<std::size_t>(p.blocks)) * sizeof(std::int32_t));
  return p;
}

/// What is packed, as a cache; without memory yet.
CacheView packed_cache(const CacheView& c) {
  CacheView packed = c;
  if (c.k_type != c.v_type) packed.v_type = DType::F32;
  packed.values_in_keys = false;
  return packed;
}
AttentionShape without_window(const AttentionShape& s) {
  AttentionShape packed = s;
  packed.window = {};
  return packed;
}

bool attends_in_place(const CacheView& c) { return c.head_dim_k == 512 && c.values_in_keys && attends_wide(c); }

void attend_packed(const float* q, float* y, const CacheView& c, const AttentionShape& s, const CompressedKeys& keys,
                   const StepView& step, int tokens, std::int64_t max_positions, std::byte* scratch,
                   std::byte* arrivals, const Launch& at) {
  CacheView packed = packed_cache(c);
  const PackPlan p = plan_pack(packed, most_keys(s, keys, max_positions), tokens);
  packed.k = scratch;
  packed.v = scratch + p.k_bytes;
  auto* const of_step = reinterpret_cast<std::int32_t*>(scratch + p.k_bytes + p.v_bytes);
  const auto side = [](const std::byte* from, std::byte* to, DType type, int dim) {
    return PackedSide{reinterpret_cast<const unsigned char*>(from), reinterpret_cast<unsigned char*>(to),
                      cache_row_bytes(type, dim)};
  };
  CompressedPackArgs a{};
  a.k = side(c.k, packed.k, c.k_type, c.head_dim_k);
  a.v = side(c.v, packed.v, packed.v_type, c.head_dim_v);
  a.compressed = reinterpret_cast<const unsigned char*>(keys.rows);
  a.k_type = c.k_type;
  a.v_type = c.v_type;
  a.widens = c.k_type != c.v_type;
  a.order = keys.order(s.window);
  a.positions = step.positions;
  a.sequence = step.sequence;
  a.block_table = step.block_table;
  a.chosen = keys.chosen;
  a.packed_positions = of_step;
  a.packed_sequence = of_step + p.at_once;
  a.packed_table = of_step + 2 * p.at_once;
  a.table_stride = step.table_stride;
  a.dim = c.head_dim_k;
  a.blocks = p.blocks;
  StepView of_packed = step;
  of_packed.positions = a.packed_positions;
  of_packed.sequence = a.packed_sequence;
  of_packed.block_table = a.packed_table;
  of_packed.table_stride = p.blocks;
  const std::int64_t row = std::int64_t{s.heads} * c.head_dim_k;
  for (int first = 0; first < tokens; first += p.at_once) {
    const int n = std::min(p.at_once, tokens - first);
    launch(pack_compressed_kernel, dim3(static_cast<unsigned>(p.positions() / kPackWarps), static_cast<unsigned>(n)),
           dim3(kPackThreads), 0, at, a);
    // Which reads its step before earlier kernels have ended: here one of them writes it.
    attend(q + first * row, y + first * row, packed, without_window(s), of_packed, n, p.positions(),
           scratch + p.bytes(), arrivals, {.stream = at.stream, .overlap = false});
    a.positions += p.at_once;
    a.sequence += p.at_once;
    if (a.chosen != nullptr) a.chosen += std::int64_t{p.at_once} * keys.top_k;
  }
}

}  // namespace

AttentionMemory compressed_attention_memory(const CacheView& c, const AttentionShape& s, const CompressedKeys& keys,
                                            int tokens, std::int64_t max_positions) {
  const int most = most_keys(s, keys, max_positions);
  AttentionMemory memory;
  const auto add = [&memory](const AttentionMemory& own) {
    memory = {std::max(memory.scratch, own.scratch), std::max(memory.arrivals, own.arrivals)};
  };
  if (attends_in_place(c)) {
    for (int n = 1; n <= std::min(tokens, 1025); ++n) add(attention_memory(c, s, n, most));  // more are split no more
    return memory;
  }
  const CacheView packed = packed_cache(c);
  const PackPlan p = plan_pack(packed, most, tokens);
  for (int n = 1; n <= p.at_once; ++n) add(attention_memory(packed, without_window(s), n, p.positions()));
  memory.scratch += p.bytes();
  return memory;
}

void attend_compressed(const float* q, float* y, const CacheView& c, const AttentionShape& s,
                       const CompressedKeys& keys, const StepView& step, int tokens, std::int64_t max_positions,
                       std::byte* scratch, std::byte* arrivals, const Launch& at) {
  check(c.kv_heads == 1 && c.head_dim_k == c.head_dim_v && c.head_dim_k <= kMostCompressedDim && s.soft_cap == 0 &&
            s.max_bias == 0,
        "other heads beside compressed keys were refused when the model was loaded");
  if (tokens <= 0) return;
  if (attends_in_place(c))
    attend_wide_compressed(q, y, c, s, keys, step, tokens, most_keys(s, keys, max_positions), scratch, at);
  else
    attend_packed(q, y, c, s, keys, step, tokens, max_positions, scratch, arrivals, at);
}

bool attends_prompt_compressed(const CacheView& c) {
  return c.head_dim_k == 512 && c.values_in_keys && has_wide_heads(c) && prompt_attention_refusal(c) == nullptr;
}

void attend_prompt_compressed(const float* q, float* y, const CacheView& c, const AttentionShape& s,
                              const CompressedKeys& keys, const StepView& step, int tokens, const Launch& at) {
  if (tokens > 0) attend_wide_prompt_compressed(q, y, c, s, keys, step, tokens, at);
}

}  // namespace llm::cuda
