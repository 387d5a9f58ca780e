// What a launch of expert_ring.cuh is called with, type by type.
#pragma once

#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/token_experts.h"
#include "tensor/dtype.h"

namespace llm::cuda {

inline constexpr int kMostRingExperts = 256, kMostRingRoutes = 32;

/// What a launch does, and how it learns which experts were chosen. Each is a kernel of its own, as ways to columns are
/// (ColumnWay).
enum class ExpertStep : std::uint8_t {
  ChooseFew,  ///< gate and up; chooses among at most kFewRingExperts
  Choose,     ///< the same among at most kMostRingExperts
  GateUp,     ///< a launch before has written which: when the previous one has ended, it is there
  Down,       ///< which was there before the previous launch let this one start
};
inline constexpr int kFewRingExperts = 128;
LLM_HOST_DEVICE constexpr bool chooses(ExpertStep step) {
  return step == ExpertStep::ChooseFew || step == ExpertStep::Choose;
}

/// A block goes through its turns: a strip of 16 rows, for some of the experts chosen and each of the targets, which
/// are a gate and what it lets through for one expert, or one matrix for all of them, whose results are added up.
struct ExpertRing {
  ExpertStep step = ExpertStep::Down;
  Target target[2];  ///< gate and up, or down alone
  TokenRoute route;
  const float* x = nullptr;  ///< [ring_columns()][k]
  float* y = nullptr;        ///< gated: [top_k][n]; added up: [n]
  Activation activation = Activation::Silu;
  int stages = 0, strips = 0;
  int users = 0;  ///< consumers that go through each visit: all, or as many as it has pieces
  int turns() const { return step == ExpertStep::Down ? strips : strips * route.op.top_k; }
};

/// How many columns a launch has: one for all experts, or each its own.
LLM_HOST_DEVICE constexpr int ring_columns(ExpertStep step, int top_k) { return step == ExpertStep::Down ? top_k : 1; }

/// Launches it, or only tells whether it could where `at` is null.
template <DType type>
bool launch_expert_ring(ExpertRing, const Launch* at);

}  // namespace llm::cuda
