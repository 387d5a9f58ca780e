// What products over tiles, their decoding and their packing cost beside the memory's speed, measured in the same run:
//   bench_tiles [type]
// Matrices of random bits take turns, more of them than the L2 cache holds; launches are those of a recorded graph.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/tile_ring.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "backend/cuda/kernels/wide_ring.h"
#include "base/error.h"
#include "bench_support.h"

using namespace llm;
using namespace llm::cuda;

namespace {

constexpr std::size_t kTurns = std::size_t{640} << 20;  ///< bytes of matrices that take turns; the largest fits

__global__ void __launch_bounds__(512) read_all(const uint4* from, std::size_t n, unsigned* out) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned sum = 0;
  std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  for (; i + 7 * stride < n; i += 8 * stride) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __ldcs(from + i + static_cast<std::size_t>(j) * stride);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345678) *out = sum;
}

/// Which kernel; Chosen is tile_products().
enum class Kernel { Strips, Ring, Wide, Chosen };

/// A product by the kernel asked for. False where it cannot run.
bool product(Kernel kernel, const Target& t, const std::byte* x, int capacity, int columns, const Launch& at) {
  if (kernel == Kernel::Chosen) {
    tile_products({&t, 1}, x, capacity, columns, at);
    return true;
  }
  TileArguments p;
  p.targets[0] = {.matrix = t.matrix, .y = t.y, .n = static_cast<int>(t.type.n)};
  p.n_targets = 1;
  p.strips = static_cast<int>(strips(t.type.n));
  p.k = t.type.k;
  p.x = x;
  p.x_scales = static_cast<std::uint32_t>(scales_offset(info(t.type.type).activation, 0, 0, t.type.k, capacity));
  p.columns = columns;
  if (kernel == Kernel::Wide) return launch_wide_products(t.type.type, p, at);
  switch (t.type.type) {
#define LLM_CASE(name)                                                           \
  case DType::name:                                                              \
    if (kernel == Kernel::Ring) return launch_ring_products<DType::name>(p, at); \
    launch_tile_products<DType::name>(p, at);                                    \
    return true;
    LLM_TILE_TYPES(LLM_CASE)
#undef LLM_CASE
    default:
      return false;
  }
}

/// A small kernel that needs what the last one wrote, as a norm or attention does.
__global__ void between(const float* from, float* to) {
  let_next_start();
  wait_for_previous();
  to[blockIdx.x * blockDim.x + threadIdx.x] = from[threadIdx.x] + 1;
}

/// The products of a layer of an 8B model in Q4_K and Q6_K with small kernels between them: what boundaries cost.
void print_layers(const Stream& stream, const DeviceBuffer& weights, const DeviceBuffer& x, const DeviceBuffer& y,
                  double limit) {
  std::printf("\n4 layers of an 8B model, overlapping: q, k (Q4_K), v (Q6_K) | o | gate, up | down (Q6_K)\n");
  constexpr int kLayers = 4;
  auto* to = reinterpret_cast<float*>(y.data());
  float* other = to + (std::size_t{3} << 22);
  for (const int columns : {1, 2, 4, 8, 16, 32, 64}) {
    for (const bool ring : {false, true}) {
      for (const bool small : {false, true}) {
        std::size_t used = 0, written = 0;  // bytes of weights, floats of results
        const auto take = [&](const MatrixType& m) {
          const std::byte* at = weights.data() + used;
          used += matrix_bytes(m);
          check(used <= weights.bytes(), "the layers take more than there is");
          written += static_cast<std::size_t>(columns * m.n);
          return Target{.type = m, .matrix = at, .y = to + written - columns * m.n};
        };
        const Launch at{.stream = stream.get(), .overlap = true};
        const auto call = [&](std::initializer_list<MatrixType> types) {
          std::vector<Target> targets;
          for (const MatrixType& m : types) targets.push_back(take(m));
          if (ring) tile_products(targets, x.data(), 64, columns, at);
          if (!ring)
            for (const Target& t : targets) product(Kernel::Strips, t, x.data(), 64, columns, at);
          if (small) launch(between, dim3(16), dim3(256), 0, at, to, other);
        };
        const double us = microseconds(stream.get(), kLayers, [&](int i) {
          if (i == 0) used = written = 0;
          call({{DType::Q4_K, 4096, 4096}, {DType::Q4_K, 4096, 1024}, {DType::Q6_K, 4096, 1024}});
          call({{DType::Q4_K, 4096, 4096}});
          call({{DType::Q4_K, 4096, 14336}, {DType::Q4_K, 4096, 14336}});
          call({{DType::Q6_K, 14336, 4096}});
        });
        const double bytes = static_cast<double>(used) / kLayers;
        std::printf("%d columns, %-22s %-22s %6.1f MB a layer %7.2f us %4.0f%%\n", columns,
                    ring ? "as tile_products() does" : "one strip a block",
                    small ? "4 small kernels" : "products alone", bytes / 1e6, us, 100 * bytes / us / limit);
      }
    }
  }
}

struct Shape {
  const char* name;
  std::int64_t n, k;
};

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("SKIPPED: no CUDA device");
    return 0;
  }
  const std::string only = argc > 1 ? argv[1] : "";
  const Stream stream;
  const DeviceBuffer weights(kTurns + (std::size_t{1} << 20)), x(std::size_t{64} << 20), y(std::size_t{64} << 20);
  const DeviceBuffer out(std::size_t{1} << 30);
  // bits without the exponents' top ones: halves are finite
  fill_with_bits(weights, 0x3fff3fff);
  fill_with_bits(x, 0x3f3f3f3f);
  const double read_us = microseconds(stream.get(), 4, [&](int) {
    read_all<<<132 * 4, 512, 0, stream.get()>>>(reinterpret_cast<const uint4*>(weights.data()), kTurns / 16,
                                                reinterpret_cast<unsigned*>(y.data()));
  });
  const double limit = static_cast<double>(kTurns) / read_us;  // bytes a microsecond
  std::printf("read limit %.2f TB/s\n", limit / 1e6);

  const DType types[] = {DType::Q4_K,  DType::Q6_K,   DType::Q8_0,   DType::Q5_K,  DType::Q4_0,
                         DType::MXFP4, DType::IQ4_XS, DType::IQ2_XS, DType::IQ3_S, DType::Q1_0};
  const Shape shapes[] = {
      {"kv 512x4096", 512, 4096},         {"k/v 1024x4096", 1024, 4096},       {"o 4096x4096", 4096, 4096},
      {"qkv 6144x4096", 6144, 4096},      {"gate+up 28672x4096", 28672, 4096}, {"down 4096x14336", 4096, 14336},
      {"head 128256x4096", 128256, 4096}, {"1b o 2048x2048", 2048, 2048},      {"1b down 2048x8192", 2048, 8192}};
  std::printf(
      "\nproducts: us and %% of the read limit, launches overlap; s: one strip a block, r: ring, w: wide ring\n"
      "%-7s %-19s %7s",
      "type", "shape", "MB");
  struct Case {
    const char* name;
    int columns;
    Kernel kernel;
  };
  const Case cases[] = {{"1 s", 1, Kernel::Strips},   {"1 r", 1, Kernel::Ring},     {"2 r", 2, Kernel::Ring},
                        {"4 r", 4, Kernel::Ring},     {"8 s", 8, Kernel::Strips},   {"8 r", 8, Kernel::Ring},
                        {"8 w", 8, Kernel::Wide},     {"16 s", 16, Kernel::Strips}, {"16 r", 16, Kernel::Ring},
                        {"16 w", 16, Kernel::Wide},   {"32 s", 32, Kernel::Strips}, {"32 w", 32, Kernel::Wide},
                        {"64 s", 64, Kernel::Strips}, {"64 w", 64, Kernel::Wide}};
  for (const Case& c : cases) std::printf(" %13s", c.name);
  std::printf("\n");
  for (const DType type : types) {
    if (!only.empty() && name(type) != only) continue;
    for (const Shape& s : shapes) {
      const bool is_main = type == DType::Q4_K || type == DType::Q6_K || type == DType::Q8_0;
      if (!is_main && s.n != 4096 && s.n != 28672) continue;
      const MatrixType m{type, s.k, s.n};
      const std::size_t bytes = matrix_bytes(m);
      check(bytes <= kTurns, "a matrix is larger than the memory for all of them");
      const int turns = static_cast<int>(kTurns / bytes), calls = std::clamp(turns, 4, 60);
      std::printf("%-7s %-19s %7.1f", std::string(name(type)).c_str(), s.name, static_cast<double>(bytes) / 1e6);
      for (const Case& c : cases) {
        bool ran = true;
        const double us = microseconds(stream.get(), calls, [&](int i) {
          const Target t{.type = m,
                         .matrix = weights.data() + static_cast<std::size_t>(i % turns) * bytes,
                         .y = reinterpret_cast<float*>(y.data())};
          ran = ran && product(c.kernel, t, x.data(), 64, c.columns, {.stream = stream.get(), .overlap = true});
        });
        if (ran)
          std::printf(" %7.2f %4.0f%%", us, 100 * static_cast<double>(bytes) / us / limit);
        else
          std::printf(" %13s", "-");
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  if (only.empty()) print_layers(stream, weights, x, y, limit);

  std::printf("\nexperts: top 8 of 128, gate and up 768 x 2048, then down 2048 x 768, one token\n");
  for (const DType type : {DType::Q4_K, DType::Q6_K}) {
    if (!only.empty() && name(type) != only) continue;
    std::vector<std::int32_t> lists = {8};  // n_groups; expert, first, count, routes of 8
    for (int i = 0; i < 8; ++i) lists.push_back(15 * i + 3);
    for (int i = 0; i < 8; ++i) lists.push_back(i);
    for (int i = 0; i < 8; ++i) lists.push_back(1);
    for (int i = 0; i < 8; ++i) lists.push_back(i);
    const DeviceBuffer device_lists(lists.size() * 4);
    check_cuda(cudaMemcpy(device_lists.data(), lists.data(), device_lists.bytes(), cudaMemcpyHostToDevice), "copying");
    const auto* list = reinterpret_cast<const std::int32_t*>(device_lists.data());
    RouteGroups groups{.n_groups = list,
                       .expert = list + 1,
                       .first = list + 9,
                       .count = list + 17,
                       .routes = list + 25,
                       .max_groups = 8,
                       .columns = 8,
                       .routes_per_row = 8};
    for (const bool is_down : {false, true}) {
      const MatrixType m{type, is_down ? 768 : 2048, is_down ? 2048 : 768};
      groups.routes_per_row = is_down ? 1 : 8;
      const std::size_t bytes = matrix_bytes(m);
      const int n_targets = is_down ? 1 : 2;
      const std::size_t all = bytes * 128 * static_cast<std::size_t>(n_targets);
      const int turns = static_cast<int>(std::max<std::size_t>(1, kTurns / all));
      const double us = microseconds(stream.get(), 40, [&](int i) {
        const std::byte* matrix = weights.data() + static_cast<std::size_t>(i % turns) * all;
        std::vector<Target> targets;
        for (int t = 0; t < n_targets; ++t)
          targets.push_back({.type = m,
                             .matrix = matrix + static_cast<std::size_t>(t) * 128 * bytes,
                             .y = reinterpret_cast<float*>(y.data()) + t * 65536});
        expert_tile_products(targets, x.data(), 64, groups, {.stream = stream.get(), .overlap = true});
      });
      const double read = static_cast<double>(bytes) * 8 * n_targets;
      std::printf("%-7s %-8s %5.1f MB %7.2f us %4.0f%%\n", std::string(name(type)).c_str(),
                  is_down ? "down" : "gate+up", read / 1e6, us, 100 * read / us / limit);
    }
  }

  std::printf(
      "\ndecoding 8192 x 4096 to F16 (read and written bytes, %% of the read limit); packing (bytes of tiles)\n");
  for (const DType type : types) {
    if (!only.empty() && name(type) != only) continue;
    const MatrixType m{type, 4096, 8192};
    const std::size_t bytes = matrix_bytes(m);
    const int turns = static_cast<int>(std::max<std::size_t>(1, kTurns / bytes));
    const double decode_us = microseconds(stream.get(), 8, [&](int i) {
      decode_rows_f16(m, weights.data() + static_cast<std::size_t>(i % turns) * bytes, 0, m.n,
                      out.data() + static_cast<std::size_t>(i % 8) * (std::size_t{64} << 20),
                      {.stream = stream.get(), .overlap = false});
    });
    const double pack_us = microseconds(stream.get(), 4, [&](int i) {
      pack_rows(m, weights.data() + static_cast<std::size_t>(i % turns) * bytes, 0, m.n, out.data(),
                {.stream = stream.get(), .overlap = false});
    });
    const double moved = static_cast<double>(bytes) + static_cast<double>(m.n * m.k) * 2;
    std::printf("%-7s decode %8.1f us %4.0f%%   pack %8.1f us %5.2f TB/s\n", std::string(name(type)).c_str(), decode_us,
                100 * moved / decode_us / limit, pack_us, static_cast<double>(bytes) / pack_us / 1e6);
  }
  return 0;
}
