// Activations to int8: the operations of tensor/activation.cpp in loops that compilers turn into vectors.
#include <bit>

#include "backend/cpu/kernels/quant_columns.h"
#include "backend/cpu/kernels/quant_linear.h"

namespace llm::cpu::LLM_ISA {
namespace {

/// Quantises `block` values and sums 16 at a time. Magnitudes are compared as integers, where NaN is the largest.
template <int block>
float quantize_block(const float* x, std::int8_t* q, std::int16_t* sums) {
  constexpr std::int32_t kInfinityBits = 0x7f800000;
  constexpr float kSmallestAmax = 0x1p-100f;
  constexpr float kShift = 0x1.8p23f;  // adding it leaves the integer nearest to x (ties to even) in the low bits
  std::int32_t largest = 0;
  for (int i = 0; i < block; ++i) {
    const std::int32_t magnitude = std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float amax = std::bit_cast<float>(largest);
  if (largest >= kInfinityBits || amax < kSmallestAmax) {
    for (int i = 0; i < block; ++i) q[i] = 0;
    for (int s = 0; s < block / 16; ++s) sums[s] = 0;
    return largest >= kInfinityBits ? __builtin_nanf("") : 0.0f;
  }
  const float inverse = 127.0f / amax;
  for (int s = 0; s < block / 16; ++s) {
    std::int32_t rounded[16], sum = 0;
    for (int i = 0; i < 16; ++i)
      rounded[i] = std::bit_cast<std::int32_t>(x[16 * s + i] * inverse + kShift) - std::bit_cast<std::int32_t>(kShift);
    for (int i = 0; i < 16; ++i) q[16 * s + i] = static_cast<std::int8_t>(rounded[i]);
    for (int i = 0; i < 16; ++i) sum += rounded[i];
    sums[s] = static_cast<std::int16_t>(sum);
  }
  return amax / 127.0f;
}

template <int block>
void quantize_rows(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout, std::int64_t row_begin,
                   std::int64_t row_end) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const auto r = static_cast<std::size_t>(row);
    const float* from = x + row * ldx;
    auto* q = reinterpret_cast<std::int8_t*>(act + r * layout.row_bytes);
    auto* scales = reinterpret_cast<float*>(act + layout.scales_offset + r * layout.scales_row_bytes);
    auto* sums = reinterpret_cast<std::int16_t*>(act + layout.sums_offset + r * layout.sums_row_bytes);
    for (std::int64_t b = 0; b < layout.k / block; ++b)
      scales[b] = quantize_block<block>(from + b * block, q + b * block, sums + b * (block / 16));
  }
}

}  // namespace

void quantize_rows_q8x32(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout,
                         std::int64_t row_begin, std::int64_t row_end) {
  quantize_rows<32>(x, ldx, act, layout, row_begin, row_end);
}
void quantize_rows_q8x256(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout,
                          std::int64_t row_begin, std::int64_t row_end) {
  quantize_rows<256>(x, ldx, act, layout, row_begin, row_end);
}

}  // namespace llm::cpu::LLM_ISA
