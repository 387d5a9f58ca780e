// The experts of one token in two launches: gate, up and activation; then down and the weighted sum. The first one also
// chooses them where a comparison of logits is all that takes; else route() does before. Weights of all chosen experts
// stream through the ring's shared memory (expert_ring.cuh). Bits are those of route(), expert_tile_products(), glu()
// and combine().
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
  const float* logits = nullptr;  ///< [experts]; null: ids and weights are there before token_gate_up()
  std::int32_t* ids = nullptr;    ///< [top_k]
  float* weights = nullptr;       ///< [top_k]
};

/// Matrices of one expert. Not before compute capability 9.0, with more than 32 experts chosen, or where the columns
/// leave no room for weights.
struct ExpertShapes {
  MatrixType gate, up, down;
  int top_k = 0;
};
bool takes_token_experts(const ExpertShapes&);
/// Whether token_gate_up() can choose the experts: by their logits, of up to 256. More would cost it registers.
bool chooses_token_experts(const Route&, bool has_bias, int experts);

/// Writes `y` [top_k][n]: activation(gate x) * (up x) of each expert chosen, and where it chooses them route.ids and
/// route.weights. `x` [k] is aligned to 16 bytes; the targets' y are not written.
void token_gate_up(const Target& gate, const Target& up, const TokenRoute& route, const float* x, const GatedResult& y,
                   const Launch&);

/// After token_gate_up(), whose route.ids and route.weights it reads before that has ended: nothing else may write
/// them. down.y [n] = the sum over the experts chosen of weight * (down x), x [top_k][k] aligned to 16 bytes.
void token_down(const Target& down, const TokenRoute& route, const float* x, const Launch&);

}  // namespace llm::cuda
