// The kernels of one instruction set as a table of functions. The same sources are compiled once per set
// (cmake/kernels.cmake) and one table is chosen when a program is compiled. Kernel sources use no standard containers:
// an inline function of the library that was compiled for AVX-512 could be the copy that the linker keeps for
// everybody.
//
// Law 6 binds every kernel: the bits of an output element depend on its row of weights and its column of activations
// alone, never on how many rows or columns are computed together, on the split over threads or on the position inside a
// tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/key_window.h"
#include "graph/xielu_curve.h"

namespace llm::cpu {

/// Quantised or plain activations of some rows, as quantize_rows leaves them and linear reads them.
/// F32: f32 [rows][k], row_bytes = 4k. BF16: [rows][k] with row stride `row_bytes`; for AMX [rows / 16][k / 2][16][2],
/// a group of 16 rows in 16 row_bytes. Q8x32, Q8x256: int8 [rows][k] with row stride `row_bytes`, then f32 scales
/// [rows][k / block], then int16 sums of 16 consecutive q [rows][k / 16] (what a type with minimums or offsets
/// multiplies).
struct ActLayout {
  std::int64_t k = 0;
  std::int64_t block = 1;         ///< elements under one scale: 1 (F32, BF16), 32, 256
  std::size_t row_bytes = 0;      ///< of the values; but for F32 an odd multiple of 64
  std::size_t scales_offset = 0;  ///< from the start of the buffer, for the capacity it was made for
  std::size_t scales_row_bytes = 0;
  std::size_t sums_offset = 0;
  std::size_t sums_row_bytes = 0;
  std::size_t bytes = 0;  ///< of the whole buffer
};

/// At how many places weights for few columns are read in turns, each at ascending addresses: what brings more of them
/// from memory is up to the processor. The bits are the same.
enum class Streams : std::uint8_t {
  One,
  Two,
  TwoAhead,  ///< lines of quantised weights are asked for earlier, and brought to the second cache
};

/// Which of the ways to the same bits a processor is fastest in (docs/performance.md); these are Zen 5's.
struct Ways {
  Streams streams = Streams::One;
  /// Up to so many columns, panels of quantised weights stay in the first cache, and what comes next is brought line by
  /// line; with more, in bursts.
  std::int64_t few_columns = 12;
  /// Tiles of few columns are as narrow as those of many, so that all that is added up has registers: seven are two.
  bool narrow_tiles = true;
};

/// One product y[out_row(c)][n] = sum_k w[n][k] * x[act_row(c)][k] for columns c and a range of weight rows n.
struct LinearArgs {
  const std::byte* w = nullptr;  ///< row 0
  std::size_t w_row_bytes = 0;
  std::int64_t k = 0;
  const std::byte* act = nullptr;  ///< buffer in ActLayout form of the weight's activation format
  const ActLayout* layout = nullptr;
  std::int64_t n_cols = 0;
  const std::int32_t* act_rows = nullptr;  ///< [n_cols] activation row of each column; nullptr: c
  const std::int32_t* out_rows = nullptr;  ///< [n_cols] row of y of each column; nullptr: c
  float* y = nullptr;                      ///< [rows][ldy]
  std::int64_t ldy = 0;                    ///< floats between rows of y
  Ways ways;
};
/// Computes weight rows [row_begin, row_end). `scratch` has kScratchBytes, 64-byte aligned, private to the calling
/// thread.
using LinearFn = void (*)(const LinearArgs&, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch);
inline constexpr std::size_t kScratchBytes = std::size_t{1} << 20;
/// Weight rows of one task are a multiple of this (the last task aside): the height of a tile.
inline constexpr std::int64_t kRowTile = 32;

/// Quantises rows [row_begin, row_end) of x [rows][ldx] into the buffer `act`; bit-exact with tensor/activation.h.
using QuantizeRowsFn = void (*)(const float* x, std::int64_t ldx, std::byte* act, const ActLayout&,
                                std::int64_t row_begin, std::int64_t row_end);

/// y = x * w / sqrt(mean(x^2) + eps), one row of n; w may be null. The sum of squares is taken in 16 interleaved f32
/// partial sums over k, added pairwise at the end, on every instruction set.
using RmsNormFn = void (*)(const float* x, const float* w, float* y, std::int64_t n, float eps);
/// sum = a + b; y = norm(sum)
using AddRmsNormFn = void (*)(const float* a, const float* b, const float* w, float* sum, float* y, std::int64_t n,
                              float eps);
/// y = (x - mean) * w / sqrt(variance + eps) + bias, one row of n; bias may be null. Sums are taken as RmsNormFn takes
/// its own.
using LayerNormFn = void (*)(const float* x, const float* w, const float* bias, float* y, std::int64_t n, float eps);
/// gelu(x); max(x, 0)^2; e^x; 1 / (1 + e^-x); log(1 + e^x)
using UnaryFn = void (*)(const float* x, float* y, std::int64_t n);
using BinaryFn = void (*)(const float* a, const float* b, float* y, std::int64_t n);  ///< add; silu(a) * b; gelu(a) * b
using LimitedFn = void (*)(const float* a, const float* b, float* y, std::int64_t n, float gate_limit, float limit);
/// x * number; number * tanh(x / number); min(max(x, -number), number)
using ScaleFn = void (*)(const float* x, float* y, std::int64_t n, float number);
using XieluFn = void (*)(const float* x, float* y, std::int64_t n, const XieluCurve& curve);
/// y += factor * x with one fused multiply-add per element
using AxpyFn = void (*)(float factor, const float* x, float* y, std::int64_t n);
/// Rotates the first n_rot elements of each of `heads` heads of one token; `table` has n_rot values: cos, sin of each
/// pair.
using RopeFn = void (*)(const float* x, float* y, const float* table, std::int64_t heads, std::int64_t head_dim,
                        std::int64_t n_rot);
/// Stores n f32 as cache elements (F16, BF16, F8_E4M3: round to nearest even; F32).
using StoreRowFn = void (*)(const float* x, std::byte* dst, std::int64_t n);

/// Formats of cache rows that the kernels know.
enum class CacheElement : std::uint8_t { F32, F16, BF16, F8_E4M3, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL };
inline constexpr int kCacheElements = 10;
inline constexpr int kFloatCacheElements = 4;  ///< the first ones

/// Keys and values of one layer: KV head h of block b begins at (b * kv_heads + h) * block_bytes. In there a value is
/// at [position][d], a key at [d][position] (quantised ones: cache_planes.h).
struct AttentionArgs {
  const float* q = nullptr;  ///< [tokens][heads * head_dim_k], already rotated
  float* y = nullptr;        ///< [tokens][heads * head_dim_v]
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  CacheElement k_element = CacheElement::F16, v_element = CacheElement::F16;
  std::size_t k_block_bytes = 0, v_block_bytes = 0;
  std::int32_t heads = 0, kv_heads = 0, head_dim_k = 0, head_dim_v = 0;
  std::int32_t key_stride =
      1;  ///< of an index: of so many positions the last one has a key; a block's keys are side by side
  /// Query heads of a call: all that share a KV head, or some of them, the first in q, y, sinks and slopes.
  std::int32_t group = 0;
  float scale = 0;
  float soft_cap = 0;  ///< 0: none
  KeyWindow window = {};
  const float* sinks = nullptr;             ///< [heads]; nullptr: none
  const float* slopes = nullptr;            ///< [heads], of ALiBi; nullptr: none
  const std::int32_t* positions = nullptr;  ///< [tokens]
  const std::int32_t* blocks = nullptr;     ///< physical block of each logical block of the sequence
};
/// Keys are taken in chunks of this many absolute positions, each with its own maximum and sum, merged in order.
inline constexpr std::int32_t kKeyChunk = 256;
/// One KV head, query tokens [token_begin, token_end) of one sequence, a group of the query heads that share it.
/// Per (query, chunk): scores in f32, maximum, exp, sum and weighted values; then chunks are merged in ascending order.
/// The bits of a query's result do not depend on which queries share the call. At most kQueryTile (token, head) pairs a
/// call.
using AttentionFn = void (*)(const AttentionArgs&, std::int32_t kv_head, std::int32_t token_begin,
                             std::int32_t token_end, std::byte* scratch);
/// For one token over a long cache the chunks are spread over threads: the partial result of one chunk for the query
/// heads of a group, as `group` times {maximum, sum, weighted values [head_dim_v]} floats.
using AttentionChunkFn = void (*)(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, std::int32_t chunk,
                                  float* partial, std::byte* scratch);
/// Merges the partials [n_chunks] of a group (first chunk given) into y, with the operations that AttentionFn uses.
using AttentionMergeFn = void (*)(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, std::int32_t n_chunks,
                                  const float* partials);
/// One chunk of keys for one token and a group: AttentionFn in steps, for keys that are brought chunk by chunk.
/// `states` are `group` times {maximum, sum}, at first {-infinity, 0}; y holds what the chunks so far add up to.
using AttentionAddFn = void (*)(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, std::int32_t chunk,
                                float* states, std::byte* scratch);
/// The end of that, behind the last chunk.
using AttentionFinishFn = void (*)(const AttentionArgs&, std::int32_t kv_head, std::int32_t token, const float* states);
/// What the keys of one chunk are worth to one token, up to its own position: scores [kKeyChunk], those of a block's
/// keys from its first position on, each the fused sum over the heads, ascending, of weights[head] * max(q . key, 0),
/// with q . key as AttentionFn has it. Of one KV head; the arguments that are about values, scale and windows are not
/// used.
using IndexScoresFn = void (*)(const AttentionArgs&, const float* weights, std::int32_t token, std::int32_t chunk,
                               float* scores, std::byte* scratch);
inline constexpr std::int32_t kQueryTile = 64;
/// Positions of one block of the cache.
inline constexpr std::int32_t kKeyBlock = 64;
/// Head dimensions that fit the scratch of the attention kernels.
inline constexpr std::int32_t kMaxHeadDim = 1024;

/// Tokens of one sequence through a causal convolution and perhaps silu, and the rows of x before them; from ==
/// nullptr: zeros.
struct ShortConvArgs {
  const float* x = nullptr;     ///< [tokens][channels]
  const float* w = nullptr;     ///< [channels][width]
  const float* bias = nullptr;  ///< [channels], or null
  const float* from = nullptr;  ///< [kept()][channels], the oldest first
  float* to = nullptr;          ///< may be `from`
  float* y = nullptr;           ///< [tokens][channels]
  std::int64_t channels = 0, width = 0, dilation = 1, tokens = 0;
  bool silu = true;  ///< of the sum
  std::int64_t kept() const { return (width - 1) * dilation; }
};
/// Channels [begin, end): products from the oldest row to the newest, the first one rounded, the others fused, then the
/// bias is added.
using ShortConvFn = void (*)(const ShortConvArgs&, std::int64_t begin, std::int64_t end);
inline constexpr std::int64_t kMaxConvWidth = 16;  ///< of kept() + 1

/// Tokens of one sequence that become one row of `stride` each (Compress of graph/op.h); from == nullptr: zeros.
struct CompressArgs {
  const float* x = nullptr;                 ///< [tokens][parts * n]
  const float* scores = nullptr;            ///< as x
  const float* places = nullptr;            ///< [stride][parts * n]
  const std::int32_t* positions = nullptr;  ///< [tokens]
  const float* from = nullptr;              ///< [parts][3][n]
  float* to = nullptr;                      ///< may be `from`
  float* y = nullptr;                       ///< [tokens][n]
  std::int64_t n = 0, parts = 1, stride = 1, tokens = 0;
};
/// Elements [begin, end). For each token and part: s = score + place, m = max(greatest, s), both sums by exp(greatest -
/// m), then fma of the weight exp(s - m) to them; of a part without weights m is s and the sums begin with 0.
using CompressFn = void (*)(const CompressArgs&, std::int64_t begin, std::int64_t end);

/// Tokens of one value head of one sequence through the gated delta rule; from == nullptr: zeros.
struct GatedDeltaArgs {
  const float* q = nullptr;  ///< [tokens][ld_key], divided by their lengths, q by sqrt(dk) as well
  const float* k = nullptr;
  const float* v = nullptr;       ///< [tokens][ld_v]
  const float* gates = nullptr;   ///< [tokens][ld_gates]: the decay, the rate
  const float* decays = nullptr;  ///< [tokens][ld_gates]: of each element of k, instead of the one; or null
  float* y = nullptr;             ///< [tokens][ld_y]
  const float* from = nullptr;    ///< [dk][dv]
  float* to = nullptr;            ///< may be `from`
  std::int64_t ld_key = 0, ld_v = 0, ld_gates = 0, ld_y = 0;
  std::int64_t dk = 0, dv = 0, tokens = 0;
};
/// Columns [begin, end) of the values, by tiles of kDeltaColumns. For each token: r = S^T k in four sums
/// over every fourth element of k, added in pairs; d = rate * (v - decay * r); S = fma(k, d, S * decay); S^T q
/// likewise. With decays of each element, r is S^T (k * decay) instead and d = rate * (v - r).
using GatedDeltaFn = void (*)(const GatedDeltaArgs&, std::int64_t begin, std::int64_t end, std::byte* scratch);
inline constexpr std::int64_t kDeltaColumns = 32;
/// Longer keys would not fit the scratch.
inline constexpr std::int64_t kMaxDeltaKey = 1024;

/// Tokens of one head of one sequence through a selective state space; from == nullptr: zeros.
struct SelectiveScanArgs {
  const float *x = nullptr, *b = nullptr, *c = nullptr;  ///< [tokens][ld_in]
  const float* gates = nullptr;  ///< [tokens][ld_gates]: the decay, the step; with `a` the steps of the elements of x
  const float* a = nullptr;      ///< [p][n]: exp(a * step) are the decays; or null
  const float* skips = nullptr;  ///< [p] with `a`, else one
  float* y = nullptr;            ///< [tokens][ld_y]
  const float* from = nullptr;   ///< [n][p]
  float* to = nullptr;           ///< may be `from`
  std::int64_t ld_in = 0, ld_gates = 0, ld_y = 0;
  std::int64_t n = 0, p = 0, tokens = 0;
};
/// Columns [begin, end) of x, by tiles of kDeltaColumns, with states of up to kMaxDeltaKey rows, half of
/// that with `a`. For each token: S = fma(b, step * x, S * decay), then S^T c in four sums over every fourth row, added
/// in pairs, then fma(skip, x, ...).
using SelectiveScanFn = void (*)(const SelectiveScanArgs&, std::int64_t begin, std::int64_t end, std::byte* scratch);

/// Tokens of one head of one sequence through a Wkv6 or a Wkv7 (graph/op.h); from == nullptr: zeros.
struct WkvArgs {
  const float* r = nullptr;        ///< [tokens][ld_r]
  const float* k = nullptr;        ///< [tokens][ld_k]
  const float* v = nullptr;        ///< [tokens][ld_v]
  const float* decays = nullptr;   ///< [tokens][ld_made], of each row of the state
  const float* first = nullptr;    ///< [tokens][ld_made]: k times what a token counts more for itself; or null
  const float* removed = nullptr;  ///< [tokens][ld_made]: what the state is read by, and what that is
  const float* added = nullptr;    ///< taken away by; both or null
  float* y = nullptr;              ///< [tokens][ld_y]
  const float* from = nullptr;     ///< [n][n]
  float* to = nullptr;             ///< may be `from`
  std::int64_t ld_r = 0, ld_k = 0, ld_v = 0, ld_made = 0, ld_y = 0;
  std::int64_t n = 0, tokens = 0;
  float scale = 1;  ///< of y
};
/// Columns [begin, end) of the values, by tiles of kDeltaColumns, with states of up to kMaxDeltaKey rows. For each
/// token: with `removed` seen = -(S^T removed); S' = S * decay, then fma(added, seen, S'), then fma(k, v, S'); y the
/// sum over the rows of r * S', or, with `first`, of r * fma(first, v, S), times scale. Sums as in GatedDeltaFn.
using WkvFn = void (*)(const WkvArgs&, std::int64_t begin, std::int64_t end, std::byte* scratch);

/// One row per storage type of tensor/dtypes.def (nullptr where the type cannot be a matrix).
inline constexpr int kMaxDTypes = 64;

struct Kernels {
  const char* isa;
  LinearFn linear[kMaxDTypes];      ///< by DType
  QuantizeRowsFn quantize_rows[4];  ///< by ActFormat; F32 copies
  RmsNormFn rms_norm;
  AddRmsNormFn add_rms_norm;
  LayerNormFn layer_norm;
  UnaryFn gelu, squared_relu, exp, sigmoid, softplus;
  BinaryFn add, mul, silu_mul, gelu_mul, clamped_silu_mul, relu_mul, sigmoid_mul, softplus_mul;
  LimitedFn limited_silu_mul;
  ScaleFn scale, soft_cap, clamp;
  XieluFn xielu;
  AxpyFn axpy;
  RopeFn rope_interleaved, rope_halves;
  StoreRowFn store_row[kFloatCacheElements];
  AttentionFn attention;
  AttentionChunkFn attention_chunk;
  AttentionMergeFn attention_merge;
  AttentionAddFn attention_add;
  AttentionFinishFn attention_finish;
  IndexScoresFn index_scores;
  ShortConvFn short_conv;
  CompressFn compress;
  GatedDeltaFn gated_delta;
  SelectiveScanFn selective_scan;
  WkvFn wkv;
};

/// Layout of `rows` activation rows of length k; `act_format` is static_cast<int>(ActFormat).
ActLayout act_layout(int act_format, std::int64_t k, std::int64_t rows);

// Each is defined by the kernel sources compiled for that instruction set.
const Kernels& kernels_portable();
const Kernels& kernels_avx2();         ///< AVX2, FMA, F16C
const Kernels& kernels_avx2vnni();     ///< and AVX-VNNI
const Kernels& kernels_avx512();       ///< AVX-512 F, BW, DQ, VL, VNNI
const Kernels& kernels_avx512bf16();   ///< and BF16: as avx512 but for the products of BF16 weights
const Kernels& kernels_amx();          ///< and AMX's tiles: as avx512bf16 but for quantised weights and those of BF16
const Kernels& kernels_neon();         ///< Armv8-A's Advanced SIMD
const Kernels& kernels_neondotprod();  ///< and SDOT: as neon but for what multiplies bytes

}  // namespace llm::cpu
