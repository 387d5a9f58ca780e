// Products of F32, F16 and F64 weights with f32 activations.
#include "backend/cpu/kernels/float_linear.h"

#include "backend/cpu/kernels/float_tile.h"

namespace llm::cpu::LLM_ISA {

namespace {

/// f64 weights: 8 interleaved f64 sums, products rounded before they are added, on every instruction set.
double dot_f64(const std::byte* w, const float* x, std::int64_t n) {
  double acc[8] = {};
  std::int64_t k = 0;
  for (; k + 8 <= n; k += 8) {
    double v[8];
    __builtin_memcpy(v, w + static_cast<std::size_t>(k) * sizeof(double), sizeof v);
    for (int i = 0; i < 8; ++i) acc[i] += v[i] * static_cast<double>(x[k + i]);
  }
  for (; k < n; ++k) {
    double v;
    __builtin_memcpy(&v, w + static_cast<std::size_t>(k) * sizeof(double), sizeof v);
    acc[k % 8] += v * static_cast<double>(x[k]);
  }
  return ((acc[0] + acc[4]) + (acc[2] + acc[6])) + ((acc[1] + acc[5]) + (acc[3] + acc[7]));
}

}  // namespace

void linear_f32(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  floats::linear<float>(a, row_begin, row_end);
}
void linear_f16(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  floats::linear<Half>(a, row_begin, row_end);
}

void linear_f64(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::byte* w = a.w + static_cast<std::size_t>(row) * a.w_row_bytes;
    for (std::int64_t c = 0; c < a.n_cols; ++c) {
      a.y[floats::row_of(a.out_rows, c) * a.ldy + row] =
          static_cast<float>(dot_f64(w, floats::activations<float>(a, c, 0), a.k));
    }
  }
}

}  // namespace llm::cpu::LLM_ISA
