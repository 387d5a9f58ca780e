// Everything that works row by row: norms, activations, rotary embedding, the router and the weighted sum of experts;
// and the forms in which products take rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"

namespace llm::cuda {

/// What one of Forms::f16_rest stands for, before the row's factor. It is up to 2^-12 of its element: half of that is
/// taken from it and half is left to what it is multiplied with, so that neither leaves F16's normal numbers soon.
inline constexpr float kRestUnit = 0x1p-6f;

/// The forms of rows [rows][n] that a kernel writes; null ones are not.
struct Forms {
  float* f32 = nullptr;
  std::byte* q8x256 = nullptr;  ///< act_layout.h, with room for `capacity` columns
  std::byte* q8x32 = nullptr;
  float* rounded_bf16 = nullptr;    ///< f32 that hold the values rounded to BF16
  void* f16 = nullptr;              ///< [rows][n] of F16, each row times a power of two that keeps it finite
  void* f16_rest = nullptr;         ///< with f16, [rows][n] of F16: what it leaves of the row, in kRestUnit
  std::byte* f16_panels = nullptr;  ///< the same as half_panels.h has them, with room for `capacity` rows
  float* f16_unscale = nullptr;     ///< [rows]: what products of that row are multiplied with; 1 for most rows
  void* f8 = nullptr;               ///< [rows][n] of E4M3, each row divided by its factor
  float* f8_scale = nullptr;        ///< [rows]: largest finite magnitude of the row / 448
  int capacity = 0;
};

/// x [rows][n] in other forms.
void make_forms(const float* x, int n, int rows, const Forms&, const Launch&);
/// y = (x - mean) / sqrt(variance + eps) * w + bias, of rows of n; row i has row i % weights of w and bias, both of
/// which may be null.
void layer_norm(const float* x, const float* w, const float* bias, int weights, float eps, int n, int rows, float* y,
                const Launch&);
/// y = rms_norm(x) * w, where w may be null, or of the sum: sum = a + b is stored, the norm is that of the stored sum.
void rms_norm(const float* x, const float* w, float eps, int n, int rows, const Forms& y, const Launch&);
/// The same by weights of each row's own: row i has row i % weights of w.
void rms_norm_of_each(const float* x, const float* w, int weights, float eps, int n, int rows, float* y, const Launch&);
void add_rms_norm(const float* a, const float* b, const float* w, float eps, int n, int rows, float* sum,
                  const Forms& y, const Launch&);
/// add_rms_norm() of `residual` and what combine() makes of the other operands, bit for bit.
void combine_add_rms_norm(const float* x, const float* weights, int top_k, const float* residual, const float* w,
                          float eps, int n, int rows, float* sum, const Forms& y, const Launch&);
void glu(const Glu&, const float* gate, const float* up, int n, int rows, const Forms& y, const Launch&);
/// The same with one gate for all of a row.
void glu_of_one(Activation, const float* gate, const float* up, int n, int rows, const Forms& y, const Launch&);

void add(const float* a, const float* b, float* y, std::int64_t elements, const Launch&);
void activate(const Activate&, const float* x, float* y, std::int64_t elements, const Launch&);
/// x * factor * *w; w may be null.
void scale(const float* x, float factor, const float* w, float* y, std::int64_t elements, const Launch&);
/// Of `n` numbers in turns, each for `span` elements.
struct EachWeights {
  const float* w = nullptr;
  int n = 1, span = 1;
};
/// Each element of x times factor and its own of w.
void scale_each(const float* x, float factor, const EachWeights& w, std::int64_t elements, float* y, const Launch&);
/// cap * tanh(x / cap)
void soft_cap(const float* x, float cap, float* y, std::int64_t elements, const Launch&);
/// y [vectors][n]: elements [begin, begin + n) of each row of x [vectors][m].
void slice(const float* x, int m, int begin, int n, std::int64_t vectors, float* y, const Launch&);
/// y [vectors][m + n]: each row of a [vectors][m], behind it row i / of_one of b.
void concat(const float* a, int m, const float* b, int n, int of_one, std::int64_t vectors, float* y, const Launch&);
/// ids[i] = i % heads
void head_ids(int heads, std::int64_t n, std::int32_t* ids, const Launch&);
/// ids[i] = experts[i] / size
void group_ids(const std::int32_t* experts, int size, std::int64_t n, std::int32_t* ids, const Launch&);
/// x, y [rows][n].
void silence(const Silence&, const float* x, int n, std::int64_t elements, float* y, const Launch&);
/// y[i] = x[step.out_rows[i]]
void select_rows(const float* x, int n, const StepView&, int outputs, float* y, const Launch&);

/// cos and sin of every token's pairs: y [tokens][n_rot], of its position and `offset`. `theta` [n_rot / 2] in double
/// and `magnitude` are made by the host as backend/host/rope_angles.cpp makes them.
void rope_table(const double* theta, double magnitude, int offset, int n_rot, const StepView&, int tokens, float* y,
                const Launch&);
/// y [tokens], of every token's position.
void position_scale(const PositionScale&, const StepView&, int tokens, float* y, const Launch&);
/// x, y [tokens][heads][head_dim]; y may be x.
void rope(const Rope&, const float* x, const float* table, int heads, int head_dim, int tokens, float* y,
          const Launch&);

inline constexpr int kMostExperts = 1024, kMostRouteGroups = 32;  ///< of a router
struct Router {
  Route op;
  const float* bias = nullptr;  ///< [experts]; null: none
  /// The experts that each token of a vocabulary has: [vocab][top_k]; null: they are chosen.
  const std::int32_t* table = nullptr;
  const std::int32_t *tokens = nullptr, *drawn = nullptr;  ///< [tokens], as StepView has them
  std::int64_t vocab = 0;
};
/// ids and weights [tokens][top_k] from logits [tokens][experts].
void route(const Router&, const float* logits, int experts, int tokens, std::int32_t* ids, float* weights,
           const Launch&);
/// Sorts the routes of the step's tokens (step.counts[0] of them) by expert into groups. `memory` has
/// route_groups_bytes(); the result points into it. Deterministic: routes of an expert ascend.
std::size_t route_groups_bytes(int experts, int max_tokens, int top_k);
RouteGroups group_routes(const std::int32_t* ids, int experts, int max_tokens, int top_k, int columns, const StepView&,
                         std::byte* memory, const Launch&);
/// Both in one kernel, where the step can have few routes only; not by a table.
bool groups_while_routing(int experts, int max_tokens, int top_k);
RouteGroups route_and_group(const Router&, const float* logits, int experts, int max_tokens, int columns,
                            const StepView&, std::int32_t* ids, float* weights, std::byte* memory, const Launch&);
/// y [tokens][n]: the sum over slots of weights[slot] * x[token][slot][n], in the order of the slots.
void combine(const float* x, const float* weights, int top_k, int n, int tokens, float* y, const Launch&);

}  // namespace llm::cuda
