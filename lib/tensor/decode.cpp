// The table of decoders that dtypes.def makes, and those of single elements, of Q4_0 to Q8_1, of the K-quants and of
// types of one or two bits; decode_codebook.cpp has the others. They are written so that their loops are vectorised.
// The order of the float operations is part of the format: see blocks.h.
#include "tensor/decode.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "tensor/block_codec.h"

namespace llm {
// --- types of one element ---

void decode_block(const float& x, float* y) { *y = x; }
void decode_block(const Half& x, float* y) { *y = to_float(x); }
void decode_block(const BFloat16& x, float* y) { *y = to_float(x); }
void decode_block(const Float8E4M3& x, float* y) { *y = to_float(x); }
void decode_block(const double& x, float* y) { *y = static_cast<float>(x); }
void decode_block(const std::int8_t& x, float* y) { *y = x; }
void decode_block(const std::int16_t& x, float* y) { *y = x; }
void decode_block(const std::int32_t& x, float* y) { *y = static_cast<float>(x); }
void decode_block(const std::int64_t& x, float* y) { *y = static_cast<float>(x); }

// --- 32 elements ---

namespace {

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

}  // namespace

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

// --- one or two bits ---

void decode_block(const BlockTQ1_0& b, float* y) {
  const float d = to_float(b.d);
  const auto decode_bytes = [d](const std::uint8_t* bytes, int n, int per_byte, float* out) {
    for (int p = 0; p < per_byte; ++p)
      for (int i = 0; i < n; ++i) out[n * p + i] = d * static_cast<float>(trit(bytes[i], p) - 1);
  };
  decode_bytes(b.qs, 32, 5, y);
  decode_bytes(b.qs + 32, 16, 5, y + 160);
  decode_bytes(b.qh, 4, 4, y + 240);
}

void decode_block(const BlockTQ2_0& b, float* y) {
  const float d = to_float(b.d);
  for (int group = 0; group < 8; ++group) {  // 32 elements each
    const std::uint8_t* qs = b.qs + 32 * (group / 4);
    const int shift = 2 * (group % 4);
    for (int i = 0; i < 32; ++i) y[32 * group + i] = d * static_cast<float>(((qs[i] >> shift) & 3) - 1);
  }
}

void decode_block(const BlockQ2_0& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 64; ++i) y[i] = d * static_cast<float>(((b.qs[i / 4] >> (2 * (i % 4))) & 3) - 1);
}

void decode_block(const BlockQ1_0& b, float* y) {
  const float d = to_float(b.d);
  for (int i = 0; i < 128; ++i) y[i] = ((b.qs[i / 8] >> (i % 8)) & 1) != 0 ? d : -d;
}

// --- the table ---

namespace {

/// Blocks are copied out of the bytes, which need no alignment.
template <class Block, int kElems>
void decode_all(const std::byte* src, float* dst, std::int64_t n) {
  for (std::int64_t i = 0; i < n / kElems; ++i) {
    Block block;
    std::memcpy(&block, src + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    decode_block(block, dst + i * kElems);
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
