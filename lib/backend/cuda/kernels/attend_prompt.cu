// Attention of prompts on tensor cores: online softmax over tiles of 64 keys (the scheme of FlashAttention-2,
// arXiv:2307.08691), products by mma.m16n8k16 with f32 sums.
//
// A CTA of 128 rows (attend_prompt.cuh): 4 warps of 32 rows for heads up to 128, 8 warps of 16 rows for wider ones,
// whose sums would not fit in registers otherwise. Where that gives too few CTAs for all multiprocessors, or a CTA has
// not the shared memory for it (99 KB on compute capability 8.6, 8.9 and 12.0), they have 64 rows, 4 warps of 16: a
// warp then has half as much to do, and each row the same bits. Keys and values come by asynchronous copies, the next
// tile's while this one is multiplied. Quantised rows and those of E4M3 are copied as they are and decoded to F16 in
// shared memory.
//
// Per tile, head dimension 128: 4 warps x 256 products of 4,096 operations, 2,048 cycles of tensor cores at the rate of
// mma.sync (about 62 % of wgmma's); 64 KB + 64 KB of fragments read from shared memory, 1,024 cycles; 8,192 powers of
// 2, 512 cycles. Two CTAs to a multiprocessor overlap these: 60-70 % of the 540 TFLOP/s that mma.sync reaches.
//
// A value that is not a number or infinite shows in every row of a CTA that reads its tile, also in the tokens before
// its own that the CTA has, up to 128 / group - 1: a weight of 0 times it is not a number either. The same holds for
// keys that a mask hides. Tiles of which no token of the CTA sees a key are passed over: they would change no bit.
#include <algorithm>
#include <cmath>

#include "backend/cuda/kernels/async_copy.cuh"
#include "backend/cuda/kernels/attend_prompt.cuh"
#include "backend/cuda/kernels/attend_wide.h"
#include "backend/cuda/kernels/attention_asm.cuh"
#include "backend/cuda/kernels/key_mask.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kKeys = kCacheBlock;

struct PromptArgs {
  const float* q;
  float* y;
  const unsigned char *k, *v;
  const std::int32_t* block_table;
  DType k_type, v_type;
  bool decode_k, decode_v;
  int table_stride;
  int heads, kv_heads, group;
  int k_row_bytes, v_row_bytes;
  KeyWindow window = {};
  KeyMask mask = {};
  const float* sinks;  ///< [heads]; null: none
  float scale_log2;
  float cap_factor;  ///< where scores have a cap: products times this are what tanh is taken of
  bool round_query;
  PromptSpans spans;
};

/// Keys or values on their way into shared memory.
struct Side {
  const unsigned char* cache;
  unsigned char* shared;
  DType type;
  bool decoded;
  int row_bytes;
};

/// What comes between the products: scores may have a cap, or there is a mask, perhaps with a cap. Those with neither
/// have kernels of their own, since they are short of registers.
enum class Between { Nothing, Cap, Mask };

template <bool kBFloat16, Between kBetween, int kDim, int kRows>
class Prompt {
  static constexpr bool kMasked = kBetween == Between::Mask;
  static constexpr int kRowTiles = kDim <= 128 && kRows == kPromptRows ? 2 : 1;  ///< of 16 rows, of a warp
  static constexpr int kWarps = kRows / (16 * kRowTiles);
  static constexpr int kPitch = kDim * 2 + 16;
  static constexpr int kTileBytes = kKeys * kPitch;
  static constexpr int kKeyTiles = kKeys / 8;  ///< of 8 keys, of scores
  static constexpr int kDimTiles = kDim / 8;   ///< of 8 elements, of results
  static constexpr int kVectors = kDim / 8;    ///< of 8 elements, of a row
  static_assert(kDim % 16 == 0);

 public:
  static constexpr int kThreads = 32 * kWarps;

  __device__ __forceinline__ Prompt(const PromptArgs& args, unsigned char* shared)
      : a(args), thread(static_cast<int>(threadIdx.x)), lane(thread % 32), warp(thread / 32) {
    kv_head = static_cast<int>(blockIdx.x) % a.kv_heads;
    const int tile =
        a.spans.first_tile[a.spans.n] - 1 - static_cast<int>(blockIdx.x) / a.kv_heads;  // the longest first
    int s = 0;
    while (a.spans.first_tile[s + 1] <= tile) ++s;
    span = a.spans.span[s];
    first_row = (tile - a.spans.first_tile[s]) * kRows;
    rows = min(kRows, span.n_tokens * a.group - first_row);
    table = a.block_table + static_cast<std::int64_t>(span.sequence) * a.table_stride;
    first_position = span.first_position + first_row / a.group;
    last_position = span.first_position + (first_row + rows - 1) / a.group;
    queries = shared;
  }

  __device__ __forceinline__ void run() {
    const int end = last_position / kKeys + 1;
    [[maybe_unused]] SeenTiles seen(a.mask, kv_head, token_of(0), token_of(rows - 1) - token_of(0) + 1, end);
    const auto from = [&](int tile) {
      if constexpr (kMasked)
        return seen.from(tile);
      else
        return tile;
    };
    const int begin = from(a.window.first_key(first_position) / kKeys);
    if (!kMasked || begin < end) start_copy(keys(), begin, 0);
    commit_copies();
    if (!kMasked || begin < end) start_copy(values(), begin, 0);
    commit_copies();
    load_queries();
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < kDimTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[m][i][j] = 0;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        maxima[m][half] = -INFINITY;
        totals[m][half] = 0;
      }
    }
    [[maybe_unused]] int taken = 0;
    for (int tile = begin, next = 0; tile < end; tile = next) {
      next = from(tile + 1);
      const int turn = (kMasked ? taken++ : tile - begin) % 2;
      const bool more = next < end;
      float s[kRowTiles][kKeyTiles][4];
      [[maybe_unused]] uint2 bits[kRowTiles][2];
      if constexpr (kMasked) load_mask(tile, bits);
      const unsigned char* const k = arrived(keys(), tile, turn);
      if (more) start_copy(keys(), next, 1 - turn);
      commit_copies();
      score(k, s);
      if constexpr (kBetween == Between::Cap) cap(s);
      if constexpr (kMasked) {
        if (a.cap_factor != 0) cap(s);
        apply_mask(bits, s);
      } else if (tile * kKeys + kKeys - 1 > first_position || tile * kKeys < a.window.first_key(last_position)) {
        mask(tile * kKeys, s);
      }
      soften(s);
      const unsigned char* const v = arrived(values(), tile, turn);
      if (more) start_copy(values(), next, 1 - turn);
      commit_copies();
      add(v, s);
    }
    write();
  }

 private:
  // --- keys and values ---

  __device__ __forceinline__ Side keys() const {
    return {a.k, queries + kRows * kPitch, a.k_type, a.decode_k, a.k_row_bytes};
  }
  __device__ __forceinline__ Side values() const {
    return {a.v, keys().shared + prompt_side_bytes(a.decode_k, kDim, a.k_row_bytes), a.v_type, a.decode_v,
            a.v_row_bytes};
  }

  /// Starts the copy of a tile; `turn` says which of the two places it goes to. Rows of values that no token of this
  /// CTA sees become zero: they may hold anything, and a weight of 0 does not cover what is not a number.
  __device__ __forceinline__ void start_copy(const Side& side, int tile, int turn) {
    const unsigned char* const from = side.cache + cache_rows_offset(table[tile], a.kv_heads, kv_head, side.row_bytes);
    const int there = min(kKeys, last_position + 1 - tile * kKeys);
    if (side.decoded) {
      unsigned char* const to = side.shared + kTileBytes + turn * prompt_raw_bytes(side.row_bytes);
#pragma unroll 1
      for (int i = thread * 16; i < there * side.row_bytes; i += kThreads * 16) copy16_async(to + i, from + i);
    } else {
      unsigned char* const to = side.shared + turn * kTileBytes;
      if constexpr (kThreads % kVectors == 0) {  // the same part of rows that lie a fixed distance apart
        constexpr int kStep = kThreads / kVectors;
        const int first = thread / kVectors;
        unsigned char* const at = to + first * kPitch + thread % kVectors * 16;
#pragma unroll
        for (int i = 0; i < kKeys / kStep; ++i) {
          copy16_or_zero_async(at + i * kStep * kPitch, from + thread * 16 + i * kThreads * 16,
                               first + i * kStep < there);
        }
      } else {
#pragma unroll 1
        for (int i = thread; i < kKeys * kVectors; i += kThreads) {
          const int row = i / kVectors;
          copy16_or_zero_async(to + row * kPitch + i % kVectors * 16, from + i * 16, row < there);
        }
      }
    }
  }

  /// The tile as F16 or BF16, for all threads. One group of copies is younger: that of the other side.
  __device__ __forceinline__ const unsigned char* arrived(const Side& side, int tile, int turn) {
    wait_for_copies<1>();
    __syncthreads();
    if (!side.decoded) return side.shared + turn * kTileBytes;
    const unsigned char* const raw = side.shared + kTileBytes + turn * prompt_raw_bytes(side.row_bytes);
    const int there = min(kKeys, last_position + 1 - tile * kKeys);
    // E4M3 needs no floats on the way. A loop of its own: in one, what it keeps in registers is the other types' as
    // well.
    if (!kBFloat16 && side.type == DType::F8_E4M3) {
      decode(side, there,
             [=](int row, int e0) { return f8_eight(*reinterpret_cast<const uint2*>(raw + row * kDim + e0)); });
    } else {
      __builtin_assume(side.type != DType::F8_E4M3);
      decode(side, there, [=, &side](int row, int e0) {
        float x[8];
        decode8<CacheSource::Any>(side.type, raw + row * side.row_bytes, e0, kDim, x);
        return packed(x);
      });
    }
    __syncthreads();
    return side.shared;
  }

  /// `eight(row, e0)` are elements e0 .. e0 + 7 of a row.
  template <class F>
  __device__ __forceinline__ void decode(const Side& side, int there, F&& eight) const {
#pragma unroll 1
    for (int i = thread; i < kKeys * kVectors; i += kThreads) {
      const int row = i / kVectors, vector = i % kVectors;
      *reinterpret_cast<uint4*>(side.shared + row * kPitch + vector * 16) =
          row < there ? eight(row, vector * 8) : uint4{};
    }
  }

  static __device__ __forceinline__ uint4 packed(const float (&x)[8]) {
    return make_uint4(pack<kBFloat16>(x[0], x[1]), pack<kBFloat16>(x[2], x[3]), pack<kBFloat16>(x[4], x[5]),
                      pack<kBFloat16>(x[6], x[7]));
  }

  // --- queries ---

  __device__ __forceinline__ int head(int row) const { return kv_head * a.group + (first_row + row) % a.group; }
  __device__ __forceinline__ int token_of(int row) const { return span.first_token + (first_row + row) / a.group; }
  __device__ __forceinline__ const float* query(int row) const {
    return a.q + (static_cast<std::int64_t>(token_of(row)) * a.heads + head(row)) * kDim;
  }
  __device__ __forceinline__ void load_queries() {
    if (a.round_query) {  // 32 elements per warp; kDim is a multiple of 32 where keys are quantised
      for (int i = warp; i < kRows * (kDim / 32); i += kWarps) {
        const int row = i / (kDim / 32), d = i % (kDim / 32) * 32 + lane;
        const float x = round_q8x32(row < rows ? __ldcg(query(row) + d) : 0.0f);
        reinterpret_cast<std::uint16_t*>(queries + row * kPitch)[d] = static_cast<std::uint16_t>(pack<kBFloat16>(x, 0));
      }
      return;
    }
    for (int i = thread; i < kRows * kVectors; i += kThreads) {
      const int row = i / kVectors, vector = i % kVectors;
      float x[8] = {};
      if (row < rows) {
        const float4* const from = reinterpret_cast<const float4*>(query(row) + vector * 8);
        const float4 low = __ldcg(from), high = __ldcg(from + 1);
        x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
        x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
      }
      *reinterpret_cast<uint4*>(queries + row * kPitch + vector * 16) = packed(x);
    }
  }

  // --- one tile ---

  /// s = queries times keys. Fragments of 16 x 16: lane l gives row l % 8 of matrix l / 8.
  __device__ __forceinline__ void score(const unsigned char* k, float (&s)[kRowTiles][kKeyTiles][4]) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[m][n][j] = 0;
      }
    }
    const int matrix = lane / 8, in_matrix = lane % 8;
    const std::uint32_t q_at =
        shared_address(queries) +
        static_cast<std::uint32_t>((warp * 16 * kRowTiles + matrix % 2 * 8 + in_matrix) * kPitch + matrix / 2 * 16);
    const std::uint32_t k_at =
        shared_address(k) + static_cast<std::uint32_t>((matrix / 2 * 8 + in_matrix) * kPitch + matrix % 2 * 16);
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      std::uint32_t q[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        load_matrices(q[m], q_at + static_cast<std::uint32_t>(m * 16 * kPitch + d * 32));
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        std::uint32_t b[4];
        load_matrices(b, k_at + static_cast<std::uint32_t>(n * 8 * kPitch + d * 32));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply_add<kBFloat16>(s[m][n], q[m], b[0], b[1]);
          multiply_add<kBFloat16>(s[m][n + 1], q[m], b[2], b[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void cap(float (&s)[kRowTiles][kKeyTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[m][n][j] = tanhf(s[m][n][j] * a.cap_factor);
      }
    }
  }

  /// Keys that a row does not see get minus infinity.
  __device__ __forceinline__ void mask(int first_key, float (&s)[kRowTiles][kKeyTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = span.first_position + (first_row + row_of(m, half)) / a.group;
        const int first_seen = a.window.first_key(position);
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int key = first_key + n * 8 + lane % 4 * 2 + j;
            if (key > position || key < first_seen) s[m][n][2 * half + j] = -INFINITY;
          }
        }
      }
    }
  }
  /// The tile's bits of the tokens of the lane's rows; rows that the CTA does not have take its last one's.
  __device__ __forceinline__ void load_mask(int tile, uint2 (&bits)[kRowTiles][2]) const {
    const uint2* const words = reinterpret_cast<const uint2*>(words_of(a.mask, kv_head)) + tile;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bits[m][half] =
            __ldcg(words + static_cast<std::int64_t>(token_of(min(row_of(m, half), rows - 1))) * a.mask.token_pitch);
    }
  }
  /// Keys without a bit get minus infinity.
  __device__ __forceinline__ void apply_mask(const uint2 (&bits)[kRowTiles][2],
                                             float (&s)[kRowTiles][kKeyTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = lane % 4 * 2;
        const std::uint32_t words[2] = {bits[m][half].x >> first, bits[m][half].y >> first};
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if ((words[n / 4] >> (n % 4 * 8 + j) & 1) == 0) s[m][n][2 * half + j] = -INFINITY;
          }
        }
      }
    }
  }
  /// Row of the CTA that elements 2 half and 2 half + 1 of a lane's fragments of row tile m belong to.
  __device__ __forceinline__ int row_of(int m, int half) const {
    return (warp * kRowTiles + m) * 16 + half * 8 + lane / 4;
  }

  /// Scores become weights; what was summed under a smaller maximum shrinks.
  __device__ __forceinline__ void soften(float (&s)[kRowTiles][kKeyTiles][4]) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float max = maxima[m][half];
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
          max = fmaxf(max, fmaxf(s[m][n][2 * half] * a.scale_log2, s[m][n][2 * half + 1] * a.scale_log2));
        }
        max = fmaxf(max, __shfl_xor_sync(kAll, max, 1));
        max = fmaxf(max, __shfl_xor_sync(kAll, max, 2));
        const float base = max == -INFINITY ? 0.0f : max;  // a row that has seen nothing yet
        const float shrink = power_of_2(maxima[m][half] - base);
        maxima[m][half] = max;
        float total = 0;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& weight = s[m][n][2 * half + j];
            weight = power_of_2(fmaf(weight, a.scale_log2, -base));
            total += weight;
          }
        }
        totals[m][half] = fmaf(totals[m][half], shrink, total);  // of this lane's columns
#pragma unroll
        for (int i = 0; i < kDimTiles; ++i) {
          sums[m][i][2 * half] *= shrink;
          sums[m][i][2 * half + 1] *= shrink;
        }
      }
    }
  }

  /// sums += weights times values. Two neighbouring results of score() make a fragment of the left operand.
  __device__ __forceinline__ void add(const unsigned char* v, const float (&s)[kRowTiles][kKeyTiles][4]) {
    const int matrix = lane / 8, in_matrix = lane % 8;
    const std::uint32_t v_at =
        shared_address(v) + static_cast<std::uint32_t>((matrix % 2 * 8 + in_matrix) * kPitch + matrix / 2 * 16);
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      std::uint32_t p[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        p[m][0] = pack<kBFloat16>(s[m][2 * k][0], s[m][2 * k][1]);
        p[m][1] = pack<kBFloat16>(s[m][2 * k][2], s[m][2 * k][3]);
        p[m][2] = pack<kBFloat16>(s[m][2 * k + 1][0], s[m][2 * k + 1][1]);
        p[m][3] = pack<kBFloat16>(s[m][2 * k + 1][2], s[m][2 * k + 1][3]);
      }
#pragma unroll
      for (int i = 0; i < kDimTiles; i += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(b, v_at + static_cast<std::uint32_t>(k * 16 * kPitch + i * 16));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply_add<kBFloat16>(sums[m][i], p[m], b[0], b[1]);
          multiply_add<kBFloat16>(sums[m][i + 1], p[m], b[2], b[3]);
        }
      }
    }
  }

  /// The row's total with one more key, whose value is 0.
  __device__ __forceinline__ float with_sink(int m, int half, float sink, float total) {
    const float score = sink * 1.4426950408889634f, max = fmaxf(maxima[m][half], score);
    const float share = exp2f(maxima[m][half] - max);
#pragma unroll
    for (int i = 0; i < kDimTiles; ++i) {
      sums[m][i][2 * half] *= share;
      sums[m][i][2 * half + 1] *= share;
    }
    return fmaf(total, share, exp2f(score - max));
  }

  __device__ __forceinline__ void write() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = totals[m][half];
        total += __shfl_xor_sync(kAll, total, 1);
        total += __shfl_xor_sync(kAll, total, 2);
        const int row = row_of(m, half);
        if (row >= rows) continue;
        if (a.sinks != nullptr) total = with_sink(m, half, a.sinks[head(row)], total);
        float* const to = a.y + (query(row) - a.q) + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < kDimTiles; ++i) {
          *reinterpret_cast<float2*>(to + i * 8) =
              make_float2(sums[m][i][2 * half] / total, sums[m][i][2 * half + 1] / total);
        }
      }
    }
  }

  const PromptArgs& a;
  const int thread, lane, warp;
  int kv_head, first_row, rows, first_position, last_position;
  PromptSpan span;
  const std::int32_t* table;
  unsigned char* queries;  ///< [kRows][kPitch]
  float sums[kRowTiles][kDimTiles][4];
  float maxima[kRowTiles][2], totals[kRowTiles][2];
};

template <bool kBFloat16, Between kBetween, int kDim, int kRows>
__global__ void __launch_bounds__(Prompt<kBFloat16, kBetween, kDim, kRows>::kThreads, kDim <= 128 ? 2 : 1)
    prompt_kernel(const __grid_constant__ PromptArgs a) {
  let_next_start();
  unsigned char* const shared = dynamic_shared();
  wait_for_previous();
  Prompt<kBFloat16, kBetween, kDim, kRows>(a, shared).run();
}

using PromptKernel = void (*)(PromptArgs);
struct Choice {
  PromptKernel kernel = nullptr;
  int threads = 0;
};
template <bool kBFloat16, Between kBetween, int kDim>
Choice choice(int rows) {
  if (rows == kPromptRows)
    return {prompt_kernel<kBFloat16, kBetween, kDim, kPromptRows>,
            Prompt<kBFloat16, kBetween, kDim, kPromptRows>::kThreads};
  return {prompt_kernel<kBFloat16, kBetween, kDim, kFewPromptRows>,
          Prompt<kBFloat16, kBetween, kDim, kFewPromptRows>::kThreads};
}
/// For CTAs of kPromptRows or kFewPromptRows.
template <bool kBFloat16, Between kBetween>
Choice choose(int head_dim, int rows) {
  switch (head_dim) {
    case 64:
      return choice<kBFloat16, kBetween, 64>(rows);
    case 80:
      return choice<kBFloat16, kBetween, 80>(rows);
    case 96:
      return choice<kBFloat16, kBetween, 96>(rows);
    case 112:
      return choice<kBFloat16, kBetween, 112>(rows);
    case 128:
      return choice<kBFloat16, kBetween, 128>(rows);
    case 192:
      return choice<kBFloat16, kBetween, 192>(rows);
    case 256:
      return choice<kBFloat16, kBetween, 256>(rows);
    default:
      return {};
  }
}
/// Widths of heads of models whose keys are selected: each is a minute of the compiler's.
template <bool kBFloat16>
Choice choose_masked(int head_dim, int rows) {
  switch (head_dim) {
    case 64:
      return choice<kBFloat16, Between::Mask, 64>(rows);
    case 128:
      return choice<kBFloat16, Between::Mask, 128>(rows);
    case 256:
      return choice<kBFloat16, Between::Mask, 256>(rows);
    default:
      return {};
  }
}
template <bool kBFloat16>
Choice choose(int head_dim, int rows, const AttentionShape& s) {
  if (s.mask.words != nullptr) return choose_masked<kBFloat16>(head_dim, rows);
  return s.soft_cap > 0 ? choose<kBFloat16, Between::Cap>(head_dim, rows)
                        : choose<kBFloat16, Between::Nothing>(head_dim, rows);
}

/// Of a CTA.
int rows_for(const CacheView& c, const PromptSpan* spans, int n_spans, int group) {
  int tiles = 0;
  for (int i = 0; i < n_spans; ++i) tiles += span_tiles(spans[i], group, kPromptRows);
  return prompt_rows(c, tiles * c.kv_heads, device_limits());
}

}  // namespace

const char* prompt_attention_refusal(const CacheView& c) {
  const bool wide = has_wide_heads(c);
  if (!wide && c.head_dim_k != c.head_dim_v) return "heads of keys and of values differ in size";
  if (!wide && choose<false, Between::Nothing>(c.head_dim_k, kPromptRows).kernel == nullptr)
    return "heads are not of 64, 80, 96, 112, 128, 192, 256, 512 or of 576 with values of 512";
  if (const char* refusal = cache_refusal(c.k_type, c.v_type, c.head_dim_k, c.head_dim_v)) return refusal;
  const auto exact = [](DType t) { return t == DType::F32; };
  if (exact(c.k_type) || exact(c.v_type)) return "F32 keys and values are not rounded for tensor cores";
  if (!all_bfloat16(c) && (c.k_type == DType::BF16 || c.v_type == DType::BF16)) {
    return "only one of keys and values is BF16";
  }
  const int block_bytes = device_limits().block_bytes;
  if (wide ? !has_room_for_wide_prompts(c) : prompt_shared_bytes(c, kFewPromptRows) > block_bytes)
    return "the GPU has too little shared memory";
  return nullptr;
}

bool prompt_attention_masks(const CacheView& c) {
  if (prompt_attention_refusal(c) != nullptr) return false;
  return has_wide_heads(c) ? masks_wide_prompts(c) : choose_masked<false>(c.head_dim_k, kPromptRows).kernel != nullptr;
}

void attend_prompt(const float* q, float* y, const CacheView& c, const AttentionShape& s, const StepView& step,
                   const PromptSpan* spans, int n_spans, const Launch& at) {
  check(s.mask.words == nullptr || (prompt_attention_masks(c) && s.window.length == 0), "a mask in place of a window");
  if (has_wide_heads(c)) return attend_wide_prompt(q, y, c, s, step, spans, n_spans, at);
  PromptArgs a{};
  a.q = q;
  a.y = y;
  a.k = reinterpret_cast<const unsigned char*>(c.k);
  a.v = reinterpret_cast<const unsigned char*>(c.v);
  a.block_table = step.block_table;
  a.k_type = c.k_type;
  a.v_type = c.v_type;
  a.decode_k = prompt_decodes(c, c.k_type);
  a.decode_v = prompt_decodes(c, c.v_type);
  a.table_stride = step.table_stride;
  a.heads = s.heads;
  a.kv_heads = c.kv_heads;
  a.group = s.heads / c.kv_heads;
  a.k_row_bytes = cache_row_bytes(c.k_type, c.head_dim_k);
  a.v_row_bytes = cache_row_bytes(c.v_type, c.head_dim_v);
  a.window = s.window;
  a.mask = s.mask;
  a.sinks = s.sinks;
  a.scale_log2 = score_factor(s);
  a.cap_factor = cap_factor(s);
  a.round_query = s.query == ActFormat::Q8x32 && cache_block_bytes(c.k_type) != 0;

  const int rows = rows_for(c, spans, n_spans, a.group);
  const Choice chosen = all_bfloat16(c) ? choose<true>(c.head_dim_k, rows, s) : choose<false>(c.head_dim_k, rows, s);
  const auto shared = static_cast<std::size_t>(prompt_shared_bytes(c, rows));
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(chosen.kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
             "giving attention its shared memory");
  for (int first = 0; first < n_spans; first += kPromptSpans) {
    take_spans(spans + first, std::min(n_spans - first, kPromptSpans), a.group, rows, a.spans);
    const int tiles = a.spans.first_tile[a.spans.n];
    if (tiles == 0) continue;
    launch(chosen.kernel, dim3(static_cast<unsigned>(tiles * c.kv_heads)), dim3(static_cast<unsigned>(chosen.threads)),
           shared, at, a);
  }
}

}  // namespace llm::cuda
