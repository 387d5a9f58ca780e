// One block of weights as integers, in plain C++: the types whose elements are codes of some bits.
#pragma once

#include "tensor/blocks.h"
#include "tensor/codebooks.h"

namespace llm::cpu::LLM_ISA {

/// One block as integers: element e is q[e], under scale[e / 16] and min[e / 16] where there are 256.
struct PlainBlock {
  std::int8_t q[256];
  std::int32_t scale[16];
  std::int32_t min[16];
  float d, dmin;
};

inline void unpack_plain(const BlockQ4_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>((b.qs[i] & 0x0f) - 8);
    out.q[16 + i] = static_cast<std::int8_t>((b.qs[i] >> 4) - 8);
  }
}

inline void unpack_plain(const BlockQ4_1& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.m);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>(b.qs[i] & 0x0f);
    out.q[16 + i] = static_cast<std::int8_t>(b.qs[i] >> 4);
  }
}

/// Bit 4 of element `e` of Q5_0 and Q5_1.
inline int fifth_bit(const std::uint8_t* qh, int e) { return ((qh[e / 8] >> (e % 8)) & 1) << 4; }

inline void unpack_plain(const BlockQ5_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>(((b.qs[i] & 0x0f) | fifth_bit(b.qh, i)) - 16);
    out.q[16 + i] = static_cast<std::int8_t>(((b.qs[i] >> 4) | fifth_bit(b.qh, 16 + i)) - 16);
  }
}

inline void unpack_plain(const BlockQ5_1& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.m);
  for (int i = 0; i < 16; ++i) {
    out.q[i] = static_cast<std::int8_t>((b.qs[i] & 0x0f) | fifth_bit(b.qh, i));
    out.q[16 + i] = static_cast<std::int8_t>((b.qs[i] >> 4) | fifth_bit(b.qh, 16 + i));
  }
}

inline void unpack_plain(const BlockQ8_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 32; ++i) out.q[i] = b.qs[i];
}

inline void unpack_plain(const BlockQ2_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.dmin);
  for (int s = 0; s < 16; ++s) {
    out.scale[s] = b.scales[s] & 0x0f;
    out.min[s] = b.scales[s] >> 4;
  }
  for (int e = 0; e < 256; ++e)
    out.q[e] = static_cast<std::int8_t>((b.qs[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3);
}

inline void unpack_plain(const BlockQ3_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  std::int8_t scale[16];
  unpack_scales_q3_k(b.scales, scale);
  for (int s = 0; s < 16; ++s) out.scale[s] = scale[s];
  for (int e = 0; e < 256; ++e) {
    const int low = (b.qs[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3;
    out.q[e] = static_cast<std::int8_t>(low - (((b.hmask[e % 32] >> (e / 32)) & 1) != 0 ? 0 : 4));
  }
}

/// Scales and mins of Q4_K and Q5_K, which are per 32 elements.
inline void unpack_plain_scales(const std::uint8_t* packed, PlainBlock& out) {
  std::uint8_t scale[8], min[8];
  unpack_scales_q4_k(packed, scale, min);
  for (int s = 0; s < 16; ++s) {
    out.scale[s] = scale[s / 2];
    out.min[s] = min[s / 2];
  }
}

inline void unpack_plain(const BlockQ4_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.dmin);
  unpack_plain_scales(b.scales, out);
  for (int e = 0; e < 256; ++e)
    out.q[e] = static_cast<std::int8_t>((b.qs[e / 64 * 32 + e % 32] >> (4 * (e % 64 / 32))) & 0x0f);
}

inline void unpack_plain(const BlockQ5_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  out.dmin = to_float(b.dmin);
  unpack_plain_scales(b.scales, out);
  for (int e = 0; e < 256; ++e) {
    const int low = (b.qs[e / 64 * 32 + e % 32] >> (4 * (e % 64 / 32))) & 0x0f;
    out.q[e] = static_cast<std::int8_t>(low | (((b.qh[e % 32] >> (e / 32)) & 1) << 4));
  }
}

inline void unpack_plain(const BlockQ6_K& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int s = 0; s < 16; ++s) out.scale[s] = b.scales[s];
  for (int e = 0; e < 256; ++e) {
    const int low = (b.ql[e / 128 * 64 + e % 64] >> (4 * (e % 128 / 64))) & 0x0f;
    const int high = (b.qh[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3;
    out.q[e] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
}

/// 2 n elements: the values of the low nibbles, then those of the high ones.
inline void unpack_nibbles(const std::uint8_t* qs, int n, const std::int8_t* values, std::int8_t* q) {
  for (int i = 0; i < n; ++i) {
    q[i] = values[qs[i] & 0x0f];
    q[n + i] = values[qs[i] >> 4];
  }
}

inline void unpack_plain(const BlockIQ4_NL& b, PlainBlock& out) {
  out.d = to_float(b.d);
  unpack_nibbles(b.qs, 16, kValuesIQ4, out.q);
}

inline void unpack_plain(const BlockIQ4_XS& b, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int g = 0; g < 8; ++g) {
    unpack_nibbles(b.qs + 16 * g, 16, kValuesIQ4, out.q + 32 * g);
    out.scale[2 * g] = out.scale[2 * g + 1] = iq4_xs_scale(b, g);
  }
}

inline void unpack_plain(const BlockMXFP4& b, PlainBlock& out) {
  out.d = e8m0_half(b.e);
  unpack_nibbles(b.qs, 16, kValuesE2M1, out.q);
}

/// 16 elements.
inline void unpack_plain(const BlockNVFP4& b, int part, PlainBlock& out) {
  out.d = ue4m3_half(b.d[part]);
  unpack_nibbles(b.qs + 8 * part, 8, kValuesE2M1, out.q);
}

/// 32 elements.
inline void unpack_plain(const BlockQ1_0& b, int part, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 32; ++i)
    out.q[i] = static_cast<std::int8_t>(((b.qs[4 * part + i / 8] >> (i % 8)) & 1) != 0 ? 1 : -1);
}

/// 32 elements.
inline void unpack_plain(const BlockQ2_0& b, int part, PlainBlock& out) {
  out.d = to_float(b.d);
  for (int i = 0; i < 32; ++i) out.q[i] = static_cast<std::int8_t>(((b.qs[8 * part + i / 4] >> (2 * (i % 4))) & 3) - 1);
}

inline void set_scales_to_one(PlainBlock& out) {
  for (std::int32_t& s : out.scale) s = 1;
}

inline void unpack_plain(const BlockTQ1_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  set_scales_to_one(out);
  for (int e = 0; e < 240; ++e) {
    const int i = e < 160 ? e % 32 : 32 + e % 16, p = e < 160 ? e / 32 : (e - 160) / 16;
    out.q[e] = static_cast<std::int8_t>(trit(b.qs[i], p) - 1);
  }
  for (int e = 0; e < 16; ++e) out.q[240 + e] = static_cast<std::int8_t>(trit(b.qh[e % 4], e / 4) - 1);
}

inline void unpack_plain(const BlockTQ2_0& b, PlainBlock& out) {
  out.d = to_float(b.d);
  set_scales_to_one(out);
  for (int e = 0; e < 256; ++e)
    out.q[e] = static_cast<std::int8_t>(((b.qs[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32))) & 3) - 1);
}

}  // namespace llm::cpu::LLM_ISA
