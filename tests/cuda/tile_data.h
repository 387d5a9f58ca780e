// Matrices in tiles and quantised columns for the tests of their products.
#pragma once

#include <algorithm>
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "kernels/quant_cases.h"
#include "tensor/activation.h"
#include "tensor/decode.h"

namespace llm::cuda::test {

inline constexpr DType kTypes[] = {
#define LLM_TYPE(name) DType::name,
    LLM_TILE_TYPES(LLM_TYPE)
#undef LLM_TYPE
};

inline bool has_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return true;
  std::cout << "SKIPPED: no CUDA device\n";
  return false;
}

inline std::size_t row_bytes(DType t, std::int64_t k) {
  return static_cast<std::size_t>(k) / info(t).block_elems * info(t).block_bytes;
}

/// Random rows of a type as in a file, and what they decode to.
struct Rows {
  Rows(DType type, std::int64_t n, std::int64_t k, std::uint32_t seed)
      : type{type, k, n},
        bytes(row_bytes(type, k) * static_cast<std::size_t>(n)),
        values(static_cast<std::size_t>(n * k)) {
    std::mt19937 rng(seed);
    cpu::test::random_blocks(type, bytes.data(), bytes.size(), rng);
    for (std::int64_t i = 0; i < n; ++i)
      decode(type, bytes.data() + static_cast<std::size_t>(i) * row_bytes(type, k), values.data() + i * k, k);
  }
  MatrixType type;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

// --- memory of the device ---

template <class Value>
DeviceBuffer on_device(const std::vector<Value>& values) {
  DeviceBuffer buffer(values.size() * sizeof(Value));
  copy_to_device(buffer.data(), values.data(), buffer.bytes(), "copying");
  return buffer;
}
inline DeviceBuffer poisoned(std::size_t bytes) {
  DeviceBuffer buffer(bytes);
  fill_device(buffer.data(), 0xff, bytes, "poisoning");
  return buffer;
}
template <class Value>
std::vector<Value> on_host(const DeviceBuffer& buffer) {
  check_cuda(cudaDeviceSynchronize(), "waiting");
  std::vector<Value> values(buffer.bytes() / sizeof(Value));
  check_cuda(cudaMemcpy(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost), "copying");
  return values;
}
template <class Value>
Value* at(const DeviceBuffer& buffer) {
  return reinterpret_cast<Value*>(buffer.data());
}

/// In two calls where there are rows enough.
inline DeviceBuffer packed(const Rows& rows) {
  DeviceBuffer matrix = poisoned(matrix_bytes(rows.type));
  const DeviceBuffer file = on_device(rows.bytes);
  const std::int64_t first = rows.type.n > kTileRows ? kTileRows : rows.type.n;
  pack_rows(rows.type, file.data(), 0, first, matrix.data(), {});
  pack_rows(rows.type, file.data() + static_cast<std::size_t>(first) * row_bytes(rows.type.type, rows.type.k), first,
            rows.type.n - first, matrix.data(), {});
  check_cuda(cudaDeviceSynchronize(), "packing");
  return matrix;
}

// --- activations ---

/// Columns as act_layout.h has them; what the layout leaves open is poisoned.
struct Columns {
  Columns(ActFormat format, std::int64_t k, int columns, int capacity, std::uint32_t seed)
      : k(k),
        capacity(capacity),
        values(static_cast<std::size_t>(columns * k)),
        bytes(quantized_bytes(format, k, capacity)) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(rng);
    for (std::int64_t i = 0; i < k && i < 32; ++i) values[static_cast<std::size_t>(i)] = 0;
    std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    for (int c = 0; c < columns; ++c) quantize(format, c);
  }
  void quantize(ActFormat format, int c) {
    float* column = values.data() + c * k;
    for (std::int64_t block = 0; block < k_blocks(k); ++block) {
      std::int8_t codes[kBlockK] = {};
      float scales[kSteps] = {};
      const int elems = static_cast<int>(act_block_elems(format));
      for (int i = 0; i < kBlockK && block * kBlockK + i < k; i += elems)
        scales[i / kStepK] = quantize_activation_block(column + block * kBlockK + i, elems, codes + i);
      std::byte* to = bytes.data() + codes_offset(c / kColumns, block, k);
      for (int i = 0; i < kBlockK; ++i) to[code_offset(i, c % kColumns)] = static_cast<std::byte>(codes[i]);
      std::byte* to_scales = bytes.data() + scales_offset(format, c / kColumns, block, k, capacity);
      const auto sum = [&](int first, int n) {
        int s = 0;
        for (int i = 0; i < n; ++i) s += codes[first + i];
        return s;
      };
      if (format == ActFormat::Q8x256) {
        ColumnBlock b{};
        b.scale = scales[0];
        for (int j = 0; j < 8; ++j) b.low32[j] = static_cast<std::int8_t>(sum(32 * j, 32) & 127);
        for (int j = 0; j < 8; ++j) b.high32[j] = static_cast<std::int8_t>(sum(32 * j, 32) >> 7);
        for (int j = 0; j < 16; ++j) b.low16[j] = static_cast<std::int8_t>(sum(16 * j, 16) & 127);
        for (int j = 0; j < 16; ++j) b.high16[j] = static_cast<std::int8_t>(sum(16 * j, 16) >> 7);
        std::memcpy(to_scales + static_cast<std::size_t>(c % kColumns) * sizeof b, &b, sizeof b);
      } else {
        for (int j = 0; j < kSteps; ++j) {
          const StepScale s{scales[j]};
          std::memcpy(to_scales + static_cast<std::size_t>(j * kColumns + c % kColumns) * sizeof s, &s, sizeof s);
        }
      }
    }
    std::vector<float> exact(column, column + k);
    round_trip_activation(format, exact.data(), column, k);
  }
  std::int64_t k;
  int capacity;
  std::vector<float> values;  ///< that the codes stand for
  std::vector<std::byte> bytes;
};

inline std::vector<std::int64_t> lengths(DType t) {
  if (info(t).activation == ActFormat::Q8x256) return {256, 5 * 256, 37 * 256};
  const std::int64_t rest = std::max<std::int64_t>(64, static_cast<std::int64_t>(info(t).block_elems));
  return {rest, 256 + rest, 18 * 256 + rest};
}

}  // namespace llm::cuda::test
