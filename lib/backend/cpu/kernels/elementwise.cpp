#include "backend/cpu/kernels/elementwise.h"

#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA {

namespace {

/// y[i] = f(a[i], b[i])
template <class F>
[[gnu::always_inline]] inline void each(const float* a, const float* b, float* y, std::int64_t n, const F& f) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, f(load(a + i), load(b + i)));
  if (const int rest = static_cast<int>(n - i); rest > 0)
    store_first(y + i, rest, f(load_first(a + i, rest), load_first(b + i, rest)));
}

/// y[i] = f(x[i])
template <class F>
[[gnu::always_inline]] inline void each(const float* x, float* y, std::int64_t n, const F& f) {
  each(x, x, y, n, [&](F32x16 u, F32x16) { return f(u); });
}

/// The 16 partial sums of squares.
F32x16 squares_of(const float* x, std::int64_t n) {
  F32x16 squares = zero();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 v = load(x + i);
    squares = fma(v, v, squares);
  }
  if (const int rest = static_cast<int>(n - i); rest > 0) {
    const F32x16 v = load_first(x + i, rest);
    squares = fma(v, v, squares);
  }
  return squares;
}

/// 1 / sqrt(mean + eps) from the 16 partial sums of squares.
F32x16 norm_factor(F32x16 squares, std::int64_t n, float eps) {
  const F32x16 mean = set1(sum(squares)) / set1(static_cast<float>(n));
  return set1(1.0f) / sqrt(mean + set1(eps));
}

/// y = x * w / sqrt(mean(x^2) + eps) from the 16 partial sums of squares.
void scale_by_root_mean(const float* x, const float* w, float* y, std::int64_t n, float eps, F32x16 squares) {
  const F32x16 factor = norm_factor(squares, n, eps);
  if (w == nullptr) return each(x, y, n, [&](F32x16 a) { return a * factor; });
  each(x, w, y, n, [&](F32x16 a, F32x16 b) { return a * factor * b; });
}

/// (1 + tanh(t)) / 2 = sigmoid(2 t), with t = sqrt(2 / pi) u (1 + 0.044715 u^2)
inline F32x16 gelu(F32x16 u) {
  const F32x16 cubic = fma(set1(0.044715f) * u, u, set1(1.0f));
  return u * sigmoid(set1(1.59576912160573f) * u * cubic);
}

/// max(x, 0) + log(1 + e) with e = e^-|x|. The logarithm is 2 artanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...) for
/// s = e / (2 + e), at most 1/3: what follows the term of s^15 is less than 2e-9 of the sum.
inline F32x16 softplus(F32x16 x) {
  const F32x16 e = exp(negate_magnitude(x)), s = e / (set1(2.0f) + e), squared = s * s;
  F32x16 q = set1(1.0f / 15);
  q = fma(q, squared, set1(1.0f / 13));
  q = fma(q, squared, set1(1.0f / 11));
  q = fma(q, squared, set1(1.0f / 9));
  q = fma(q, squared, set1(1.0f / 7));
  q = fma(q, squared, set1(1.0f / 5));
  q = fma(q, squared, set1(1.0f / 3));
  // NaN comes from the second operand alone: which one of two stays is up to the compiler.
  return max(x, zero()) + fma((s + s) * squared, q, s + s);
}

template <class T>
void store_row(const float* x, std::byte* dst, std::int64_t n) {
  T* y = reinterpret_cast<T*>(dst);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, load(x + i));
  if (const int rest = static_cast<int>(n - i); rest > 0) store_first(y + i, rest, load_first(x + i, rest));
}

}  // namespace

void rms_norm(const float* x, const float* w, float* y, std::int64_t n, float eps) {
  scale_by_root_mean(x, w, y, n, eps, squares_of(x, n));
}

/// The differences from the mean are kept in y between the passes: x may be y.
void layer_norm(const float* x, const float* w, const float* bias, float* y, std::int64_t n, float eps) {
  F32x16 total = zero();
  each(x, y, n, [&](F32x16 v) {
    total = total + v;
    return v;
  });
  const F32x16 mean = set1(sum(total)) / set1(static_cast<float>(n));
  each(y, y, n, [&](F32x16 v) { return v - mean; });
  const F32x16 factor = norm_factor(squares_of(y, n), n, eps);
  if (w == nullptr) return each(y, y, n, [&](F32x16 v) { return v * factor; });
  each(y, w, y, n, [&](F32x16 v, F32x16 gain) { return v * factor * gain; });
  if (bias != nullptr) add(y, bias, y, n);
}

void add_rms_norm(const float* a, const float* b, const float* w, float* sum, float* y, std::int64_t n, float eps) {
  F32x16 squares = zero();
  each(a, b, sum, n, [&](F32x16 u, F32x16 v) {
    const F32x16 s = u + v;
    squares = fma(s, s, squares);
    return s;
  });
  scale_by_root_mean(sum, w, y, n, eps, squares);
}

void add(const float* a, const float* b, float* y, std::int64_t n) {
  each(a, b, y, n, [](F32x16 u, F32x16 v) { return u + v; });
}

void mul(const float* a, const float* b, float* y, std::int64_t n) {
  each(a, b, y, n, [](F32x16 u, F32x16 v) { return u * v; });
}

void silu_mul(const float* a, const float* b, float* y, std::int64_t n) {
  each(a, b, y, n, [](F32x16 u, F32x16 v) { return u * sigmoid(u) * v; });
}

void gelu_mul(const float* a, const float* b, float* y, std::int64_t n) {
  each(a, b, y, n, [](F32x16 u, F32x16 v) { return gelu(u) * v; });
}

void gelu(const float* x, float* y, std::int64_t n) {
  each(x, y, n, [](F32x16 u) { return gelu(u); });
}

void exp(const float* x, float* y, std::int64_t n) {
  each(x, y, n, [](F32x16 u) { return exp(u); });
}

void sigmoid(const float* x, float* y, std::int64_t n) {
  each(x, y, n, [](F32x16 u) { return sigmoid(u); });
}

void softplus(const float* x, float* y, std::int64_t n) {
  each(x, y, n, [](F32x16 u) { return softplus(u); });
}

void squared_relu(const float* x, float* y, std::int64_t n) {
  each(x, y, n, [](F32x16 u) {
    const F32x16 positive = max(zero(), u);  // NaN stays
    return positive * positive;
  });
}

void clamped_silu_mul(const float* a, const float* b, float* y, std::int64_t n) {
  constexpr float kLimit = 7, kSlope = 1.702f;
  each(a, b, y, n, [](F32x16 u, F32x16 v) {
    const F32x16 gate = min(set1(kLimit), u), up = min(set1(kLimit), max(set1(-kLimit), v));  // NaN stays
    return gate * sigmoid(set1(kSlope) * gate) * (up + set1(1.0f));
  });
}

void limited_silu_mul(const float* a, const float* b, float* y, std::int64_t n, float limit) {
  each(a, b, y, n, [&](F32x16 u, F32x16 v) {  // NaN stays
    return min(set1(limit), u * sigmoid(u)) * min(set1(limit), max(set1(-limit), v));
  });
}

void limited_gate_silu_mul(const float* a, const float* b, float* y, std::int64_t n, float limit) {
  each(a, b, y, n, [&](F32x16 u, F32x16 v) {  // NaN stays
    const F32x16 gate = min(set1(limit), u);
    return gate * sigmoid(gate) * min(set1(limit), max(set1(-limit), v));
  });
}

void relu_mul(const float* a, const float* b, float* y, std::int64_t n) {
  each(a, b, y, n, [](F32x16 u, F32x16 v) { return max(zero(), u) * v; });  // NaN stays
}

void sigmoid_mul(const float* a, const float* b, float* y, std::int64_t n) {
  each(a, b, y, n, [](F32x16 u, F32x16 v) { return sigmoid(u) * v; });
}

void softplus_mul(const float* a, const float* b, float* y, std::int64_t n) {
  each(a, b, y, n, [](F32x16 u, F32x16 v) { return softplus(u) * v; });
}

void scale(const float* x, float* y, std::int64_t n, float factor) {
  each(x, y, n, [&](F32x16 u) { return u * set1(factor); });
}

void soft_cap(const float* x, float* y, std::int64_t n, float cap) {
  each(x, y, n, [&](F32x16 u) { return set1(cap) * tanh(u / set1(cap)); });
}

void clamp(const float* x, float* y, std::int64_t n, float limit) {
  each(x, y, n, [&](F32x16 u) { return min(set1(limit), max(set1(-limit), u)); });  // NaN stays
}

/// e^z - 1 as tanh() has it: it loses no digits for small z.
void xielu(const float* x, float* y, std::int64_t n, const XieluCurve& c) {
  each(x, y, n, [&](F32x16 u) {
    const auto [k, p] = exponential(max(set1(-104.0f), min(set1(c.below), u)));  // NaN stays
    const F32x16 power = times_power_of_2(set1(1.0f), k);
    const F32x16 grown = fma(power, p, power - set1(1.0f));
    const F32x16 left = fma(set1(c.slope), u, set1(c.negative) * (grown - u));
    const F32x16 right = fma(set1(c.positive), u, set1(c.slope)) * u;
    return if_negative(zero() - u, right, left);
  });
}

void axpy(float factor, const float* x, float* y, std::int64_t n) {
  each(x, y, y, n, [&](F32x16 u, F32x16 v) { return fma(set1(factor), u, v); });
}

void rope_interleaved(const float* x, float* y, const float* table, std::int64_t heads, std::int64_t head_dim,
                      std::int64_t n_rot) {
  for (std::int64_t h = 0; h < heads; ++h, x += head_dim, y += head_dim) {
    each(x, table, y, n_rot, [](F32x16 v, F32x16 angle) {
      return fma_minus_even_plus_odd(v, copy_even(angle), swap_pairs(v) * copy_odd(angle));
    });
    if (x != y) store_row<float>(x + n_rot, reinterpret_cast<std::byte*>(y + n_rot), head_dim - n_rot);
  }
}

void rope_halves(const float* x, float* y, const float* table, std::int64_t heads, std::int64_t head_dim,
                 std::int64_t n_rot) {
  const std::int64_t half = n_rot / 2;
  for (std::int64_t h = 0; h < heads; ++h, x += head_dim, y += head_dim) {
    for (std::int64_t i = 0; i < half; i += 16) {
      const int pairs = static_cast<int>(half - i < 16 ? half - i : 16), second = pairs > 8 ? 2 * pairs - 16 : 0;
      F32x16 cos, sin;
      deinterleave(load_first(table + 2 * i, 2 * pairs - second),
                   load_first(table + 2 * i + 2 * pairs - second, second), cos, sin);
      const F32x16 a = load_first(x + i, pairs), b = load_first(x + half + i, pairs);
      store_first(y + i, pairs, fma(a, cos, zero() - b * sin));
      store_first(y + half + i, pairs, fma(b, cos, a * sin));
    }
    if (x != y) store_row<float>(x + n_rot, reinterpret_cast<std::byte*>(y + n_rot), head_dim - n_rot);
  }
}

void copy_rows(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout, std::int64_t row_begin,
               std::int64_t row_end) {
  for (std::int64_t row = row_begin; row < row_end; ++row)
    store_row<float>(x + row * ldx, act + static_cast<std::size_t>(row) * layout.row_bytes, layout.k);
}

void store_row_f32(const float* x, std::byte* dst, std::int64_t n) { store_row<float>(x, dst, n); }
void store_row_f16(const float* x, std::byte* dst, std::int64_t n) { store_row<Half>(x, dst, n); }
void store_row_bf16(const float* x, std::byte* dst, std::int64_t n) { store_row<BFloat16>(x, dst, n); }
void store_row_f8_e4m3(const float* x, std::byte* dst, std::int64_t n) { store_row<Float8E4M3>(x, dst, n); }

}  // namespace llm::cpu::LLM_ISA
