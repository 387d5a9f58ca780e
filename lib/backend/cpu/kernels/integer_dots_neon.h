// What integer_dots.h lists, in four NEON registers. Bytes are multiplied as signed numbers: keys less 128.
#pragma once

#include "backend/cpu/kernels/quant_vec.h"
#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA {

constexpr int kDotPairs = 4, kDotVectors = 1, kKeyMiddle = 128;
struct I32x16 {
  int32x4_t v[4];
};
struct Keys {
  int32x4_t v[4];
};
struct Query4 {
  int32x4_t v;
};
inline I32x16 set1_i32(std::int32_t x) {
  const int32x4_t v = vdupq_n_s32(x);
  return {v, v, v, v};
}
inline Keys load_keys(const std::uint8_t* p) {
  const auto signed_16 = [&](int at) { return quant::xor_(quant::load(p + at), quant::splat8(-128)); };
  return {signed_16(0), signed_16(16), signed_16(32), signed_16(48)};
}
inline Query4 splat_query(const std::int8_t* p) { return {quant::splat32(quant::load_i32(p))}; }
inline I32x16 add_dots(I32x16 acc, Keys k, Query4 q) {
  return {quant::dot8(acc.v[0], k.v[0], q.v), quant::dot8(acc.v[1], k.v[1], q.v), quant::dot8(acc.v[2], k.v[2], q.v),
          quant::dot8(acc.v[3], k.v[3], q.v)};
}
inline F32x16 to_f32(I32x16 a) {
  return {vcvtq_f32_s32(a.v[0]), vcvtq_f32_s32(a.v[1]), vcvtq_f32_s32(a.v[2]), vcvtq_f32_s32(a.v[3])};
}
inline I32x16 load_i32(const std::int32_t* p) {
  return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}
inline void store_i32(std::int32_t* p, I32x16 a) {
  vst1q_s32(p, a.v[0]);
  vst1q_s32(p + 4, a.v[1]);
  vst1q_s32(p + 8, a.v[2]);
  vst1q_s32(p + 12, a.v[3]);
}
inline void store_words(std::int16_t* p, F32x16 a) {
  const auto low = [](float32x4_t x) { return vmovn_s32(vreinterpretq_s32_f32(x)); };
  vst1q_s16(p, vcombine_s16(low(a.v[0]), low(a.v[1])));
  vst1q_s16(p + 8, vcombine_s16(low(a.v[2]), low(a.v[3])));
}

/// The words of the first key and those of the second apart, eight lanes to a register.
struct Words {
  int16x8_t first[2], second[2];
};
inline Words load_words(const std::int32_t* p) {
  const auto* const words = reinterpret_cast<const std::int16_t*>(p);
  const int16x8x2_t low = vld2q_s16(words), high = vld2q_s16(words + 16);
  return {{low.val[0], high.val[0]}, {low.val[1], high.val[1]}};
}
inline Words load_words(const std::int8_t* p) {
  const int8x16x2_t bytes = vld2q_s8(p);
  return {{vmovl_s8(vget_low_s8(bytes.val[0])), vmovl_high_s8(bytes.val[0])},
          {vmovl_s8(vget_low_s8(bytes.val[1])), vmovl_high_s8(bytes.val[1])}};
}
inline void store_words(std::int32_t* p, Words a) {
  auto* const to = reinterpret_cast<std::int16_t*>(p);
  vst2q_s16(to, int16x8x2_t{{a.first[0], a.second[0]}});
  vst2q_s16(to + 16, int16x8x2_t{{a.first[1], a.second[1]}});
}
inline Words splat_words(const std::int16_t* p) {
  const int16x8_t first = vdupq_n_s16(p[0]), second = vdupq_n_s16(p[1]);
  return {{first, first}, {second, second}};
}
inline I32x16 add_dots(I32x16 acc, Words a, Words b) {
  const auto low = [](int32x4_t s, int16x8_t x, int16x8_t y) { return vmlal_s16(s, vget_low_s16(x), vget_low_s16(y)); };
  return {low(low(acc.v[0], a.first[0], b.first[0]), a.second[0], b.second[0]),
          vmlal_high_s16(vmlal_high_s16(acc.v[1], a.first[0], b.first[0]), a.second[0], b.second[0]),
          low(low(acc.v[2], a.first[1], b.first[1]), a.second[1], b.second[1]),
          vmlal_high_s16(vmlal_high_s16(acc.v[3], a.first[1], b.first[1]), a.second[1], b.second[1])};
}
inline Words join_words(const std::int8_t* a, const std::int8_t* b) {
  const int8x16_t first = vld1q_s8(a), second = vld1q_s8(b);
  return {{vmovl_s8(vget_low_s8(first)), vmovl_high_s8(first)}, {vmovl_s8(vget_low_s8(second)), vmovl_high_s8(second)}};
}

}  // namespace llm::cpu::LLM_ISA
