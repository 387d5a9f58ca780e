#include "backend/cuda/kernels/expert_ring.h"
#include "backend/cuda/kernels/route_token.cuh"
#include "backend/cuda/kernels/token_experts.h"
#include "backend/cuda/kernels/with_tile.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

bool launch_ring(DType type, const ExpertRing& ring, const Launch* at) {
  return has_tiles(type) && with_tile(type, [&](auto of) { return launch_expert_ring<of()>(ring, at); });
}

ExpertRing gate_up_ring(const Target& gate, const Target& up, const TokenRoute& route) {
  const ExpertStep step = route.logits == nullptr            ? ExpertStep::GateUp
                          : route.experts <= kFewRingExperts ? ExpertStep::ChooseFew
                                                             : ExpertStep::Choose;
  return {.step = step, .target = {gate, up}, .route = route};
}
ExpertRing down_ring(const Target& down, const TokenRoute& route) {
  return {.step = ExpertStep::Down, .target = {down}, .route = route};
}

}  // namespace

bool takes_token_experts(const ExpertShapes& s) {
  if (s.top_k < 1 || s.top_k > kMostRingRoutes || s.gate.type != s.up.type || s.gate.n != s.up.n ||
      s.gate.k != s.up.k || s.down.k != s.gate.n)
    return false;
  if (s.gate.n == 0 || s.down.n == 0) return false;
  const TokenRoute route{.op = {.top_k = s.top_k}};
  return launch_ring(s.gate.type, gate_up_ring({.type = s.gate}, {.type = s.up}, route), nullptr) &&
         launch_ring(s.down.type, down_ring({.type = s.down}, route), nullptr);
}

bool chooses_token_experts(const Route& op, bool has_bias, int experts) {
  return chooses_by_logits(op, has_bias) && op.gating == Gating::Softmax && op.weights != RouteWeights::NearBest &&
         experts <= kMostRingExperts;
}

void token_gate_up(const Target& gate, const Target& up, const TokenRoute& route, const float* x, const GatedResult& y,
                   const Launch& at) {
  ExpertRing ring = gate_up_ring(gate, up, route);
  ring.x = x;
  ring.y = y.y;
  ring.activation = y.activation;
  check(launch_ring(gate.type.type, ring, &at), "experts of one token run by the ring");
}

void token_down(const Target& down, const TokenRoute& route, const float* x, const Launch& at) {
  ExpertRing ring = down_ring(down, route);
  ring.x = x;
  ring.y = down.y;
  check(launch_ring(down.type.type, ring, &at), "experts of one token run by the ring");
}

}  // namespace llm::cuda
