// What a launch of expert_ring.cuh is called with, type by type.
#pragma once

#include "backend/cuda/kernels/token_experts.h"
#include "tensor/dtype.h"

namespace llm::cuda {

inline constexpr int kMostRingExperts = 256, kMostRingRoutes = 32;

/// How a launch learns which experts were chosen.
enum class ExpertsFrom : std::uint8_t {
  Logits,     ///< chooses them
  Before,     ///< a launch before has written them: when the previous one has ended they are there
  Published,  ///< they were there before the previous launch let this one start
};

/// A block goes through its turns: a strip of 16 rows, for some of the experts chosen and each of the targets, which
/// are a gate and what it lets through for one expert, or one matrix for all of them, whose results are added up.
struct ExpertRing {
  Target target[2];
  int targets = 1;
  TokenRoute route;
  ExpertsFrom experts_from = ExpertsFrom::Published;
  const float* x = nullptr;  ///< [columns][k]
  int columns = 1;           ///< 1: of all experts the same; else top_k
  float* y = nullptr;        ///< gated: [top_k][n]; added up: [n]
  Activation activation = Activation::Silu;
  int stages = 0, strips = 0;
  int users = 0;  ///< consumers that go through each visit: all, or as many as it has pieces
  int turns() const { return targets == 2 ? strips * route.op.top_k : strips; }
};

/// Launches it, or only tells whether it could where `at` is null.
template <DType type>
bool launch_expert_ring(ExpertRing, const Launch* at);

}  // namespace llm::cuda
