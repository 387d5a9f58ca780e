// Matrices in device memory: packing rows of a file, and decoding rows for prefill and for embeddings.
#include <cuda_fp16.h>

#include <type_traits>

#include "backend/cuda/kernels/forms.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "backend/cuda/kernels/with_tile.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kPackThreads = 256;
constexpr int kDecodeWarps = 4;

unsigned blocks_of(std::int64_t count, int per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// --- packing: a thread makes 4 bytes, of 4 to 32 codes read one by one ---
// The bytes of a code are read by 1 to 8 threads of a warp and come from the first cache. It issues a load for each
// code, 32 of 8 rows at a time: some 0.5 TB/s, ten times what a PCIe link brings; two to four where a grid says what
// the codes are.

template <class T>
__global__ void __launch_bounds__(kPackThreads) pack_kernel(Bytes rows, std::int64_t first_row, std::int64_t n_rows,
                                                            std::int64_t n_words, std::int64_t k, std::byte* matrix) {
  let_next_start();
  wait_for_previous();
  using R = Raw<T::kType>;
  constexpr int kCodesWords = T::Codes::kBytes / 4, kWords = T::kPieceBytes / 4;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x;
  if (i >= n_words) return;
  const int w = static_cast<int>(i % kWords);
  const std::int64_t piece = i / kWords % pieces<T>(k), strip = i / kWords / pieces<T>(k);
  const std::int64_t row = strip * kTileRows;  // from first_row on
  PieceSource<T> from;
  from.row_bytes = k / R::kElems * static_cast<std::int64_t>(sizeof(typename R::Block));
  from.rows = rows + row * from.row_bytes;
  from.n_rows = static_cast<int>(min(n_rows - row, static_cast<std::int64_t>(kTileRows)));
  from.k0 = piece * T::kPieceK;
  from.k = k;
  std::byte* to = matrix + (first_row / kTileRows + strip) * strip_bytes<T>(k);
  if (w < kCodesWords)
    reinterpret_cast<std::uint32_t*>(to + codes_at<T>(piece))[w] = codes_word<T>(from, w);
  else
    reinterpret_cast<std::uint32_t*>(to + scales_at<T>(piece, k))[w - kCodesWords] =
        T::Scales::word_of(from, w - kCodesWords);
}

// --- decoding: a warp decodes a piece, and turns it by way of shared memory so that rows are written whole ---
// Bytes per 16 x 256: 8,192 written as F16, 4,096 as E4M3, 1,056 to 4,352 read; bound by memory: 4,096 elements cost
// some 10 instructions of a lane each, 320 issue slots of a quarter of a multiprocessor where memory needs 2,100. 6
// blocks of 35 KB as F16.

struct ToHalf {
  using Element = __half;
  using Four = uint2;
  /// A lane's rows are two: of r = 0, 2 and of r = 1, 3.
  __device__ void begin(std::int64_t, std::int64_t, std::int64_t) {}
  __device__ Four four(const float (&y)[4], int) const {
    const __half2 low = __floats2half2_rn(y[0], y[1]), high = __floats2half2_rn(y[2], y[3]);
    Four bits;
    memcpy(&bits.x, &low, 4);
    memcpy(&bits.y, &high, 4);
    return bits;
  }
};

struct ToF8 {
  using Element = unsigned char;
  using Four = unsigned;
  const float* scales;  ///< of the rows that are decoded
  float inverse[2] = {};
  __device__ void begin(std::int64_t row0, std::int64_t row1, std::int64_t n_rows) {
    const auto of = [&](std::int64_t row) { return row < 0 || row >= n_rows ? 0.0f : 1.0f / scales[row]; };
    inverse[0] = of(row0);
    inverse[1] = of(row1);
  }
  __device__ Four four(const float (&y)[4], int which) const {
    return f8_quad(make_float4(y[0], y[1], y[2], y[3]), inverse[which]);
  }
};

template <class T, class To>
__global__ void __launch_bounds__(32 * kDecodeWarps)
    decode_kernel(const std::byte* matrix, std::int64_t k, std::int64_t first_row, std::int64_t n_rows,
                  std::int64_t n_pieces, To to, typename To::Element* out) {
  let_next_start();
  using Element = typename To::Element;
  constexpr int kAtOnce = 16 / sizeof(Element);
  // 4 or 8 words beyond a multiple of 32: no two lanes of a store share a bank.
  constexpr int kPitch = T::kPieceK + 16;
  constexpr int kChunks = T::kPieceK / kAtOnce;  // of 16 bytes in a row
  __shared__ __align__(16) Element rows[kDecodeWarps][kTileRows][kPitch];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kDecodeWarps + warp;
  if (i >= n_pieces) {
    wait_for_previous();
    return;
  }
  const std::int64_t index = i % pieces<T>(k), strip = first_row / kTileRows + i / pieces<T>(k);
  const std::byte* from = matrix + strip * strip_bytes<T>(k);
  const std::byte* scales = from + scales_at<T>(index, k);
  T piece;
  piece.template load<FromGlobal>(from + codes_at<T>(index), scales, lane);
  const std::int64_t first = strip * kTileRows - first_row;  // of the piece's rows, from first_row on
  to.begin(first + place_row(lane, 0), first + place_row(lane, 1), n_rows);
  wait_for_previous();  // others may still read or write `out`
#pragma unroll
  for (int step = 0; step < T::kSteps; ++step)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float y[4];
      decode_four(piece, scales, lane, step, r, y);
      *reinterpret_cast<typename To::Four*>(&rows[warp][place_row(lane, r)][place_k(lane, step, r, 0)]) =
          to.four(y, r % 2);
    }
  __syncwarp();
#pragma unroll
  for (int e = lane; e < kTileRows * kChunks; e += 32) {
    const int row = e / kChunks, in_row = e % kChunks * kAtOnce;
    const std::int64_t y_row = first + row, at = index * T::kPieceK + in_row;
    if (y_row < 0 || y_row >= n_rows || at >= k) continue;
    *reinterpret_cast<uint4*>(out + y_row * k + at) = *reinterpret_cast<const uint4*>(&rows[warp][row][in_row]);
  }
}

// --- factors of rows: once, when a model is loaded; largest magnitudes first, as bits, which order like them ---

template <class T>
__global__ void __launch_bounds__(32 * kDecodeWarps)
    largest_kernel(const std::byte* matrix, std::int64_t k, std::int64_t n, std::int64_t n_pieces, unsigned* largest) {
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kDecodeWarps + threadIdx.x / 32;
  if (i >= n_pieces) return;
  const std::int64_t index = i % pieces<T>(k), strip = i / pieces<T>(k);
  const std::byte* from = matrix + strip * strip_bytes<T>(k);
  const std::byte* scales = from + scales_at<T>(index, k);
  T piece;
  piece.template load<FromGlobal>(from + codes_at<T>(index), scales, lane);
  unsigned most[2] = {0, 0};
#pragma unroll
  for (int step = 0; step < T::kSteps; ++step)
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float y[4];
      decode_four(piece, scales, lane, step, r, y);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (index * T::kPieceK + place_k(lane, step, r, 0) + j < k) most[r % 2] = max(most[r % 2], finite_bits(y[j]));
    }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const std::int64_t row = strip * kTileRows + place_row(lane, r);
    if (row < n) atomicMax(largest + row, most[r]);
  }
}

__global__ void __launch_bounds__(kPackThreads) f8_scale_kernel(float* scales, std::int64_t n) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x;
  if (i < n) scales[i] = f8_scale(__float_as_uint(scales[i]));
}

// --- single rows: a warp reads a piece and keeps one row of it ---
// 16 times the row's bytes: 37 KB for a row of 4,096, which is nothing beside a layer.

__device__ __forceinline__ std::int32_t known_id(std::int32_t id, const std::int32_t* drawn) {
  return id < 0 && drawn != nullptr ? drawn[~id] : id;
}

template <class T>
__global__ void __launch_bounds__(32 * kDecodeWarps)
    gather_kernel(const std::byte* matrix, std::int64_t k, std::int64_t n, const std::int32_t* ids,
                  const std::int32_t* drawn, float* y) {
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kDecodeWarps + threadIdx.x / 32;
  if (index >= pieces<T>(k)) return;
  const std::int64_t id = known_id(ids[blockIdx.y], drawn), k0 = index * T::kPieceK;
  float* y_row = y + static_cast<std::int64_t>(blockIdx.y) * k;
  if (id < 0 || id >= n) {
    for (int e = lane; e < T::kPieceK && k0 + e < k; e += 32) y_row[k0 + e] = __uint_as_float(0x7fffffff);
    return;
  }
  const std::byte* from = matrix + id / kTileRows * strip_bytes<T>(k);
  const std::byte* scales = from + scales_at<T>(index, k);
  T piece;
  piece.template load<FromGlobal>(from + codes_at<T>(index), scales, lane);
  const int row = static_cast<int>(id % kTileRows);
  if (lane / 4 != row % 8) return;
  const auto write_half = [&](auto half) {
#pragma unroll
    for (int i = 0; i < 2 * T::kSteps; ++i) {
      const int step = i / 2, r = decltype(half)::value + 2 * (i % 2);
      const std::int64_t at = k0 + place_k(lane, step, r, 0);
      float y4[4];
      decode_four(piece, scales, lane, step, r, y4);
      if (at < k) *reinterpret_cast<float4*>(y_row + at) = make_float4(y4[0], y4[1], y4[2], y4[3]);
    }
  };
  if (row < 8)
    write_half(std::integral_constant<int, 0>());
  else
    write_half(std::integral_constant<int, 1>());
}

// --- float types ---

/// Of an element of a type without tiles: floats, and the whole numbers of tables, which are no matrices.
std::size_t element_bytes(DType type) { return type == DType::F32 || type == DType::I32 ? 4 : 2; }
__device__ float as_float(float x) { return x; }
__device__ float as_float(__half x) { return __half2float(x); }
__device__ float as_float(BFloat16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }

/// f(std::type_identity<element>)
template <class F>
void with_float(DType type, const F& f) {
  if (type == DType::F32) return f(std::type_identity<float>());
  if (type == DType::F16) return f(std::type_identity<__half>());
  check(type == DType::BF16, "a matrix is of a type that has neither tiles nor floats");
  f(std::type_identity<BFloat16>());
}

/// Whole rows follow one another on both sides.
template <class From>
__global__ void __launch_bounds__(kPackThreads) to_half_kernel(const From* x, std::int64_t n, __half* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x;
  if (i < n) y[i] = __float2half_rn(as_float(x[i]));
}

/// Four elements a thread; rows are multiples of 16.
template <class From>
__global__ void __launch_bounds__(kPackThreads)
    to_f8_kernel(const From* x, std::int64_t k, std::int64_t n, const float* scales, unsigned* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x;
  if (4 * i >= n) return;
  const From* const four = x + 4 * i;
  const float4 v = make_float4(as_float(four[0]), as_float(four[1]), as_float(four[2]), as_float(four[3]));
  y[i] = f8_quad(v, 1.0f / scales[4 * i / k]);
}

/// A block for each row.
template <class From>
__global__ void __launch_bounds__(kPackThreads) largest_float_kernel(const From* x, std::int64_t k, unsigned* largest) {
  let_next_start();
  wait_for_previous();
  const From* const row = x + static_cast<std::int64_t>(blockIdx.x) * k;
  unsigned most = 0;
  for (std::int64_t i = threadIdx.x; i < k; i += kPackThreads) most = max(most, finite_bits(as_float(row[i])));
  most = __reduce_max_sync(kWholeWarp, most);
  if (threadIdx.x % kWarp == 0) atomicMax(largest + blockIdx.x, most);
}

template <class From>
__global__ void __launch_bounds__(kPackThreads)
    gather_float_kernel(const From* x, std::int64_t k, std::int64_t n, const std::int32_t* ids,
                        const std::int32_t* drawn, float* y) {
  let_next_start();
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x;
  const std::int64_t id = known_id(ids[blockIdx.y], drawn);
  if (i >= k) return;
  y[static_cast<std::int64_t>(blockIdx.y) * k + i] =
      id < 0 || id >= n ? __uint_as_float(0x7fffffff) : as_float(x[id * k + i]);
}

}  // namespace

bool has_tiles(DType type) {
  switch (type) {
#define LLM_TILE_CASE(name) case DType::name:
    LLM_TILE_TYPES(LLM_TILE_CASE)
#undef LLM_TILE_CASE
    return true;
    default:
      return false;
  }
}

DType device_type(DType stored) { return stored == DType::F64 ? DType::F32 : stored; }

bool experts_are_rows(const MatrixType& m) {
  if (has_tiles(m.type)) return m.n % kTileRows == 0;
  return static_cast<std::size_t>(m.n * m.k) * element_bytes(m.type) == matrix_bytes(m);
}

std::size_t matrix_bytes(const MatrixType& m) {
  if (!has_tiles(m.type)) return (static_cast<std::size_t>(m.n * m.k) * element_bytes(m.type) + 127) / 128 * 128;
  return with_tile(m.type,
                   [&](auto type) { return static_cast<std::size_t>(strips(m.n) * strip_bytes<Tile<type()>>(m.k)); });
}

void pack_rows(const MatrixType& m, const std::byte* rows, std::int64_t first_row, std::int64_t n_rows,
               std::byte* matrix, const Launch& at) {
  if (n_rows == 0 || m.k == 0) return;
  if (!has_tiles(m.type)) {
    const std::size_t row_bytes = static_cast<std::size_t>(m.k) * element_bytes(m.type);
    check_cuda(cudaMemcpyAsync(matrix + static_cast<std::size_t>(first_row) * row_bytes, rows,
                               static_cast<std::size_t>(n_rows) * row_bytes, cudaMemcpyDeviceToDevice, at.stream),
               "placing a matrix");
    return;
  }
  check(first_row % kTileRows == 0 && (n_rows % kTileRows == 0 || first_row + n_rows == m.n),
        "rows of a matrix are packed in whole strips");
  with_tile(m.type, [&](auto type) {
    using T = Tile<type()>;
    const std::int64_t words = strips(n_rows) * pieces<T>(m.k) * (T::kPieceBytes / 4);
    launch(pack_kernel<T>, dim3(blocks_of(words, kPackThreads)), dim3(kPackThreads), 0, at,
           reinterpret_cast<Bytes>(rows), first_row, n_rows, words, m.k, matrix);
  });
}

void decode_rows_f16(const MatrixType& m, const std::byte* matrix, std::int64_t first_row, std::int64_t n_rows,
                     void* out, const Launch& at) {
  if (n_rows == 0 || m.k == 0) return;
  auto* y = static_cast<__half*>(out);
  if (!has_tiles(m.type))
    return with_float(m.type, [&](auto element) {
      using From = typename decltype(element)::type;
      const std::int64_t n = n_rows * m.k;
      launch(to_half_kernel<From>, dim3(blocks_of(n, kPackThreads)), dim3(kPackThreads), 0, at,
             reinterpret_cast<const From*>(matrix) + first_row * m.k, n, y);
    });
  with_tile(m.type, [&](auto type) {
    using T = Tile<kReadAs<type()>>;
    const std::int64_t n_strips = (first_row + n_rows - 1) / kTileRows - first_row / kTileRows + 1;
    const std::int64_t n_pieces = n_strips * pieces<T>(m.k);
    launch(decode_kernel<T, ToHalf>, dim3(blocks_of(n_pieces, kDecodeWarps)), dim3(32 * kDecodeWarps), 0, at, matrix,
           m.k, first_row, n_rows, n_pieces, ToHalf{}, y);
  });
}

void find_f8_scales(const MatrixType& m, const std::byte* matrix, float* scales, const Launch& at) {
  if (m.n == 0 || m.k == 0) return;
  auto* const largest = reinterpret_cast<unsigned*>(scales);
  check_cuda(cudaMemsetAsync(largest, 0, static_cast<std::size_t>(m.n) * sizeof *largest, at.stream),
             "looking for the largest weights");
  if (has_tiles(m.type)) {
    with_tile(m.type, [&](auto type) {
      using T = Tile<kReadAs<type()>>;
      const std::int64_t n_pieces = strips(m.n) * pieces<T>(m.k);
      launch(largest_kernel<T>, dim3(blocks_of(n_pieces, kDecodeWarps)), dim3(32 * kDecodeWarps), 0, at, matrix, m.k,
             m.n, n_pieces, largest);
    });
  } else {
    with_float(m.type, [&](auto element) {
      using From = typename decltype(element)::type;
      launch(largest_float_kernel<From>, dim3(static_cast<unsigned>(m.n)), dim3(kPackThreads), 0, at,
             reinterpret_cast<const From*>(matrix), m.k, largest);
    });
  }
  launch(f8_scale_kernel, dim3(blocks_of(m.n, kPackThreads)), dim3(kPackThreads), 0, at, scales, m.n);
}

void decode_rows_f8(const MatrixType& m, const std::byte* matrix, std::int64_t first_row, std::int64_t n_rows,
                    const float* scales, void* out, const Launch& at) {
  check(m.k % 16 == 0, "rows of FP8 are whole lines of 16");
  if (n_rows == 0 || m.k == 0) return;
  if (!has_tiles(m.type))
    return with_float(m.type, [&](auto element) {
      using From = typename decltype(element)::type;
      const std::int64_t n = n_rows * m.k;
      launch(to_f8_kernel<From>, dim3(blocks_of(n / 4, kPackThreads)), dim3(kPackThreads), 0, at,
             reinterpret_cast<const From*>(matrix) + first_row * m.k, m.k, n, scales, static_cast<unsigned*>(out));
    });
  with_tile(m.type, [&](auto type) {
    using T = Tile<kReadAs<type()>>;
    const std::int64_t n_strips = (first_row + n_rows - 1) / kTileRows - first_row / kTileRows + 1;
    const std::int64_t n_pieces = n_strips * pieces<T>(m.k);
    launch(decode_kernel<T, ToF8>, dim3(blocks_of(n_pieces, kDecodeWarps)), dim3(32 * kDecodeWarps), 0, at, matrix, m.k,
           first_row, n_rows, n_pieces, ToF8{.scales = scales}, static_cast<unsigned char*>(out));
  });
}

void gather_rows(const MatrixType& m, const std::byte* matrix, const std::int32_t* ids, const std::int32_t* drawn,
                 std::int64_t count, float* y, const Launch& at) {
  constexpr std::int64_t kMostInGrid = 65535;
  if (m.k == 0) return;
  for (std::int64_t first = 0; first < count; first += kMostInGrid) {
    const auto n = static_cast<unsigned>(count - first < kMostInGrid ? count - first : kMostInGrid);
    const std::int32_t* from = ids + first;
    float* to = y + first * m.k;
    if (!has_tiles(m.type))
      with_float(m.type, [&](auto element) {
        using From = typename decltype(element)::type;
        launch(gather_float_kernel<From>, dim3(blocks_of(m.k, kPackThreads), n), dim3(kPackThreads), 0, at,
               reinterpret_cast<const From*>(matrix), m.k, m.n, from, drawn, to);
      });
    else
      with_tile(m.type, [&](auto type) {
        using T = Tile<kReadAs<type()>>;
        launch(gather_kernel<T>, dim3(blocks_of(pieces<T>(m.k), kDecodeWarps), n), dim3(32 * kDecodeWarps), 0, at,
               matrix, m.k, m.n, from, drawn, to);
      });
  }
}

}  // namespace llm::cuda
