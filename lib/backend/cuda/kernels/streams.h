// Rows of several vectors each, which are mixed and added to (graph/op.h: StreamMix, StreamAdd, StreamMean,
// StreamBlend), by weights of each row's own (StreamWeights), how well they go together (MatchGate), and what lies far
// out of a row.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/launch.h"
#include "graph/op.h"

namespace llm::cuda {

struct Streams {
  int n = 0, m = 0;  ///< vectors of a row: m of n elements
};

/// y [rows][k][n] of x [rows][m][n] and w [rows][k][m].
void stream_mix(const Streams&, const float* x, const float* w, int k, int rows, float* y, const Launch&);
/// y [rows][m][n] of x, `added` [rows][n] and w [rows][m], which may be null.
void stream_add(const StreamAdd&, const Streams&, const float* x, const float* added, const float* w, int rows,
                float* y, const Launch&);
/// Of rows of m vectors; without `write` there is no `mix`.
struct StreamShareRows {
  float* read = nullptr;   ///< [rows][m]
  float* write = nullptr;  ///< [rows][m]
  float* mix = nullptr;    ///< [rows][m][m]
};
/// Of x [rows][(2 + m) * m], scales [3] and biases [(2 + m) * m], or where only `read` is made of [rows][m], [1] and
/// [m].
void stream_weights(const StreamWeights&, int m, const float* x, const float* scales, const float* biases, int rows,
                    const StreamShareRows& y, const Launch&);
/// y [rows][n] of x and gate [rows][m][n].
void stream_mean(const Streams&, const float* x, const float* gate, int rows, float* y, const Launch&);
/// y [rows][n] of x, `last` [rows][n] and w [n].
void stream_blend(const StreamBlend&, const Streams&, const float* x, const float* last, const float* w, int rows,
                  float* y, const Launch&);
/// y [vectors] of a and b [vectors][n].
void match_gate(const float* a, const float* b, int n, std::int64_t vectors, float* y, const Launch&);
/// x, y [rows][n].
void gaussian_top(const float* x, float deviations, int n, int rows, float* y, const Launch&);

}  // namespace llm::cuda
