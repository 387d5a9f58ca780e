// Kernels over single rows: norms, activations, rotations, sums, storing to the cache.
#pragma once

#include "backend/cpu/kernels/kernels.h"

namespace llm::cpu::LLM_ISA {

void rms_norm(const float* x, const float* w, float* y, std::int64_t n, float eps);
void add_rms_norm(const float* a, const float* b, const float* w, float* sum, float* y, std::int64_t n, float eps);
void layer_norm(const float* x, const float* w, const float* bias, float* y, std::int64_t n, float eps);
void gelu(const float* x, float* y, std::int64_t n);
void squared_relu(const float* x, float* y, std::int64_t n);
void exp(const float* x, float* y, std::int64_t n);
void sigmoid(const float* x, float* y, std::int64_t n);
/// log(1 + e^x)
void softplus(const float* x, float* y, std::int64_t n);
void add(const float* a, const float* b, float* y, std::int64_t n);
void mul(const float* a, const float* b, float* y, std::int64_t n);
void silu_mul(const float* a, const float* b, float* y, std::int64_t n);
/// The tanh form: gelu(a) = a / 2 (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))).
void gelu_mul(const float* a, const float* b, float* y, std::int64_t n);
/// As Activation::ClampedSilu, which clamps b, too.
void clamped_silu_mul(const float* a, const float* b, float* y, std::int64_t n);
void relu_mul(const float* a, const float* b, float* y, std::int64_t n);
/// As Glu::limit of silu_mul(), Limited::Activated and Limited::Gate.
void limited_silu_mul(const float* a, const float* b, float* y, std::int64_t n, float limit);
void limited_gate_silu_mul(const float* a, const float* b, float* y, std::int64_t n, float limit);
void sigmoid_mul(const float* a, const float* b, float* y, std::int64_t n);
void softplus_mul(const float* a, const float* b, float* y, std::int64_t n);
void scale(const float* x, float* y, std::int64_t n, float factor);
void soft_cap(const float* x, float* y, std::int64_t n, float cap);
void clamp(const float* x, float* y, std::int64_t n, float limit);
void xielu(const float* x, float* y, std::int64_t n, const XieluCurve& curve);
void axpy(float factor, const float* x, float* y, std::int64_t n);
/// y may be x. Elements of a head from n_rot on are copied.
void rope_interleaved(const float* x, float* y, const float* table, std::int64_t heads, std::int64_t head_dim,
                      std::int64_t n_rot);
void rope_halves(const float* x, float* y, const float* table, std::int64_t heads, std::int64_t head_dim,
                 std::int64_t n_rot);
/// QuantizeRowsFn of the format F32.
void copy_rows(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout, std::int64_t row_begin,
               std::int64_t row_end);
void store_row_f32(const float* x, std::byte* dst, std::int64_t n);
void store_row_f16(const float* x, std::byte* dst, std::int64_t n);
void store_row_bf16(const float* x, std::byte* dst, std::int64_t n);
void store_row_f8_e4m3(const float* x, std::byte* dst, std::int64_t n);

}  // namespace llm::cpu::LLM_ISA
