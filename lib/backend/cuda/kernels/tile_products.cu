// Products over tiles: targets of one type share a launch, columns beyond kMaxColumns come in turns.
#include <algorithm>
#include <vector>

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/float_columns.h"
#include "backend/cuda/kernels/tile_products.cuh"
#include "backend/cuda/kernels/tile_ring.h"
#include "backend/cuda/kernels/tiles.cuh"
#include "backend/cuda/kernels/wide_ring.h"
#include "backend/cuda/kernels/with_tile.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

/// Where the wide ring is faster than one strip a block (docs/cuda-kernels.md): the more columns, the sooner; never where few
/// strips share a part of k.
bool pays_wide(const TileArguments& p) {
  return (p.columns > kRingColumns && p.strips >= 1024) || (p.columns > 2 * kRingColumns && p.strips >= 256);
}

/// By the ring wherever it can run: alone, products of a few megabytes are a little slower by it, but whole models are
/// faster, since its weights are on their way before the previous kernel has ended.
void launch_type(DType type, const TileArguments& arguments, const Launch& at) {
  if (pays_wide(arguments) && launch_wide_products(type, arguments, at)) return;
  with_tile(type, [&](auto of) {
    if (!launch_ring_products<of()>(arguments, at)) launch_tile_products<of()>(arguments, at);
  });
}

void add_target(TileArguments& to, const Target& t) {
  to.targets[to.n_targets++] = kernel_target(t, to.strips);
  to.strips += static_cast<int>(strips(t.type.n));
}

/// Targets by type: each is one launch, unless two share it.
struct ByType {
  ByType(std::span<const Target> targets, const TileArguments& arguments) {
    check(targets.size() <= kMaxTargets, "products have too many targets");
    for (const Target& t : targets) {
      if (t.type.n == 0) continue;
      OfType* of = std::find_if(types, types + n, [&](const OfType& o) { return o.type == t.type.type; });
      if (of == types + n) types[n++] = {t.type.type, arguments};
      add_target(of->arguments, t);
    }
  }
  struct OfType {
    DType type;
    TileArguments arguments;
  } types[kMaxTargets];
  int n = 0;
};

void launch_targets(std::span<const Target> targets, const TileArguments& arguments, const Launch& at) {
  const ByType by(targets, arguments);
  const auto &a = by.types[0], &b = by.types[1];
  if (by.n == 2 && launch_ring_pair(a.type, a.arguments, b.type, b.arguments, at)) return;
  for (int i = 0; i < by.n; ++i) launch_type(by.types[i].type, by.types[i].arguments, at);
}

bool ring_takes_type(DType type, const TileArguments& arguments) {
  return has_tiles(type) && with_tile(type, [&](auto of) { return ring_takes<of()>(arguments); });
}
bool launch_ring_type(DType type, const TileArguments& arguments, const RingExtras& extras, const Launch& at) {
  return has_tiles(type) && with_tile(type, [&](auto of) { return launch_ring_products<of()>(arguments, at, extras); });
}

TileArguments arguments_of(std::span<const Target> targets, const std::byte* x, int capacity) {
  const MatrixType& m = targets.front().type;
  const ActFormat format = info(m.type).activation;
  check(quantized_bytes(format, m.k, capacity) <= 0xffffffffu, "activations of 4 GiB or more");
  TileArguments arguments;
  arguments.k = m.k;
  arguments.x = x;
  arguments.x_scales = static_cast<std::uint32_t>(scales_offset(format, 0, 0, m.k, capacity));
  return arguments;
}

}  // namespace

void tile_products(std::span<const Target> targets, const std::byte* x, int capacity, int columns, const Launch& at) {
  if (targets.empty()) return;
  TileArguments arguments = arguments_of(targets, x, capacity);
  for (int first = 0; first < columns; first += kMaxColumns) {
    arguments.first_column = first;
    arguments.columns = std::min(columns - first, kMaxColumns);
    launch_targets(targets, arguments, at);
  }
}

bool makes_norms(std::span<const MatrixType> matrices) {
  return std::all_of(matrices.begin(), matrices.end(),
                     [](const MatrixType& m) { return has_tiles(m.type) || m.n < kFewRows; });
}

bool makes_columns(std::span<const MatrixType> matrices) {
  if (matrices.empty() || matrices.size() > kMaxTargets) return false;
  if (makes_float_column(matrices)) return true;
  std::vector<Target> targets;
  for (const MatrixType& m : matrices) {
    if (!has_tiles(m.type) || m.k != matrices[0].k || m.n == 0) return false;
    targets.push_back({.type = m});
  }
  TileArguments arguments;
  arguments.k = matrices[0].k;
  arguments.columns = 1;
  const ByType by(targets, arguments);
  const auto &a = by.types[0], &b = by.types[1];
  return by.n == 1 ? ring_takes_type(a.type, a.arguments)
                   : by.n == 2 && ring_takes_pair(a.type, a.arguments, b.type, b.arguments);
}

void column_products(std::span<const Target> targets, const ColumnSource& source, const Launch& at,
                     const GatedResult& gated) {
  if (!has_tiles(targets.front().type.type)) return float_column_products(targets, source, at, gated);
  TileArguments arguments;
  arguments.k = targets.front().type.k;
  arguments.columns = 1;
  const ByType by(targets, arguments);
  const auto &a = by.types[0], &b = by.types[1];
  check(gated.y == nullptr || by.n == 1, "a gate and what it lets through are of one type");
  check(by.n == 1 ? launch_ring_type(a.type, a.arguments, {.source = source, .gated = gated}, at)
                  : by.n == 2 && launch_ring_pair(a.type, a.arguments, b.type, b.arguments, at, source),
        "products that make their columns run by the ring");
}

void expert_tile_products(std::span<const Target> targets, const std::byte* x, int capacity, const RouteGroups& groups,
                          const Launch& at) {
  if (targets.empty() || groups.max_groups == 0) return;
  TileArguments arguments = arguments_of(targets, x, capacity);
  arguments.groups = groups;
  launch_targets(targets, arguments, at);
}

}  // namespace llm::cuda
