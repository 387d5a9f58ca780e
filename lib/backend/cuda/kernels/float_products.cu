// Products of F32, F16 and BF16 matrices with f32 columns.
//
// One column is bound by memory: 2 or 4 bytes per weight for one conversion and one FMA, half an instruction per byte
// at most, where the issue slots of an H200 allow 6 at its bandwidth; expected at 90 % or more of the read limit on
// matrices of 30 MB and more. Eight columns of F16 take 4 FMAs and an eighth of a load of x per byte: 80 % of the slots
// at full bandwidth, expected at 60-75 % of the limit; F32 half of that. More columns repeat this in turns of eight
// that run beside one another, so that the weights come from L2.
#include <algorithm>
#include <array>

#include "backend/cuda/kernels/float_products.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/products.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kThreads = kProductThreads;
constexpr int kColumnsInHand = 8;

/// Turns of kCols columns, those of one block of rows beside one another.
template <class Type, int kPerLoad, int kCols, int kRows, int kAhead>
__global__ void __launch_bounds__(kThreads, kCols == 8 || kRows == 4 ? 2 : 3)
    float_kernel(const __grid_constant__ FloatProducts products, const int columns) {
  let_next_start();
  const int turns = (columns + kCols - 1) / kCols;
  const int block = static_cast<int>(blockIdx.x) / turns, first = static_cast<int>(blockIdx.x) % turns * kCols;
  const int t = target_of(products, block);
  const BlockColumns some{first, min(kCols, columns - first), nullptr, 1};
  finish(products, t, 0, some,
         multiply_block<Type, kPerLoad, kCols, kRows, kAhead>(task_of(products, t, block, kRows, 0), some,
                                                              WrittenColumns{products.x}));
}

/// The weights to read are known when the groups are: nothing is loaded ahead of the previous kernel's end.
template <class Type, int kPerLoad, int kRows, int kAhead>
__global__ void __launch_bounds__(kThreads, 2)
    float_expert_kernel(const __grid_constant__ FloatProducts products, const __grid_constant__ RouteGroups groups) {
  let_next_start();
  wait_for_previous();
  const int group = static_cast<int>(blockIdx.x) / products.blocks;
  const int block = static_cast<int>(blockIdx.x) % products.blocks;
  if (group >= *groups.n_groups) return;
  const int t = target_of(products, block), expert = groups.expert[group];
  const BlockTask task = task_of(products, t, block, kRows, expert);
  const int first = groups.first[group], count = groups.count[group];
  for (int c = 0; c < count; c += kColumnsInHand) {
    const BlockColumns some{first + c, min(kColumnsInHand, count - c), groups.routes, groups.routes_per_row};
    const WrittenColumns x{products.x};
    const BlockTotal total = some.count == 1   ? multiply_block<Type, kPerLoad, 1, kRows, kAhead>(task, some, x)
                             : some.count == 2 ? multiply_block<Type, kPerLoad, 2, kRows, kAhead>(task, some, x)
                             : some.count <= 4 ? multiply_block<Type, kPerLoad, 4, kRows, kAhead>(task, some, x)
                                               : multiply_block<Type, kPerLoad, 8, kRows, 1>(task, some, x);
    finish(products, t, expert, some, total);
  }
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// A matter of the matrix and of where operands begin, not of how many columns there are.
bool wide(const Target& t, const float* x) { return loads_wide(t.type) && aligned(t.matrix) && aligned(x); }

/// Calls `f(type, wide, those of the targets that share both)`.
template <class F>
void by_type(std::span<const Target> targets, const float* x, F f) {
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    for (const bool is_wide : {true, false}) {
      std::array<Target, kMaxTargets> some;
      std::size_t count = 0;
      for (const Target& t : targets) {
        if (t.type.type == type && wide(t, x) == is_wide) some[count++] = t;
      }
      if (count > 0) f(type, is_wide, std::span(some).first(count));
    }
  }
}

void check_targets(std::span<const Target> targets) {
  check(targets.size() <= kMaxTargets, "a call has at most kMaxTargets products");
  for (const Target& t : targets) {
    check(t.type.type == DType::F32 || t.type.type == DType::F16 || t.type.type == DType::BF16,
          "a float product is of a float type");
    check(t.type.k == targets[0].type.k && t.type.k > 0 && t.type.k < (1 << 30) && t.type.n > 0 && t.type.n < (1 << 30),
          "the products of a call share k");
  }
}

/// A kernel with what its launch needs to know of it.
struct FloatKernel {
  void (*kernel)(FloatProducts, int);
  int columns, rows, per_load;
};
template <class Type, int kPerLoad, int kCols, int kRows, int kAhead>
FloatKernel float_kernel_of() {
  return {float_kernel<Type, kPerLoad, kCols, kRows, kAhead>, kCols, kRows, kPerLoad};
}

/// Few rows: one per warp, so that there are more blocks than multiprocessors.
template <class Type>
FloatKernel choose(bool is_wide, bool few_rows, int columns) {
  if (!is_wide) return columns == 1 ? float_kernel_of<Type, 1, 1, 1, 8>() : float_kernel_of<Type, 1, 8, 1, 4>();
  constexpr int kPerLoad = 16 / Type::kBytes;
  if (few_rows) {
    return columns == 1 ? float_kernel_of<Type, kPerLoad, 1, 1, 6>() : float_kernel_of<Type, kPerLoad, 8, 1, 2>();
  }
  if (columns == 1) return float_kernel_of<Type, kPerLoad, 1, 2, 3>();
  if (columns == 2) return float_kernel_of<Type, kPerLoad, 2, 2, 3>();
  if (columns <= 4) return float_kernel_of<Type, kPerLoad, 4, 4, 2>();
  return float_kernel_of<Type, kPerLoad, 8, 4, 1>();  // 32 sums leave no registers for more
}

template <class Type>
void launch_experts(std::span<const Target> targets, bool is_wide, const float* x, const RouteGroups& groups,
                    const Launch& at) {
  constexpr int kWide = 16 / Type::kBytes;
  const FloatProducts p = float_products_of(targets, x, is_wide ? kWide : 1, is_wide ? kExpertRows : 1, true);
  const std::int64_t blocks = std::int64_t{p.blocks} * groups.max_groups;
  check(blocks < (std::int64_t{1} << 31), "groups of routes are of a step's size");
  launch(is_wide ? float_expert_kernel<Type, kWide, kExpertRows, 2> : float_expert_kernel<Type, 1, 1, 4>,
         dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, at, p, groups);
}

}  // namespace

bool loads_wide(const MatrixType& m) {
  return m.n >= kExpertRows && m.k * static_cast<std::int64_t>(info(m.type).block_bytes) % 16 == 0;
}
bool has_few_rows(std::span<const Target> targets) {
  return std::all_of(targets.begin(), targets.end(), [](const Target& t) { return t.type.n < kFewRows; });
}

FloatProducts float_products_of(std::span<const Target> targets, const float* x, int per_load, int rows_in_hand,
                                bool experts) {
  FloatProducts p;
  p.k = static_cast<int>(targets[0].type.k);
  p.x = x;
  for (const Target& t : targets) {
    FloatTarget& to = p.target[p.targets++];
    to.matrix = t.matrix;
    to.bias = t.bias;
    to.scale = t.scale;
    to.y = t.y;
    to.expert_bytes = experts ? static_cast<std::int64_t>(matrix_bytes(t.type)) : 0;
    to.n = static_cast<int>(t.type.n);
    to.split = row_split(t.type.k, t.type.n, per_load);
    to.first_block = p.blocks;
    const int rows = block_rows(to.split, rows_in_hand);
    p.blocks += (to.n + rows - 1) / rows;
  }
  return p;
}

void float_products(std::span<const Target> targets, const float* x, int columns, const Launch& at) {
  check_targets(targets);
  if (columns == 0) return;
  by_type(targets, x, [&](DType type, bool is_wide, std::span<const Target> some) {
    const bool few_rows = has_few_rows(some);
    const FloatKernel f = type == DType::F32   ? choose<F32Rows>(is_wide, few_rows, columns)
                          : type == DType::F16 ? choose<F16Rows>(is_wide, few_rows, columns)
                                               : choose<Bf16Rows>(is_wide, few_rows, columns);
    const FloatProducts p = float_products_of(some, x, f.per_load, f.rows, false);
    const std::int64_t blocks = std::int64_t{p.blocks} * ((columns + f.columns - 1) / f.columns);
    check(blocks < (std::int64_t{1} << 31), "columns are of a step's size");
    launch(f.kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, at, p, columns);
  });
}

void expert_float_products(std::span<const Target> targets, const float* x, const RouteGroups& groups,
                           const Launch& at) {
  check_targets(targets);
  if (groups.max_groups == 0) return;
  by_type(targets, x, [&](DType type, bool is_wide, std::span<const Target> some) {
    if (type == DType::F32) return launch_experts<F32Rows>(some, is_wide, x, groups, at);
    if (type == DType::F16) return launch_experts<F16Rows>(some, is_wide, x, groups, at);
    launch_experts<Bf16Rows>(some, is_wide, x, groups, at);
  });
}

}  // namespace llm::cuda
