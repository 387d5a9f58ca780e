// The ring kernel against the kernel of one strip a block, bit for bit: shapes, columns, targets, pairs of types, and
// launches that overlap.
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/tile_ring.h"
#include "support/catch.h"
#include "tile_data.h"

using namespace llm;
using namespace llm::cuda;
using namespace llm::cuda::test;

namespace {

bool has_ring() {
  if (!has_device()) return false;
  if (device_limits().capability >= 9) return true;
  std::cout << "SKIPPED: the device is older than compute capability 9.0\n";
  return false;
}

TileArguments arguments_of(const MatrixType& m, const DeviceBuffer& x, int capacity, int first_column, int columns) {
  TileArguments p;
  p.k = m.k;
  p.x = x.data();
  p.x_scales = static_cast<std::uint32_t>(scales_offset(info(m.type).activation, 0, 0, m.k, capacity));
  p.first_column = first_column;
  p.columns = columns;
  return p;
}
void add_target(TileArguments& p, const Target& t) {
  p.targets[p.n_targets++] = kernel_target(t, p.strips);
  p.strips += static_cast<int>(strips(t.type.n));
}

/// By the kernel of one strip a block, or by the ring; false where it did not run.
bool launch_one(DType type, bool ring, const TileArguments& p, const Launch& at) {
  switch (type) {
#define LLM_CASE(name) \
  case DType::name:    \
    return ring ? launch_ring_products<DType::name>(p, at) : (launch_tile_products<DType::name>(p, at), true);
    LLM_TILE_TYPES(LLM_CASE)
#undef LLM_CASE
    default:
      return false;
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Changes codes of x by the bits of y: a kernel between two products.
__global__ void mix(std::uint8_t* x, std::size_t bytes, const float* y, std::size_t n) {
  let_next_start();
  wait_for_previous();
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < bytes;
       i += std::size_t{gridDim.x} * blockDim.x)
    x[i] ^= static_cast<std::uint8_t>(__float_as_uint(y[i % n]) >> 13 & 0x0f);
}

}  // namespace

TEST_CASE("the ring gives the bits of the other kernel: every type, lengths and columns", "[ring]") {
  if (!has_ring()) return;
  constexpr int kCapacity = 24;
  const Stream stream;
  for (const DType type : kTypes) {
    std::vector<std::int64_t> ks = lengths(type);
    ks.push_back(4096);
    const auto block = static_cast<std::int64_t>(info(type).block_elems);
    ks.push_back(info(type).activation == ActFormat::Q8x256 ? 14336 : 14304 / block * block);
    for (const std::int64_t k : ks) {
      // one strip a block, some blocks with two, and many for each
      const std::int64_t n = k == ks.front() ? 20011 : k == 4096 ? 2200 : 59;
      const test::Rows rows(type, n, k, static_cast<std::uint32_t>(k + 2));
      const Columns x(info(type).activation, k, kCapacity, kCapacity, static_cast<std::uint32_t>(k + 3));
      const DeviceBuffer matrix = packed(rows), codes = on_device(x.bytes);
      for (const auto& [first, columns] : {std::pair{0, 1}, {0, 2}, {3, 3}, {0, 5}, {0, 8}, {8, 7}, {0, 9}, {5, 16}}) {
        std::vector<float> results[2];
        bool ran = true;
        for (const bool ring : {false, true}) {
          const DeviceBuffer y = poisoned(static_cast<std::size_t>(kCapacity * n) * 4);
          TileArguments p = arguments_of(rows.type, codes, kCapacity, first, columns);
          add_target(p, {.type = rows.type, .matrix = matrix.data(), .y = at<float>(y)});
          ran = launch_one(type, ring, p, {.stream = stream.get(), .overlap = columns % 2 != 0});
          results[ring] = on_host<float>(y);
        }
        INFO(name(type) << " k " << k << " columns " << first << " + " << columns);
        if (columns <= 8 || k < 5000) CHECK(ran);  // 16 columns of 9472 and their scales leave too little room
        if (ran) CHECK(same_bits(results[0], results[1]));
      }
    }
  }
}

TEST_CASE("the ring: targets of one type with scale and bias", "[ring]") {
  if (!has_ring()) return;
  const std::int64_t k = 11 * 256;
  const std::int64_t n[] = {700, 33, 3000, 1};
  for (const DType type : {DType::Q4_K, DType::Q8_0, DType::Q2_K}) {
    const Columns x(info(type).activation, k, 3, 3, 21);
    const DeviceBuffer codes = on_device(x.bytes);
    std::vector<DeviceBuffer> matrices, biases, scales;
    for (std::size_t i = 0; i < 4; ++i) {
      matrices.push_back(packed(test::Rows(type, n[i], k, static_cast<std::uint32_t>(30 + i))));
      biases.push_back(on_device(std::vector<float>(static_cast<std::size_t>(n[i]), 3.0f + static_cast<float>(i))));
      scales.push_back(on_device(std::vector<float>{0.3f + static_cast<float>(i)}));
    }
    std::vector<std::vector<float>> results[2];
    for (const bool ring : {false, true}) {
      std::vector<DeviceBuffer> y;
      TileArguments p = arguments_of({type, k, n[0]}, codes, 3, 0, 3);
      for (std::size_t i = 0; i < 4; ++i) {
        y.push_back(poisoned(static_cast<std::size_t>(3 * n[i]) * 4));
        add_target(p, {.type = {type, k, n[i]},
                       .matrix = matrices[i].data(),
                       .bias = i != 1 ? at<float>(biases[i]) : nullptr,
                       .scale = i != 2 ? at<float>(scales[i]) : nullptr,
                       .y = at<float>(y[i])});
      }
      CHECK(launch_one(type, ring, p, {}));
      for (const DeviceBuffer& one : y) results[ring].push_back(on_host<float>(one));
    }
    INFO(name(type));
    for (std::size_t i = 0; i < 4; ++i) CHECK(same_bits(results[0][i], results[1][i]));
  }
}

TEST_CASE("the ring: two types in one launch", "[ring]") {
  if (!has_ring()) return;
  for (const auto& [a, b] : {std::pair{DType::Q4_K, DType::Q6_K},
                             {DType::Q6_K, DType::Q5_K},
                             {DType::Q5_K, DType::Q4_K},
                             {DType::Q3_K, DType::Q5_K}}) {
    for (const std::int64_t k : {3 * 256, 4096}) {
      for (const auto& [n_a, n_b] : {std::pair{5000, 1024}, {20, 2200}, {16, 1}}) {
        const Columns x(ActFormat::Q8x256, k, 8, 8, 5);
        const DeviceBuffer codes = on_device(x.bytes);
        const MatrixType types[] = {{a, k, n_a}, {b, k, n_b}};
        const DeviceBuffer matrices[] = {packed(test::Rows(a, n_a, k, 1)), packed(test::Rows(b, n_b, k, 2))};
        for (const int columns : {1, 8}) {
          std::vector<float> results[2][2];
          for (const bool ring : {false, true}) {
            const DeviceBuffer y[] = {poisoned(static_cast<std::size_t>(8 * n_a) * 4),
                                      poisoned(static_cast<std::size_t>(8 * n_b) * 4)};
            TileArguments p[2];
            for (std::size_t i = 0; i < 2; ++i) {
              p[i] = arguments_of(types[i], codes, 8, 0, columns);
              add_target(p[i], {.type = types[i], .matrix = matrices[i].data(), .y = at<float>(y[i])});
              if (!ring) launch_one(types[i].type, false, p[i], {});
            }
            if (ring) CHECK(launch_ring_pair(a, p[0], b, p[1], {}));
            for (std::size_t i = 0; i < 2; ++i) results[ring][i] = on_host<float>(y[i]);
          }
          INFO(name(a) << " " << name(b) << " k " << k << " n " << n_a << ", " << n_b << " columns " << columns);
          CHECK(same_bits(results[0][0], results[1][0]));
          CHECK(same_bits(results[0][1], results[1][1]));
        }
      }
    }
  }
}

TEST_CASE("the ring: overlapping launches that depend on each other", "[ring]") {
  if (!has_ring()) return;
  constexpr int kCapacity = 8, kRounds = 60;
  const Stream stream;
  for (const auto& [type, other] : {std::pair{DType::Q4_K, DType::Q6_K}, {DType::Q8_0, DType::Q4_0}}) {
    const ActFormat format = info(type).activation;
    const std::int64_t k = 4096, n[] = {5000, 700};
    const DeviceBuffer matrices[] = {packed(test::Rows(type, n[0], k, 1)), packed(test::Rows(other, n[1], k, 2))};
    const DType types[] = {type, other};
    const Columns x(format, k, kCapacity, kCapacity, 3);
    for (const int columns : {1, 8}) {
      std::vector<float> results[2];
      for (const bool ring : {false, true}) {
        const DeviceBuffer codes = on_device(x.bytes);
        const std::size_t round = static_cast<std::size_t>(columns * n[0]);
        const DeviceBuffer y = poisoned(round * kRounds * 4);
        const Launch launch_at{.stream = stream.get(), .overlap = ring};
        for (int i = 0; i < kRounds; ++i) {
          const int turn = i % 3 == 2 ? 1 : 0;  // two products in a row, without a kernel between them, now and then
          float* to = at<float>(y) + static_cast<std::size_t>(i) * round;
          TileArguments p = arguments_of({types[turn], k, n[turn]}, codes, kCapacity, 0, columns);
          add_target(p, {.type = {types[turn], k, n[turn]}, .matrix = matrices[turn].data(), .y = to});
          CHECK(launch_one(types[turn], ring, p, launch_at));
          if (i % 3 != 1)
            launch(mix, dim3(static_cast<unsigned>(i % 5 + 1)), dim3(128), 0, launch_at, at<std::uint8_t>(codes),
                   codes_offset(1, 0, k), to, static_cast<std::size_t>(columns * n[turn]));
        }
        results[ring] = on_host<float>(y);
      }
      INFO(name(type) << " columns " << columns);
      CHECK(same_bits(results[0], results[1]));
    }
  }
}
