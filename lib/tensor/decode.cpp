// One function per block type, written so that its loops are vectorised, and the table that dtypes.def makes of them.
// The order of the float operations is part of the format: see blocks.h.
#include "tensor/decode.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "tensor/blocks.h"

namespace llm {
namespace {

// --- types of one element ---

float decode_element(float x) { return x; }
float decode_element(Half x) { return to_float(x); }
float decode_element(BFloat16 x) { return to_float(x); }
float decode_element(double x) { return static_cast<float>(x); }
float decode_element(std::int8_t x) { return x; }
float decode_element(std::int16_t x) { return x; }
float decode_element(std::int32_t x) { return static_cast<float>(x); }
float decode_element(std::int64_t x) { return static_cast<float>(x); }

// --- 32 elements ---

/// Byte k is 1 where bit k is set, else 0.
std::uint64_t spread_bits(std::uint8_t bits) {
  const std::uint64_t kept = (bits * 0x0101010101010101u) & 0x8040201008040201u;  // byte k holds bit k in place
  return ((kept + 0x7f7f7f7f7f7f7f7fu) >> 7) & 0x0101010101010101u;
}

/// Elements of 5 bits from their nibbles and the bits above these.
void join_fifth_bits(const std::uint8_t* qs, const std::uint8_t* qh, std::uint8_t* q) {
  std::uint8_t high[32];
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t spread = spread_bits(qh[i]) << 4;
    std::memcpy(high + 8 * i, &spread, sizeof spread);
  }
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<std::uint8_t>((qs[i] & 0x0f) | high[i]);
    q[16 + i] = static_cast<std::uint8_t>((qs[i] >> 4) | high[16 + i]);
  }
}

void decode_block(const BlockQ4_0& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>((b.qs[i] & 0x0f) - 8);
    y[16 + i] = d * static_cast<float>((b.qs[i] >> 4) - 8);
  }
}

void decode_block(const BlockQ4_1& b, float* y) {
  const float d = to_float(b.d), m = to_float(b.m);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(b.qs[i] & 0x0f) + m;
    y[16 + i] = d * static_cast<float>(b.qs[i] >> 4) + m;
  }
}

void decode_block(const BlockQ5_0& b, float* y) {
  std::uint8_t q[32];
  join_fifth_bits(b.qs, b.qh, q);
  const float d = to_float(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(q[i] - 16);
}

void decode_block(const BlockQ5_1& b, float* y) {
  std::uint8_t q[32];
  join_fifth_bits(b.qs, b.qh, q);
  const float d = to_float(b.d), m = to_float(b.m);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(q[i]) + m;
}

void decode_block(const BlockQ8_0& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(b.qs[i]);
}

void decode_block(const BlockQ8_1& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(b.qs[i]);
}

// --- 256 elements ---

void decode_block(const BlockQ2_K& b, float* y) {
  const float d = to_float(b.d), dmin = to_float(b.dmin);
  for (int group = 0; group < 16; ++group) {  // 16 elements each
    const float scale = d * static_cast<float>(b.scales[group] & 0x0f);
    const float min = dmin * static_cast<float>(b.scales[group] >> 4);
    const std::uint8_t* qs = b.qs + 32 * (group / 8) + 16 * (group % 2);
    const int shift = 2 * (group / 2 % 4);
    for (int i = 0; i < 16; ++i) y[16 * group + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - min;
  }
}

void decode_block(const BlockQ3_K& b, float* y) {
  std::int8_t scales[16];
  unpack_scales_q3_k(b.scales, scales);
  const float d = to_float(b.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scales[group]);
    const std::uint8_t* qs = b.qs + 32 * (group / 8) + 16 * (group % 2);
    const std::uint8_t* hmask = b.hmask + 16 * (group % 2);
    const int shift = 2 * (group / 2 % 4);
    const int bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int q = ((qs[i] >> shift) & 3) + 4 * ((hmask[i] >> bit) & 1) - 4;
      y[16 * group + i] = scale * static_cast<float>(q);
    }
  }
}

void decode_block(const BlockQ4_K& b, float* y) {
  std::uint8_t scales[8], mins[8];
  unpack_scales_q4_k(b.scales, scales, mins);
  const float d = to_float(b.d), dmin = to_float(b.dmin);
  for (int group = 0; group < 8; ++group) {  // 32 elements each
    const float scale = d * static_cast<float>(scales[group]);
    const float min = dmin * static_cast<float>(mins[group]);
    const std::uint8_t* qs = b.qs + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) y[32 * group + i] = scale * static_cast<float>((qs[i] >> shift) & 0x0f) - min;
  }
}

void decode_block(const BlockQ5_K& b, float* y) {
  std::uint8_t scales[8], mins[8];
  unpack_scales_q4_k(b.scales, scales, mins);
  const float d = to_float(b.d), dmin = to_float(b.dmin);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(scales[group]);
    const float min = dmin * static_cast<float>(mins[group]);
    const std::uint8_t* qs = b.qs + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const int q = ((qs[i] >> shift) & 0x0f) | (((b.qh[i] >> group) & 1) << 4);
      y[32 * group + i] = scale * static_cast<float>(q) - min;
    }
  }
}

void decode_block(const BlockQ6_K& b, float* y) {
  const float d = to_float(b.d);
  for (int group = 0; group < 16; ++group) {  // 16 elements each
    const float scale = d * static_cast<float>(b.scales[group]);
    const int half = group / 8, within = group % 8;  // of 128 elements
    const std::uint8_t* ql = b.ql + 64 * half + 16 * (within % 4);
    const std::uint8_t* qh = b.qh + 32 * half + 16 * (within % 2);
    const int low_shift = 4 * (within / 4), high_shift = 2 * (within / 2);
    for (int i = 0; i < 16; ++i) {
      const int q = ((ql[i] >> low_shift) & 0x0f) | (((qh[i] >> high_shift) & 3) << 4);
      y[16 * group + i] = scale * static_cast<float>(q - 32);
    }
  }
}

void decode_block(const BlockQ8_K& b, float* y) {
  for (int i = 0; i < 256; ++i) y[i] = b.d * static_cast<float>(b.qs[i]);
}

/// Blocks are copied out of the bytes, which need no alignment.
template <class Block, int kElems>
void decode_all(const std::byte* src, float* dst, std::int64_t n) {
  for (std::int64_t i = 0; i < n / kElems; ++i) {
    Block block;
    std::memcpy(&block, src + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    if constexpr (kElems == 1) {
      dst[i] = decode_element(block);
    } else {
      decode_block(block, dst + i * kElems);
    }
  }
}

constexpr DecodeFn kDecoders[] = {
#define LLM_DTYPE(name, id, elems, block, use, activation) &decode_all<block, elems>,
#include "tensor/dtypes.def"
#undef LLM_DTYPE
};

}  // namespace

DecodeFn decoder(DType t) { return kDecoders[static_cast<std::size_t>(t)]; }

void decode(DType t, const std::byte* src, float* dst, std::int64_t n) {
  check(n % info(t).block_elems == 0, "only whole blocks are decoded");
  decoder(t)(src, dst, n);
}

}  // namespace llm
