// What products of more than 64 columns cost with weights decoded on the way to the tensor cores, beside decoding them
// to F16 and multiplying by cuBLASLt: us, and TFLOP/s.
//   bench_wgmma [type]
// Matrices of random bits take turns, more of them than the L2 cache holds; launches are those of a recorded graph.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/finish.h"
#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "base/error.h"
#include "bench_support.h"

using namespace llm;
using namespace llm::cuda;

namespace {

constexpr std::size_t kTurns = std::size_t{640} << 20;  ///< bytes of matrices that take turns; the largest fits
constexpr std::int64_t kDecodedBytes = std::int64_t{32} << 20;

struct Shape {
  const char* name;
  std::int64_t n, k;
};

struct Memory {
  DeviceBuffer weights{kTurns + (std::size_t{1} << 20)}, x{std::size_t{128} << 20}, y{std::size_t{1} << 30};
  DeviceBuffer decoded{2 * static_cast<std::size_t>(kDecodedBytes)}, unscale{std::size_t{1} << 16};
};

/// As a long step's products go.
void by_library(Gemm& gemm, const Target& t, const Memory& memory, int columns, const Launch& at) {
  const std::int64_t height = std::min(t.type.n, kDecodedBytes / (2 * t.type.k) / kTileRows * kTileRows);
  for (std::int64_t row = 0; row < t.type.n; row += height) {
    const std::int64_t rows = std::min(height, t.type.n - row);
    decode_rows_f16(t.type, t.matrix, row, rows, memory.decoded.data(), at);
    gemm.run(DType::F16, memory.decoded.data(), memory.x.data(), t.y + row,
             {.n = static_cast<int>(rows),
              .rows = columns,
              .k = static_cast<int>(t.type.k),
              .ldy = static_cast<int>(t.type.n)},
             at.stream);
  }
  finish_products(t.y, static_cast<int>(t.type.n), columns, reinterpret_cast<const float*>(memory.unscale.data()),
                  nullptr, nullptr, at);
}

void measure(const Stream& stream, Gemm* gemm, const Memory& memory, DType type, const Shape& s, int columns) {
  const MatrixType m{type, s.k, s.n};
  const std::size_t bytes = matrix_bytes(m);
  check(bytes <= kTurns, "a matrix is larger than the memory for all of them");
  const int turns = static_cast<int>(kTurns / bytes), calls = std::clamp(turns, 4, 24);
  const Launch at{.stream = stream.get(), .overlap = true};
  const auto target = [&](int i) {
    return Target{.type = m,
                  .matrix = memory.weights.data() + static_cast<std::size_t>(i % turns) * bytes,
                  .y = reinterpret_cast<float*>(memory.y.data())};
  };
  const double us = microseconds(stream.get(), calls, [&](int i) {
    const Target t = target(i);
    wgmma_products({&t, 1}, memory.x.data(), columns, reinterpret_cast<const float*>(memory.unscale.data()), columns,
                   at);
  });
  const double operations = 2.0 * static_cast<double>(s.n * s.k) * columns;
  std::printf(" %8.1f %4.0f", us, operations / us / 1e6);
  if (gemm == nullptr) return;
  const double library =
      microseconds(stream.get(), calls, [&](int i) { by_library(*gemm, target(i), memory, columns, at); });
  std::printf(" %8.1f %4.0f", library, operations / library / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 || !has_wgmma()) {
    std::puts("SKIPPED: no CUDA device of compute capability 9.0");
    return 0;
  }
  const std::string only = argc > 1 ? argv[1] : "";
  std::string why_not;
  const auto gemm = Gemm::load(current_device(), why_not);
  if (gemm == nullptr) std::printf("without the library: %s\n", why_not.c_str());
  const Stream stream;
  const Memory memory;
  fill_with_bits(memory.weights, 0x3fff3fff);  // halves are finite
  fill_with_bits(memory.x, 0xbbffbbff);
  fill_with_bits(memory.unscale, 0x3f800000);
  const Shape shapes[] = {{"k/v", 1024, 4096},          {"q, k, v", 6144, 4096}, {"o", 4096, 4096},
                          {"gate, up", 28672, 4096},    {"down", 4096, 14336},   {"head", 128256, 4096},
                          {"1b gate, up", 16384, 2048}, {"1b down", 2048, 8192}};
  const int widths[] = {65, 96, 128, 192, 256, 384, 512, 1024, 2048};
  std::printf("wgmma: us TFLOP/s; decoded and by the library: us TFLOP/s\n%-18s", "columns");
  for (const int columns : widths) std::printf(" %27d", columns);
  for (const DType type :
       {DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::Q5_K, DType::Q4_0, DType::IQ4_XS, DType::IQ3_S}) {
    if (!only.empty() && name(type) != only) continue;
    const bool is_main = type == DType::Q4_K || type == DType::Q6_K;
    for (const Shape& s : shapes) {
      if (!is_main && s.n != 4096 && s.n != 28672) continue;
      std::printf("\n%-6s %-11s", std::string(name(type)).c_str(), s.name);
      for (const int columns : widths) {
        if (!is_main && columns > 512) continue;
        if (s.n > 100000 && columns > 1024) continue;
        measure(stream, gemm.get(), memory, type, s, columns);
      }
    }
  }
  std::printf("\n");
  return 0;
}
