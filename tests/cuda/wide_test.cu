// The wide ring against the kernel of one strip a block, bit for bit: types, shapes of every plan, columns, targets,
// launches that overlap. Its plans and its order through k are tested without a GPU.
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/tile_ring.h"
#include "backend/cuda/kernels/wide_plan.h"
#include "backend/cuda/kernels/wide_ring.cuh"
#include "support/catch.h"
#include "tile_data.h"

using namespace llm;
using namespace llm::cuda;
using namespace llm::cuda::test;

namespace {

constexpr DType kWideTypes[] = {
#define LLM_TYPE(name) DType::name,
    LLM_WIDE_TYPES(LLM_TYPE)
#undef LLM_TYPE
};

bool has_wide_ring() {
  if (!has_device()) return false;
  if (device_limits().capability >= 9) return true;
  std::cout << "SKIPPED: the device is older than compute capability 9.0\n";
  return false;
}

enum class Kernel { Strips, Wide };
constexpr Kernel kKernels[] = {Kernel::Strips, Kernel::Wide};

/// Products of targets that share k and type; the bits of all results, NaN where nothing was written.
struct Products {
  MatrixType type;  ///< of the first
  const DeviceBuffer& x;
  int capacity, first_column, columns;

  TileArguments arguments(const std::vector<Target>& targets) const {
    TileArguments p;
    p.k = type.k;
    p.x = x.data();
    p.x_scales = static_cast<std::uint32_t>(scales_offset(info(type.type).activation, 0, 0, type.k, capacity));
    p.first_column = first_column;
    p.columns = columns;
    for (const Target& t : targets) {
      p.targets[p.n_targets++] = kernel_target(t, p.strips);
      p.strips += static_cast<int>(strips(t.type.n));
    }
    return p;
  }
  void launch_with(Kernel kernel, const std::vector<Target>& targets, const Launch& at) const {
    const TileArguments p = arguments(targets);
    if (kernel == Kernel::Wide) {
      REQUIRE(launch_wide_products(type.type, p, at));
      return;
    }
    switch (type.type) {
#define LLM_CASE(name) \
  case DType::name:    \
    return launch_tile_products<DType::name>(p, at);
      LLM_TILE_TYPES(LLM_CASE)
#undef LLM_CASE
      default:
        FAIL("no tiles");
    }
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Changes codes of x by the bits of y: a kernel between two products.
__global__ void change(std::uint8_t* x, std::size_t bytes, const float* y, std::size_t n) {
  let_next_start();
  wait_for_previous();
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < bytes;
       i += std::size_t{gridDim.x} * blockDim.x)
    x[i] ^= static_cast<std::uint8_t>(__float_as_uint(y[i % n]) >> 13 & 0x0f);
}

void check_products(DType type, std::int64_t n, std::int64_t k, int capacity,
                    std::initializer_list<std::pair<int, int>> columns_of) {
  const Stream stream;
  const test::Rows rows(type, n, k, static_cast<std::uint32_t>(k + 4));
  const Columns x(info(type).activation, k, capacity, capacity, static_cast<std::uint32_t>(k + 5));
  const DeviceBuffer matrix = packed(rows), codes = on_device(x.bytes);
  for (const auto& [first, columns] : columns_of) {
    std::vector<float> results[2];
    for (const Kernel kernel : kKernels) {
      const DeviceBuffer y = poisoned(static_cast<std::size_t>(capacity * n) * 4);
      const Products products{rows.type, codes, capacity, first, columns};
      products.launch_with(kernel, {{.type = rows.type, .matrix = matrix.data(), .y = at<float>(y)}},
                           {.stream = stream.get(), .overlap = columns % 2 == 0});
      results[kernel == Kernel::Wide] = on_host<float>(y);
    }
    INFO(name(type) << " n " << n << " k " << k << " columns " << first << " + " << columns);
    CHECK(same_bits(results[0], results[1]));
  }
}

}  // namespace

TEST_CASE("the wide ring gives the bits of the other kernel: every type", "[wide]") {
  if (!has_wide_ring()) return;
  for (const DType type : kWideTypes) {
    std::vector<std::int64_t> ks = lengths(type);
    ks.push_back(4096);
    for (const std::int64_t k : ks)
      check_products(
          type, k == 4096 ? 2200 : 1000, k, 72,
          {{0, 1}, {8, 7}, {0, 8}, {0, 9}, {0, 16}, {8, 17}, {0, 24}, {0, 31}, {40, 32}, {0, 33}, {8, 50}, {0, 64}});
  }
}

TEST_CASE("the wide ring: shapes that clusters compute, and some for which a block has several tiles", "[wide]") {
  if (!has_wide_ring()) return;
  for (const DType type : {DType::Q4_K, DType::Q6_K, DType::Q8_0}) {
    check_products(type, 40011, 256, 64, {{0, 9}, {0, 32}, {0, 64}});          // two tiles a block
    check_products(type, 20000, 1280, 64, {{0, 16}, {0, 32}, {0, 64}});        // one
    check_products(type, 59, 14336, 64, {{0, 8}, {0, 13}, {0, 25}, {0, 64}});  // few strips, many pieces
    for (const int n : {1, 300, 1024, 2048, 3000, 4096, 5120, 6144})
      check_products(type, n, 4096, 64, {{0, 8}, {0, 10}, {0, 32}, {0, 64}});
    check_products(type, 4096, 14336, 64, {{0, 8}, {0, 16}, {0, 32}, {0, 60}});
  }
}

TEST_CASE("the wide ring: targets of one type with scale and bias", "[wide]") {
  if (!has_wide_ring()) return;
  const std::int64_t k = 11 * 256;
  const std::int64_t n[] = {700, 33, 3000, 1};
  for (const DType type : {DType::Q4_K, DType::Q8_0, DType::Q2_K}) {
    for (const int columns : {12, 32, 64}) {
      const Columns x(info(type).activation, k, columns, columns, 21);
      const DeviceBuffer codes = on_device(x.bytes);
      std::vector<DeviceBuffer> matrices, biases, scales;
      for (std::size_t i = 0; i < 4; ++i) {
        matrices.push_back(packed(test::Rows(type, n[i], k, static_cast<std::uint32_t>(30 + i))));
        biases.push_back(on_device(std::vector<float>(static_cast<std::size_t>(n[i]), 3.0f + static_cast<float>(i))));
        scales.push_back(on_device(std::vector<float>{0.3f + static_cast<float>(i)}));
      }
      std::vector<std::vector<float>> results[2];
      for (const Kernel kernel : kKernels) {
        std::vector<DeviceBuffer> y;
        std::vector<Target> targets;
        for (std::size_t i = 0; i < 4; ++i) {
          y.push_back(poisoned(static_cast<std::size_t>(columns * n[i]) * 4));
          targets.push_back({.type = {type, k, n[i]},
                             .matrix = matrices[i].data(),
                             .bias = i != 1 ? at<float>(biases[i]) : nullptr,
                             .scale = i != 2 ? at<float>(scales[i]) : nullptr,
                             .y = at<float>(y[i])});
        }
        Products{{type, k, n[0]}, codes, columns, 0, columns}.launch_with(kernel, targets, {});
        for (const DeviceBuffer& one : y) results[kernel == Kernel::Wide].push_back(on_host<float>(one));
      }
      INFO(name(type) << " columns " << columns);
      for (std::size_t i = 0; i < 4; ++i) CHECK(same_bits(results[0][i], results[1][i]));
    }
  }
}

TEST_CASE("the wide ring: overlapping launches that depend on each other", "[wide]") {
  if (!has_wide_ring()) return;
  constexpr int kCapacity = 32, kRounds = 60;
  const Stream stream;
  for (const auto& [type, other] : {std::pair{DType::Q4_K, DType::Q6_K}, {DType::Q8_0, DType::Q4_0}}) {
    const ActFormat format = info(type).activation;
    const std::int64_t k = 4096, n[] = {20000, 4000};  // single blocks, and clusters
    const DeviceBuffer matrices[] = {packed(test::Rows(type, n[0], k, 1)), packed(test::Rows(other, n[1], k, 2))};
    const DType types[] = {type, other};
    const Columns x(format, k, kCapacity, kCapacity, 3);
    for (const int columns : {8, 16, 32}) {
      std::vector<float> results[2];
      for (const Kernel kernel : kKernels) {
        const DeviceBuffer codes = on_device(x.bytes);
        const std::size_t round = static_cast<std::size_t>(columns * n[0]);
        const DeviceBuffer y = poisoned(round * kRounds * 4);
        const Launch launch_at{.stream = stream.get(), .overlap = kernel == Kernel::Wide};
        for (int i = 0; i < kRounds; ++i) {
          const int turn = i % 3 == 2 ? 1 : 0;  // two products in a row, without a kernel between them, now and then
          float* to = at<float>(y) + static_cast<std::size_t>(i) * round;
          const MatrixType m{types[turn], k, n[turn]};
          Products{m, codes, kCapacity, 0, columns}.launch_with(
              kernel, {{.type = m, .matrix = matrices[turn].data(), .y = to}}, launch_at);
          if (i % 3 != 1)
            launch(change, dim3(static_cast<unsigned>(i % 5 + 1)), dim3(128), 0, launch_at, at<std::uint8_t>(codes),
                   codes_offset(4, 0, k), to, static_cast<std::size_t>(columns * n[turn]));
        }
        results[kernel == Kernel::Wide] = on_host<float>(y);
      }
      INFO(name(type) << " columns " << columns);
      CHECK(same_bits(results[0], results[1]));
    }
  }
}

TEST_CASE("the wide ring leaves what it cannot do", "[wide]") {
  const DeviceBuffer none;
  Products products{{DType::Q4_K, 256, 16}, none, 64, 4, 16};  // not where a group of columns begins
  CHECK_FALSE(launch_wide_products(DType::Q4_K, products.arguments({}), {}));
  products.first_column = 0;
  CHECK_FALSE(launch_wide_products(DType::IQ1_M, products.arguments({}), {}));
  const std::int32_t n_groups = 1;
  TileArguments grouped = products.arguments({});
  grouped.groups.n_groups = &n_groups;
  CHECK_FALSE(launch_wide_products(DType::Q4_K, grouped, {}));
}

TEST_CASE("a walk goes through the pieces of its slots in the order of their sums", "[wide]") {
  for (const int pieces : {0, 1, 7, 8, 9, 16, 17, 37, 56, 112}) {
    for (const int slots : {1, 2, 4, 8}) {
      std::vector<int> all;
      for (int first = 0; first < kSlots; first += slots) {
        std::vector<int> want, found;
        for (int slot = first; slot < first + slots; ++slot)
          for (const int part : {slot, slot + kSlots})
            for (int piece = 0; piece < pieces; ++piece)
              if (piece % kParts == part) want.push_back(piece);
        for (SlotWalk walk(first, first + slots, pieces); !walk.at_end(); walk.advance()) found.push_back(walk.piece);
        CHECK(found == want);
        all.insert(all.end(), found.begin(), found.end());
      }
      std::sort(all.begin(), all.end());
      CHECK(all.size() == static_cast<std::size_t>(pieces));
      for (int i = 0; i < pieces; ++i) CHECK(all[static_cast<std::size_t>(i)] == i);
    }
  }
}

TEST_CASE("a plan has all strips, and no more of them in a block or a launch than there is room for", "[wide]") {
  const int devices[][4] = {{132, 66, 33, 16}, {114, 56, 26, 12}, {148, 72, 36, 16}, {132, 0, 0, 0}};
  int of_cluster[9] = {};
  for (const auto& clusters : devices) {
    for (const int strips : {1, 2, 17, 64, 128, 256, 320, 384, 1792, 8016, 30000}) {
      for (const int pieces : {1, 8, 16, 56, 112}) {
        for (const int most : {8, 16}) {
          const WideShape shape{.strips = strips,
                                .pieces = pieces,
                                .piece_bytes = 2368,
                                .column_bytes = 9000,
                                .area_bytes = 2048,
                                .groups = most == 8 ? 8 : 4,
                                .most_strips = most,
                                .memory = 200000};
          const WidePlan plan = plan_wide(shape, clusters);
          INFO("strips " << strips << " pieces " << pieces << " most " << most << " cluster " << plan.cluster);
          CHECK(plan.strips >= 1);
          CHECK(plan.strips <= most);
          CHECK(plan.tiles * plan.strips >= strips);
          CHECK((plan.tiles - 1) * plan.strips < strips);
          const auto* which = std::find(std::begin(kWideClusters), std::end(kWideClusters), plan.cluster);
          REQUIRE(which != std::end(kWideClusters));
          if (plan.cluster > 1) CHECK(plan.tiles <= clusters[which - kWideClusters]);
          CHECK(wide_stages(shape, plan) >= kFewestWideStages);
          ++of_cluster[plan.cluster];
        }
      }
    }
  }
  for (const int cluster : kWideClusters) CHECK(of_cluster[cluster] > 0);
}

TEST_CASE("places of a stage neither overlap nor lie where copies cannot reach", "[wide]") {
  const auto check_places = [](auto places) {
    using Places = decltype(places);
    CHECK(places.x_codes() >= places.strips * (places.scales(1) - places.scales(0)) + places.scales(0));
    CHECK(places.scales(0) >= places.codes(places.strips));
    CHECK(places.x_sums() >= places.x_scales() + Places::kScales);
    CHECK(places.stage_bytes() >= places.x_codes() + Places::kX);
    CHECK(places.area(0) >= places.stage(places.stages - 1) + places.stage_bytes());
    for (const int at : {places.codes(1), places.scales(0), places.scales(1), places.x_codes(), places.x_scales(),
                         places.x_sums(), places.stage(1), places.area(0)})
      CHECK(at % 16 == 0);
  };
  for (const int strips : {1, 3, 8}) {
    check_places(WidePlaces<Tile<DType::Q4_K>, 8>{strips, 2, 3});
    check_places(WidePlaces<Tile<DType::Q2_K>, 2>{strips, 1, 4});
    check_places(WidePlaces<Tile<DType::Q8_0>, 4>{strips, 8, 3});
    check_places(WidePlaces<Tile<DType::Q5_1>, 4>{strips, 4, 3});
  }
}
