#include <type_traits>

#include "backend/cuda/kernels/tile_ring.cuh"

namespace llm::cuda {

namespace {

/// f(A, B, arguments of A, of B), the types as std::type_identity, for the pairs that files of mixed types have among
/// the matrices of one x; false for others.
template <class F>
bool with_pair(DType a, const TileArguments& of_a, DType b, const TileArguments& of_b, const F& f) {
  if (of_a.groups.n_groups != nullptr || of_a.columns > kColumns) return false;
#define LLM_RING_PAIR(first, second)                                                                           \
  if (a == DType::first && b == DType::second)                                                                 \
    return f(std::type_identity<Tile<DType::first>>{}, std::type_identity<Tile<DType::second>>{}, of_a, of_b); \
  if (a == DType::second && b == DType::first)                                                                 \
    return f(std::type_identity<Tile<DType::first>>{}, std::type_identity<Tile<DType::second>>{}, of_b, of_a);
  LLM_RING_PAIR(Q4_K, Q6_K)
  LLM_RING_PAIR(Q5_K, Q6_K)
  LLM_RING_PAIR(Q4_K, Q5_K)
  LLM_RING_PAIR(Q3_K, Q5_K)
#undef LLM_RING_PAIR
  return false;
}

}  // namespace

bool ring_takes_pair(DType a, const TileArguments& of_a, DType b, const TileArguments& of_b) {
  return with_pair(
      a, of_a, b, of_b,
      []<class A, class B>(std::type_identity<A>, std::type_identity<B>, const TileArguments& first,
                           const TileArguments& second) { return ring_launch<A, B>(first, second, 0).has_value(); });
}

bool launch_ring_pair(DType a, const TileArguments& of_a, DType b, const TileArguments& of_b, const Launch& at,
                      const ColumnSource& source) {
  return with_pair(a, of_a, b, of_b,
                   [&]<class A, class B>(std::type_identity<A>, std::type_identity<B>, const TileArguments& first,
                                         const TileArguments& second) {
                     return launch_ring_kernel<A, B, 1>(first, second, {.source = source, .gated = {}}, at);
                   });
}

}  // namespace llm::cuda
