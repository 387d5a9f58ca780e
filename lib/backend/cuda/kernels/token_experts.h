// The experts of one token in two launches: route, gate, up and activation; then down and the weighted sum. Weights of
// all chosen experts stream through the ring's shared memory (expert_ring.cuh). Bits are those of route(),
// expert_tile_products(), glu() and combine().
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/column_products.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/products.h"
#include "graph/op.h"

namespace llm::cuda {

/// The experts that one token is sent to, best first.
struct TokenRoute {
  Route op;
  int experts = 0;
  const float* logits = nullptr;  ///< [experts]
  std::int32_t* ids = nullptr;    ///< [top_k]
  float* weights = nullptr;       ///< [top_k]
};

/// Matrices of one expert. Not before compute capability 9.0, with more than 256 experts or 32 of them chosen, or where
/// the columns leave no room for weights.
struct ExpertShapes {
  MatrixType gate, up, down;
  int experts = 0, top_k = 0;
};
bool takes_token_experts(const ExpertShapes&);

/// Writes route.ids and route.weights, and `y` [top_k][n]: activation(gate x) * (up x) of each expert chosen. `x` [k]
/// is aligned to 16 bytes; the targets' y are not written.
void token_gate_up(const Target& gate, const Target& up, const TokenRoute& route, const float* x, const GatedResult& y,
                   const Launch&);

/// After token_gate_up(), whose route.ids and route.weights it reads before that has ended: nothing else may write
/// them. down.y [n] = the sum over the experts chosen of weight * (down x), x [top_k][k] aligned to 16 bytes.
void token_down(const Target& down, const TokenRoute& route, const float* x, const Launch&);

}  // namespace llm::cuda
