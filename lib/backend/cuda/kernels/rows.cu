// Norms, gates, forms, sums and copies of rows.
//
// All of it is bound by memory for many rows and by latency for one. Bytes per element: norms read 4 (the fused sum 8)
// and write what forms they are asked for (1 of codes, 2 of F16, 4 of f32, and 4 of the sum); gates read 8. Many rows
// are expected at 80-90 % of the read limit, one row of 4096 at 2 us, of which 1 us is the launch.
//
// A warp owns blocks of 256 elements, 8 per lane in registers between the reduction and the writing. A row's warps are
// a block of threads (rows of up to 512 elements: a warp, several rows to a block of threads); sums are taken lane by
// lane, over the lanes, over the warps, in an order that the row's length alone decides.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <initializer_list>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/rows.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kMaxWarps = kMaxParts;

// Where the values of a row come from, which is kOperands loads for each. first() is called once per block, again() in
// later passes of the same thread.
struct Plain {
  static constexpr int kOperands = 1;
  const float* x;
  __device__ BlockPart first(std::int64_t row, int block, int n, bool wide) const {
    return load_part(x + row * n, block, n, wide);
  }
  __device__ BlockPart again(std::int64_t row, int block, int n, bool wide) const { return first(row, block, n, wide); }
};

struct Sum {
  static constexpr int kOperands = 2;
  const float *a, *b;
  float* sum;
  __device__ BlockPart first(std::int64_t row, int block, int n, bool wide) const {
    const BlockPart u = load_part(a + row * n, block, n, wide), v = load_part(b + row * n, block, n, wide);
    const BlockPart s = map(u, v, [](float p, float q) { return p + q; });
    store_part(sum + row * n, block, n, wide, s);
    return s;
  }
  __device__ BlockPart again(std::int64_t row, int block, int n, bool wide) const {
    return load_part(sum + row * n, block, n, wide);
  }
};

/// The residual and the weighted sum of experts, as combine() and add() make them.
struct Experts {
  static constexpr int kAhead = 4;  ///< slots whose loads are under way at a time
  static constexpr int kOperands = kAhead + 1;
  const float *x, *weights;
  int top_k;
  const float* residual;
  float* sum;
  __device__ BlockPart first(std::int64_t row, int block, int n, bool wide) const {
    const BlockPart r = load_part(residual + row * n, block, n, wide);
    BlockPart v{make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
#pragma unroll kAhead
    for (int slot = 0; slot < top_k; ++slot) {
      const std::int64_t route = row * top_k + slot;
      const float weight = weights[route];
      v = map(v, load_part(x + route * n, block, n, wide), [=](float s, float f) { return fmaf(weight, f, s); });
    }
    const BlockPart s = map(r, v, [](float p, float q) { return p + q; });
    store_part(sum + row * n, block, n, wide, s);
    return s;
  }
  __device__ BlockPart again(std::int64_t row, int block, int n, bool wide) const {
    return load_part(sum + row * n, block, n, wide);
  }
};

template <Activation kActivation>
struct Gated {
  static constexpr int kOperands = 2;
  const float *gate, *up;
  __device__ BlockPart first(std::int64_t row, int block, int n, bool wide) const {
    const BlockPart g = load_part(gate + row * n, block, n, wide), u = load_part(up + row * n, block, n, wide);
    return map(g, u, [](float p, float q) { return gated<kActivation>(p, q); });
  }
  __device__ BlockPart again(std::int64_t row, int block, int n, bool wide) const { return first(row, block, n, wide); }
};

struct LimitedGate {
  static constexpr int kOperands = 2;
  const float *gate, *up;
  float gate_limit, limit;
  __device__ BlockPart first(std::int64_t row, int block, int n, bool wide) const {
    const BlockPart g = load_part(gate + row * n, block, n, wide), u = load_part(up + row * n, block, n, wide);
    const float gate_most = gate_limit, most = limit;
    return map(g, u, [=](float p, float q) { return limited_silu(p, q, gate_most, most); });
  }
  __device__ BlockPart again(std::int64_t row, int block, int n, bool wide) const { return first(row, block, n, wide); }
};

/// A row's gate is one.
template <Activation kActivation>
struct GatedByOne {
  static constexpr int kOperands = 1;
  const float *gate, *up;
  __device__ BlockPart first(std::int64_t row, int block, int n, bool wide) const {
    const float g = __ldcg(gate + row);
    const BlockPart u = load_part(up + row * n, block, n, wide);
    return map(u, u, [=](float p, float) { return gated<kActivation>(g, p); });
  }
  __device__ BlockPart again(std::int64_t row, int block, int n, bool wide) const { return first(row, block, n, wide); }
};

/// Reductions over the `warps` warps of a row; every thread gets the result. Rows of one warp need no other thread.
__device__ __forceinline__ float row_sum(float x, int warps) {
  __shared__ float4 of_warps[kMaxWarps / 4];
  x = warp_sum(x);
  if (warps == 1) return x;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  float* const of_warp = &of_warps[0].x;
  if (lane_id() == 0) of_warp[warp] = x;
  if (warp == 0 && lane_id() >= warps) of_warp[lane_id()] = 0;
  __syncthreads();
  return sum_of_parts(of_warps);
}
__device__ __forceinline__ unsigned row_max(unsigned x, int warps) {
  __shared__ unsigned of_warp[kMaxWarps];
  x = __reduce_max_sync(kWholeWarp, x);
  if (warps == 1) return x;
  if (lane_id() == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  return __reduce_max_sync(kWholeWarp, lane_id() < warps ? of_warp[lane_id()] : 0u);
}

/// Whether a form depends on the row's largest magnitude: all of F16 and E4M3 do.
LLM_HOST_DEVICE bool by_row(const Forms& y) { return y.f16 != nullptr || y.f16_panels != nullptr || y.f8 != nullptr; }
/// Of a row whose largest finite magnitude has these bits.
__device__ __forceinline__ void store_factors(const Forms& y, int row, unsigned largest) {
  if (lane_id() != 0) return;
  if (y.f16_unscale != nullptr) y.f16_unscale[row] = half_unscale(largest);
  if (y.f8 != nullptr) y.f8_scale[row] = f8_scale(largest);
}

/// Of a norm; without one 1 throughout.
__device__ __forceinline__ BlockPart load_weight(const float* w, int block, int n, bool wide) {
  if (w != nullptr) return load_part(w, block, n, wide);
  const float4 ones = make_float4(1, 1, 1, 1);
  return {ones, ones};
}

struct RowShape {
  int n, rows;
  int warps;  ///< of a row
  bool wide;  ///< every row of every operand is aligned to 16 bytes
};

/// Rows whose elements stay in registers: kHeld blocks per warp. With 40 registers a multiprocessor has 48 warps of
/// rows of 4096, each with 1 or 2 KB on its way while others are between reduction and writing.
template <class Source, bool kNorm, int kHeld, bool kFew>
__global__ void __maxnreg__(kHeld == 1 && Source::kOperands <= 2 ? 40 : 64)
    row_kernel(const Source source, const float* w, const float eps, const RowShape shape, const Forms y) {
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = static_cast<int>(blockIdx.x * (blockDim.x / kWarp) + warp) / shape.warps, part = warp % shape.warps;
  if (row >= shape.rows) return;  // only where a row is one warp's: no one waits for it
  BlockPart weight[kHeld], v[kHeld];
  const bool wide = kFew || shape.wide;
  const auto load_weights = [&] {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) weight[i] = load_weight(w, i * shape.warps + part, shape.n, wide);
  };
  constexpr bool kWeightsAhead = kHeld == 1 && (kFew || Source::kOperands <= 2);  // as registers allow
  if constexpr (kNorm && kWeightsAhead) load_weights();
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < kHeld; ++i) v[i] = source.first(row, i * shape.warps + part, shape.n, wide);
  if constexpr (kNorm) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum = squares(v[i], sum);
    if constexpr (!kWeightsAhead) load_weights();
    const float factor = norm_factor(row_sum(sum, shape.warps), shape.n, eps);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) v[i] = normed(v[i], weight[i], factor, i * shape.warps + part, shape.n);
  }
  unsigned largest = 0;
  if constexpr (!kFew) {
    if (by_row(y)) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) largest = max(largest, largest_finite_bits(v[i]));
      largest = row_max(largest, shape.warps);
      if (part == 0) store_factors(y, row, largest);
    }
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int block = i * shape.warps + part;
    if (block * kBlockK < shape.n) write_part<kFew>(y, row, block, shape.n, wide, v[i], largest);
  }
}

/// Rows of any length, read again in every pass.
template <class Source, bool kNorm>
__global__ void __launch_bounds__(1024)
    long_row_kernel(const Source source, const float* w, const float eps, const RowShape shape, const Forms y) {
  let_next_start();
  wait_for_previous();
  const int part = static_cast<int>(threadIdx.x) / kWarp, row = static_cast<int>(blockIdx.x);
  const int blocks = static_cast<int>(k_blocks(shape.n));
  float factor = 1;
  if constexpr (kNorm) {
    float sum = 0;
    for (int block = part; block < blocks; block += shape.warps) {
      sum = squares(source.first(row, block, shape.n, shape.wide), sum);
    }
    factor = norm_factor(row_sum(sum, shape.warps), shape.n, eps);
  }
  const auto value = [&](int block) {
    const BlockPart v = source.again(row, block, shape.n, shape.wide);
    return kNorm ? normed(v, load_weight(w, block, shape.n, shape.wide), factor, block, shape.n) : v;
  };
  unsigned largest = 0;
  if (by_row(y)) {
    for (int block = part; block < blocks; block += shape.warps)
      largest = max(largest, largest_finite_bits(value(block)));
    largest = row_max(largest, shape.warps);
    if (part == 0) store_factors(y, row, largest);
  }
  for (int block = part; block < blocks; block += shape.warps)
    write_part<false>(y, row, block, shape.n, shape.wide, value(block), largest);
}

/// Forms that need nothing of the rest of the row: a warp per block of 256.
template <class Source, bool kFew>
__global__ void __launch_bounds__(256) block_kernel(const Source source, const RowShape shape, const Forms y) {
  let_next_start();
  wait_for_previous();
  const int blocks = static_cast<int>(k_blocks(shape.n));
  const int item = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarp);
  const int row = item / blocks, block = item % blocks;
  if (row >= shape.rows) return;
  const bool wide = kFew || shape.wide;
  write_part<kFew>(y, row, block, shape.n, wide, source.first(row, block, shape.n, wide), 0);
}

bool aligned(std::initializer_list<const void*> pointers, std::uintptr_t bytes) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [=](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; });
}
bool wide_rows(int n, const Forms& y, std::initializer_list<const void*> operands) {
  return n % 4 == 0 && aligned(operands, 16) && aligned({y.f32, y.rounded_bf16}, 16) && aligned({y.f16, y.f16_rest}, 8);
}
void check_forms(const Forms& y, int rows) {
  const bool placed = y.q8x256 != nullptr || y.q8x32 != nullptr || y.f16_panels != nullptr;
  check(!placed || rows <= y.capacity, "rows fit their buffer");
  check((y.f16 == nullptr && y.f16_panels == nullptr) == (y.f16_unscale == nullptr),
        "F16 rows come with their factors");
  check((y.f8 == nullptr) == (y.f8_scale == nullptr), "FP8 rows come with their factors");
}

/// Blocks of 256 that a warp holds in registers.
constexpr int kHeldBlocks = 2;

/// What steps of few columns want: kernels for it alone are short, and of a kernel that runs once a step most of the
/// time goes into fetching its instructions.
bool is_few(const Forms& y, bool wide) { return wide && y.rounded_bf16 == nullptr && !by_row(y); }

template <bool kNorm, bool kFew, class Source>
void launch_rows_of(const Source& source, const float* w, float eps, int n, int rows, bool wide, const Forms& y,
                    const Launch& at) {
  const int blocks = static_cast<int>(k_blocks(n)), warps = row_parts(blocks);
  const RowShape shape{n, rows, warps, wide};
  if (blocks > warps * kHeldBlocks) {
    launch(long_row_kernel<Source, kNorm>, dim3(rows), dim3(warps * kWarp), 0, at, source, w, eps, shape, y);
    return;
  }
  constexpr int kRowsTogether = 4;
  const dim3 grid(warps == 1 ? (rows + kRowsTogether - 1) / kRowsTogether : rows);
  const dim3 threads((warps == 1 ? kRowsTogether : warps) * kWarp);
  if (blocks <= warps) {
    launch(row_kernel<Source, kNorm, 1, kFew>, grid, threads, 0, at, source, w, eps, shape, y);
  } else {
    launch(row_kernel<Source, kNorm, kHeldBlocks, kFew>, grid, threads, 0, at, source, w, eps, shape, y);
  }
}

template <bool kNorm, class Source>
void launch_rows(const Source& source, const float* w, float eps, int n, int rows, bool wide, const Forms& y,
                 const Launch& at) {
  if constexpr (kNorm) {
    if (is_few(y, wide)) return launch_rows_of<kNorm, true>(source, w, eps, n, rows, wide, y, at);
  }
  launch_rows_of<kNorm, false>(source, w, eps, n, rows, wide, y, at);
}

/// One row spreads over the device warp by warp; many rows come in blocks of 8 warps.
template <class Source>
void launch_forms(const Source& source, int n, int rows, bool wide, const Forms& y, const Launch& at) {
  check_forms(y, rows);
  if (rows == 0) return;
  if (by_row(y)) return launch_rows<false>(source, nullptr, 0.0f, n, rows, wide, y, at);
  const std::int64_t items = k_blocks(n) * rows;
  check(items < (std::int64_t{1} << 26), "rows are of a step's size");
  const int warps = items > 1024 ? 8 : 1;
  launch(is_few(y, wide) ? block_kernel<Source, true> : block_kernel<Source, false>,
         dim3(static_cast<unsigned>((items + warps - 1) / warps)), dim3(warps * kWarp), 0, at, source,
         RowShape{n, rows, 0, wide}, y);
}

constexpr int kThreads = 256;

/// A row per block of threads, read three times: the second and third time from L2. Sums are taken thread by thread,
/// over the lanes, over the warps. Without the mean, it is the root mean square norm.
template <bool kMean>
__global__ void __launch_bounds__(kThreads) own_norm_kernel(const float* x, const float* w, const float* bias,
                                                            const int weights, const float eps, const int n, float* y) {
  let_next_start();
  wait_for_previous();
  __shared__ float of_warps[2][kThreads / kWarp];
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x), warp = thread / kWarp;
  const float* const from = x + static_cast<std::int64_t>(row) * n;
  const auto sum_of = [&](float(&parts)[kThreads / kWarp], const auto& f) {
    float sum = 0;
    for (int i = thread; i < n; i += kThreads) sum += f(from[i]);
    sum = warp_sum(sum);
    if (lane_id() == 0) parts[warp] = sum;
    __syncthreads();
    float all = 0;
    for (const float part : parts) all += part;
    return all;
  };
  float mean = 0;
  if constexpr (kMean) mean = quotient(sum_of(of_warps[0], [](float v) { return v; }), static_cast<float>(n));
  const float squares = sum_of(of_warps[1], [=](float v) { return (v - mean) * (v - mean); });
  const float factor = norm_factor(squares, n, eps);
  const std::int64_t own = static_cast<std::int64_t>(row % weights) * n;
  float* const to = y + static_cast<std::int64_t>(row) * n;
  for (int i = thread; i < n; i += kThreads)
    to[i] = fmaf((from[i] - mean) * factor, w != nullptr ? w[own + i] : 1.0f, bias != nullptr ? bias[own + i] : 0.0f);
}

/// y[i] = f(a[i], b[i]), four per thread; y may be a or b.
template <class F>
__global__ void __launch_bounds__(kThreads)
    element_kernel(const float* a, const float* b, float* y, const std::int64_t elements, const bool wide, const F f) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = 4 * (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (wide && i + 4 <= elements) {
    const float4 u = *reinterpret_cast<const float4*>(a + i), v = *reinterpret_cast<const float4*>(b + i);
    *reinterpret_cast<float4*>(y + i) = map(u, v, f);
    return;
  }
  for (std::int64_t j = i; j < min(i + 4, elements); ++j) y[j] = f(a[j], b[j]);
}

struct AddTwo {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Multiply {
  float factor;
  const float* w;  ///< null: none
  __device__ float operator()(float a, float) const { return a * (w != nullptr ? factor * __ldg(w) : factor); }
};
struct Gelu {
  __device__ float operator()(float a, float) const { return gelu(a); }
};
struct SquaredRelu {
  __device__ float operator()(float a, float) const { return a < 0 ? 0.0f : a * a; }
};
struct Clamp {
  float limit;
  __device__ float operator()(float a, float) const { return a > limit ? limit : a < -limit ? -limit : a; }
};
struct Xielu {
  XieluCurve c;
  __device__ float operator()(float a, float) const {
    if (a > 0) return fmaf(c.positive, a, c.slope) * a;
    return fmaf(c.slope, a, c.negative * (expm1f(a < c.below ? a : c.below) - a));  // NaN stays
  }
};
struct SigmoidOf {
  __device__ float operator()(float a, float) const { return sigmoid(a); }
};
struct Cap {
  float cap;
  __device__ float operator()(float a, float) const { return cap * tanhf(a / cap); }
};

template <class F>
void launch_elements(const float* a, const float* b, float* y, std::int64_t elements, F f, const Launch& at) {
  if (elements == 0) return;
  // Few elements: small blocks, so that many multiprocessors fetch them.
  const int threads = elements <= 65536 ? 64 : kThreads;
  const std::int64_t blocks = (elements + 4 * threads - 1) / (4 * threads);
  launch(element_kernel<F>, dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, at, a, b, y, elements,
         aligned({a, b, y}, 16), f);
}

template <template <Activation> class Source>
void launch_gated(Activation activation, const float* gate, const float* up, int n, int rows, bool wide, const Forms& y,
                  const Launch& at) {
  switch (activation) {
    case Activation::Silu:
      return launch_forms(Source<Activation::Silu>{gate, up}, n, rows, wide, y, at);
    case Activation::Gelu:
      return launch_forms(Source<Activation::Gelu>{gate, up}, n, rows, wide, y, at);
    case Activation::ClampedSilu:
      return launch_forms(Source<Activation::ClampedSilu>{gate, up}, n, rows, wide, y, at);
    case Activation::Relu:
      return launch_forms(Source<Activation::Relu>{gate, up}, n, rows, wide, y, at);
    case Activation::Sigmoid:
      return launch_forms(Source<Activation::Sigmoid>{gate, up}, n, rows, wide, y, at);
    case Activation::Softplus:
      return launch_forms(Source<Activation::Softplus>{gate, up}, n, rows, wide, y, at);
    case Activation::Identity:
      return launch_forms(Source<Activation::Identity>{gate, up}, n, rows, wide, y, at);
  }
}

/// A block of threads per (row, kCopied elements).
constexpr int kCopied = 2048;
__global__ void __launch_bounds__(kThreads) select_kernel(const float* x, const int n, const std::int32_t* out_rows,
                                                          const std::int32_t* counts, float* y, const bool wide) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x);
  if (i >= counts[1]) return;
  const float* const from = x + static_cast<std::int64_t>(out_rows[i]) * n;
  float* const to = y + static_cast<std::int64_t>(i) * n;
  const int begin = static_cast<int>(blockIdx.y) * kCopied + 4 * static_cast<int>(threadIdx.x);
  for (int k = begin; k < begin + kCopied; k += 4 * kThreads) store_quad(to, k, n, wide, load_quad(from, k, n, wide));
}

/// A thread per element of the result.
__global__ void __launch_bounds__(kThreads)
    slice_kernel(const float* x, const int m, const int begin, const int n, const std::int64_t elements, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) y[i] = x[i / n * m + begin + i % n];
}

__global__ void __launch_bounds__(kThreads) concat_kernel(const float* a, const int m, const float* b, const int n,
                                                          const int of_one, const std::int64_t elements, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t row = i / (m + n);
  const int k = static_cast<int>(i % (m + n));
  y[i] = k < m ? a[row * m + k] : b[row / of_one * n + k - m];
}

__global__ void __launch_bounds__(kThreads) head_ids_kernel(const int heads, const std::int64_t n, std::int32_t* ids) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) ids[i] = static_cast<std::int32_t>(i % heads);
}

__global__ void __launch_bounds__(kThreads)
    group_ids_kernel(const std::int32_t* experts, const int size, const std::int64_t n, std::int32_t* ids) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) ids[i] = experts[i] / size;
}

__global__ void __launch_bounds__(kThreads)
    silence_kernel(const Silence op, const float* x, const int n, const std::int64_t elements, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t at = i % n - op.begin;
  y[i] = at >= 0 && at < op.n ? -FLT_MAX : x[i];
}

__global__ void __launch_bounds__(kThreads)
    scale_each_kernel(const float* x, const float factor, const EachWeights w, const std::int64_t elements, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) y[i] = x[i] * (factor * __ldg(w.w + i / w.span % w.n));
}

dim3 copy_grid(std::int64_t elements) { return dim3(static_cast<unsigned>((elements + kThreads - 1) / kThreads)); }

}  // namespace

void make_forms(const float* x, int n, int rows, const Forms& y, const Launch& at) {
  launch_forms(Plain{x}, n, rows, wide_rows(n, y, {x}), y, at);
}

void layer_norm(const float* x, const float* w, const float* bias, int weights, float eps, int n, int rows, float* y,
                const Launch& at) {
  if (rows == 0) return;
  launch(own_norm_kernel<true>, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, at, x, w, bias, weights, eps, n,
         y);
}

void rms_norm_of_each(const float* x, const float* w, int weights, float eps, int n, int rows, float* y,
                      const Launch& at) {
  if (rows == 0) return;
  const float* const no_bias = nullptr;
  launch(own_norm_kernel<false>, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, at, x, w, no_bias, weights, eps,
         n, y);
}

void rms_norm(const float* x, const float* w, float eps, int n, int rows, const Forms& y, const Launch& at) {
  check_forms(y, rows);
  if (rows == 0) return;
  launch_rows<true>(Plain{x}, w, eps, n, rows, wide_rows(n, y, {x, w}), y, at);
}

void add_rms_norm(const float* a, const float* b, const float* w, float eps, int n, int rows, float* sum,
                  const Forms& y, const Launch& at) {
  check_forms(y, rows);
  if (rows == 0) return;
  launch_rows<true>(Sum{a, b, sum}, w, eps, n, rows, wide_rows(n, y, {a, b, w, sum}), y, at);
}

void combine_add_rms_norm(const float* x, const float* weights, int top_k, const float* residual, const float* w,
                          float eps, int n, int rows, float* sum, const Forms& y, const Launch& at) {
  check_forms(y, rows);
  if (rows == 0) return;
  launch_rows<true>(Experts{x, weights, top_k, residual, sum}, w, eps, n, rows, wide_rows(n, y, {x, residual, w, sum}),
                    y, at);
}

void glu(const Glu& op, const float* gate, const float* up, int n, int rows, const Forms& y, const Launch& at) {
  const bool wide = wide_rows(n, y, {gate, up});
  if (op.limit > 0) return launch_forms(LimitedGate{gate, up, op.gate_limit, op.limit}, n, rows, wide, y, at);
  launch_gated<Gated>(op.activation, gate, up, n, rows, wide, y, at);
}

void glu_of_one(Activation activation, const float* gate, const float* up, int n, int rows, const Forms& y,
                const Launch& at) {
  launch_gated<GatedByOne>(activation, gate, up, n, rows, wide_rows(n, y, {up}), y, at);
}

void add(const float* a, const float* b, float* y, std::int64_t elements, const Launch& at) {
  launch_elements(a, b, y, elements, AddTwo{}, at);
}

void activate(const Activate& op, const float* x, float* y, std::int64_t elements, const Launch& at) {
  switch (op.function) {
    case Nonlinearity::Gelu:
      return launch_elements(x, x, y, elements, Gelu{}, at);
    case Nonlinearity::SquaredRelu:
      return launch_elements(x, x, y, elements, SquaredRelu{}, at);
    case Nonlinearity::Clamp:
      return launch_elements(x, x, y, elements, Clamp{op.limit}, at);
    case Nonlinearity::Xielu:
      return launch_elements(x, x, y, elements, Xielu{op.xielu}, at);
    case Nonlinearity::Sigmoid:
      return launch_elements(x, x, y, elements, SigmoidOf{}, at);
  }
}

void scale(const float* x, float factor, const float* w, float* y, std::int64_t elements, const Launch& at) {
  launch_elements(x, x, y, elements, Multiply{factor, w}, at);
}

void scale_each(const float* x, float factor, const EachWeights& w, std::int64_t elements, float* y, const Launch& at) {
  if (elements == 0) return;
  launch(scale_each_kernel, copy_grid(elements), dim3(kThreads), 0, at, x, factor, w, elements, y);
}

void soft_cap(const float* x, float cap, float* y, std::int64_t elements, const Launch& at) {
  launch_elements(x, x, y, elements, Cap{cap}, at);
}

void slice(const float* x, int m, int begin, int n, std::int64_t vectors, float* y, const Launch& at) {
  if (vectors == 0) return;
  launch(slice_kernel, copy_grid(vectors * n), dim3(kThreads), 0, at, x, m, begin, n, vectors * n, y);
}

void concat(const float* a, int m, const float* b, int n, int of_one, std::int64_t vectors, float* y,
            const Launch& at) {
  if (vectors == 0) return;
  const std::int64_t elements = vectors * (m + n);
  launch(concat_kernel, copy_grid(elements), dim3(kThreads), 0, at, a, m, b, n, of_one, elements, y);
}

void head_ids(int heads, std::int64_t n, std::int32_t* ids, const Launch& at) {
  if (n == 0) return;
  launch(head_ids_kernel, copy_grid(n), dim3(kThreads), 0, at, heads, n, ids);
}

void group_ids(const std::int32_t* experts, int size, std::int64_t n, std::int32_t* ids, const Launch& at) {
  if (n == 0) return;
  launch(group_ids_kernel, copy_grid(n), dim3(kThreads), 0, at, experts, size, n, ids);
}

void silence(const Silence& op, const float* x, int n, std::int64_t elements, float* y, const Launch& at) {
  if (elements == 0) return;
  launch(silence_kernel, copy_grid(elements), dim3(kThreads), 0, at, op, x, n, elements, y);
}

void select_rows(const float* x, int n, const StepView& step, int outputs, float* y, const Launch& at) {
  if (outputs == 0) return;
  launch(select_kernel, dim3(outputs, (n + kCopied - 1) / kCopied), dim3(kThreads), 0, at, x, n, step.out_rows,
         step.counts, y, n % 4 == 0 && aligned({x, y}, 16));
}

}  // namespace llm::cuda
