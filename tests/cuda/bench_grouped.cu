// What the experts' products of a prompt cost: grouped products on tensor cores, by mma.sync, by wgmma and by wgmma in
// FP8, beside products of tiles with int8 columns, 32 routes at a time. Useful TFLOP/s: two operations for each weight
// of each route.
//   bench_grouped
// Weights are of random bits, routes of random experts; the weights of a launch are more than the L2 cache holds.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/grouped_products.h"
#include "backend/cuda/kernels/half_panels.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/rows.h"
#include "backend/cuda/kernels/wgmma_experts.h"
#include "backend/cuda/kernels/wgmma_products.h"
#include "bench_support.h"

using namespace llm;
using namespace llm::cuda;

namespace {

/// Of one call.
double microseconds(const std::function<void(const Launch&)>& call) {
  static const Stream stream;
  return cuda::microseconds(stream.get(), 1, [&](int) { call({.stream = stream.get()}); });
}

struct Case {
  const char* name;
  int experts, top_k, targets;
  std::int64_t n, k;
  bool by_route;  ///< x has a row for each route
};

/// Random distinct experts for each token; with `skewed` some are chosen far more often than others.
std::vector<std::int32_t> random_ids(const Case& c, int tokens, bool skewed) {
  std::mt19937 rng(1);
  std::vector<std::int32_t> ids;
  for (int t = 0; t < tokens; ++t) {
    const std::size_t begin = ids.size();
    while (ids.size() < begin + static_cast<std::size_t>(c.top_k)) {
      const auto n = static_cast<std::uint32_t>(c.experts);
      const auto e = static_cast<std::int32_t>(skewed ? std::min(rng() % n, rng() % n) : rng() % n);
      if (std::find(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), e) == ids.end()) ids.push_back(e);
    }
  }
  return ids;
}

void measure(const Case& c, DType type, int tokens, bool skewed) {
  const MatrixType m{type, c.k, c.n};
  const std::size_t one = matrix_bytes(m) * static_cast<std::size_t>(c.experts);
  const int routes = tokens * c.top_k, rows = c.by_route ? routes : tokens;
  const DeviceBuffer weights(one * static_cast<std::size_t>(c.targets));
  const DeviceBuffer x(static_cast<std::size_t>(half_panels_bytes(c.k, rows)));  // of rows, too
  const DeviceBuffer y(static_cast<std::size_t>(routes * c.n) * 4 * static_cast<std::size_t>(c.targets));
  const ActFormat format = info(type).activation;
  const DeviceBuffer codes(quantized_bytes(format, c.k, rows));
  fill_with_bits(weights, 0x3fff3fff);  // halves are finite
  fill_with_bits(x, 0xbbffbbff);
  fill_with_bits(codes, 0x3f3f3f3f);
  const std::vector<float> ones(static_cast<std::size_t>(rows), 1.0f);
  const DeviceBuffer unscale(ones.size() * 4);
  check_cuda(cudaMemcpy(unscale.data(), ones.data(), unscale.bytes(), cudaMemcpyHostToDevice), "copying");
  const std::vector<std::int32_t> ids = random_ids(c, tokens, skewed), counts = {tokens, 0, 0, 0};
  const DeviceBuffer device_ids(ids.size() * 4), device_counts(counts.size() * 4);
  check_cuda(cudaMemcpy(device_ids.data(), ids.data(), device_ids.bytes(), cudaMemcpyHostToDevice), "copying");
  check_cuda(cudaMemcpy(device_counts.data(), counts.data(), device_counts.bytes(), cudaMemcpyHostToDevice), "copying");
  StepView step;
  step.counts = reinterpret_cast<const std::int32_t*>(device_counts.data());
  std::vector<Target> targets;
  for (int t = 0; t < c.targets; ++t)
    targets.push_back({.type = m,
                       .matrix = weights.data() + static_cast<std::size_t>(t) * one,
                       .y = reinterpret_cast<float*>(y.data()) +
                            static_cast<std::size_t>(t) * static_cast<std::size_t>(routes * c.n)});
  const DeviceBuffer memory(route_groups_bytes(c.experts, tokens, c.top_k));
  const auto groups_of = [&](int columns) {
    RouteGroups groups = group_routes(reinterpret_cast<const std::int32_t*>(device_ids.data()), c.experts, tokens,
                                      c.top_k, columns, step, memory.data(), {});
    groups.routes_per_row = c.by_route ? 1 : c.top_k;
    check_cuda(cudaDeviceSynchronize(), "grouping");
    return groups;
  };
  RouteGroups groups = groups_of(kGroupedColumns);
  const double grouped = microseconds([&](const Launch& at) {
    grouped_products(targets, {x.data(), nullptr, reinterpret_cast<const float*>(unscale.data())}, groups, at);
  });
  double wgmma = 0;
  if (has_wgmma())
    wgmma = microseconds([&](const Launch& at) {
      wgmma_expert_products(targets, x.data(), rows, reinterpret_cast<const float*>(unscale.data()), groups,
                            routes / c.experts, at);
    });
  const DeviceBuffer row_scales(4 * static_cast<std::size_t>(c.n * c.experts * c.targets));
  const DeviceBuffer x8(static_cast<std::size_t>(c.k * rows));
  fill_with_bits(x8, 0xbfbfbfbf);  // below 2
  std::vector<Float8Target> f8_targets;
  for (const Target& t : targets) {
    auto* const scales = reinterpret_cast<float*>(row_scales.data()) + std::ssize(f8_targets) * c.n * c.experts;
    find_f8_scales({type, c.k, c.n * c.experts}, t.matrix, scales, {});
    f8_targets.push_back({t, scales});
  }
  groups = groups_of(wgmma_expert_columns_f8(routes / c.experts));
  double f8 = 0;
  if (has_wgmma())
    f8 = microseconds([&](const Launch& at) {
      wgmma_expert_products_f8(f8_targets, x8.data(), rows, reinterpret_cast<const float*>(unscale.data()), groups, at);
    });
  groups = groups_of(32);
  const double tiles =
      microseconds([&](const Launch& at) { expert_tile_products(targets, codes.data(), rows, groups, at); });
  const double operations = 2.0 * static_cast<double>(routes * c.n) * static_cast<double>(c.k * c.targets);
  const auto rate = [&](double us) { return us > 0 ? operations / us / 1e6 : 0; };
  std::printf(
      "%-22s %-5s %5d %-8s by mma %9.1f us %6.1f TFLOP/s   by wgmma %9.1f us %6.1f   in FP8 %9.1f us %6.1f   "
      "by int8 tiles %9.1f us %6.1f\n",
      c.name, std::string(name(type)).c_str(), tokens, skewed ? "skewed" : "uniform", grouped, rate(grouped), wgmma,
      rate(wgmma), f8, rate(f8), tiles, rate(tiles));
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("SKIPPED: no CUDA device");
    return 0;
  }
  const Case cases[] = {{"qwen3-30b-a3b gate+up", 128, 8, 2, 768, 2048, false},
                        {"qwen3-30b-a3b down", 128, 8, 1, 2048, 768, true},
                        {"mixtral-8x7b gate+up", 8, 2, 2, 14336, 4096, false},
                        {"mixtral-8x7b down", 8, 2, 1, 4096, 14336, true}};
  for (const Case& c : cases)
    for (const DType type : {DType::Q4_K, DType::Q6_K, DType::Q8_0})
      for (const int tokens : {128, 512, 2048})
        for (const bool skewed : {false, true}) {
          if ((skewed || c.experts == 8) && type != DType::Q4_K) continue;
          measure(c, type, tokens, skewed);
        }
  return 0;
}
