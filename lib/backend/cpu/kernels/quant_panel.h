// Panels: 32 rows of weights over a stretch of k, unpacked to bytes in the order in which a tile reads them. One
// unpacking per storage type, of a block of kBlock elements, of which kParts make a block of the file of kBytes; what
// differs between types beyond that is in PanelTraits.
//
//   q      [k / 4][32 rows][4]  value + bias, unsigned, or the value (stores_bias())
//   scale  [k / sub][32 rows]   int32 (without kSums32: twice as int16)
//   min    [k / 2 min_sub][32 rows]  two int16
//   d, dm  [k / block][32 rows] factors of a block's sum and of its minimums' sum
//
// Where the products of quants and scales fit into a byte, the scale is multiplied into the quants here; but those of
// Q3_K leave int16 sums no room, so that AVX2 keeps its scales apart.
#pragma once

#include "backend/cpu/kernels/quant_vec.h"
#include "tensor/blocks.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

inline constexpr int kPanelRows = 32;

enum class Minimums : std::uint8_t {
  None,
  PerBlock,  ///< dm times the sum of activations
  Per16,     ///< dm times the sum over sub-blocks of min times the sum of activations
  Per32,
};

struct PanelTraits {
  int block;    ///< elements under one factor and one activation scale
  int sub;      ///< elements under one integer scale; block if there is none
  int bias;     ///< of the stored bytes; undone through the sums of activations
  int max_abs;  ///< of the values, for the range of int16 sums
  Minimums minimums;
  bool is_signed = false;  ///< the stored bytes
  constexpr bool scaled() const { return sub != block; }
  constexpr int min_pair() const { return minimums == Minimums::Per16 ? 32 : 64; }  ///< elements under two mins
};

/// Whether panels store values from -max_abs to max_abs with their bias. Products of unsigned and signed bytes are what
/// x86 has instructions for. Without VNNI they are added up as int16, and so is what undoes the bias of a sub-block:
/// both have to be small.
constexpr bool stores_bias(int block, int sub, int bias, int max_abs) {
  const int most = bias + max_abs;
  const bool is_small = most <= 32 && (sub == block || 127 * bias * sub + 2 * 127 * most * sub / 4 <= 32767);
  return kKeepsBias || (!kSums32 && is_small);
}
/// Traits of a type whose values have a bias.
constexpr PanelTraits biased_traits(int block, int sub, int bias, int max_abs) {
  const bool stored = stores_bias(block, sub, bias, max_abs);
  return {block, sub, stored ? bias : 0, max_abs, Minimums::None, !stored};
}

/// Where one block of kWidth of the panel's rows goes.
struct PanelBlock {
  u8* q;
  std::int32_t* scale;
  std::int32_t* min;
  float* d;
  float* dm;
};

/// Four consecutive elements of kWidth rows.
LLM_INLINE void put(const PanelBlock& out, int element, V bytes) { store(out.q + element * kPanelRows, bytes); }

/// value + bias, with its bias or without.
template <int bias, bool with_bias>
LLM_INLINE V biased(V a) {
  return with_bias ? a : sub8(a, splat8(bias));
}
/// The same as a panel with these traits stores it.
template <PanelTraits t, int bias>
LLM_INLINE V stored(V a) {
  return biased<bias, t.bias != 0>(a);
}

LLM_INLINE void put_scale(const PanelBlock& out, int sub, V scale) {
  const V stored = kSums32 ? scale : or_(and_(scale, splat32(0xffff)), shl32<16>(scale));
  store(out.scale + sub * kPanelRows, stored);
}

LLM_INLINE V low_nibbles(V a) { return and_(a, splat8(0x0f)); }
LLM_INLINE V high_nibbles(V a) { return and_(shr16<4>(a), splat8(0x0f)); }

/// How many neighbouring blocks an unpack() takes.
template <class T>
constexpr int parts_at_once() {
  if constexpr (requires { T::kPartsAtOnce; })
    return T::kPartsAtOnce;
  else
    return 1;
}

/// At which of the rows that an unpack() asks for weights are fetched: the fewer that it loads wide, the more often.
template <class T>
constexpr int rows_per_fetch() {
  if constexpr (requires { T::kRowsPerFetch; })
    return T::kRowsPerFetch;
  else
    return 8;
}

// unpack(at, part, out): the block of row r is part `part` of the file's block at at(r). Every load_rows() below stays
// inside the block.

struct PanelQ4_0 {
  static constexpr int kBytes = sizeof(BlockQ4_0), kParts = 1;
  static constexpr PanelTraits traits = biased_traits(32, 32, 8, 8);
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    store_f(out.d, halves(at));
    const Four x = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ4_0, qs); });
    for (int i = 0; i < 4; ++i) {
      put(out, 4 * i, stored<traits, 8>(low_nibbles(x.v[i])));
      put(out, 16 + 4 * i, stored<traits, 8>(high_nibbles(x.v[i])));
    }
  }
};

struct PanelQ4_1 {
  static constexpr int kBytes = sizeof(BlockQ4_1), kParts = 1;
  static constexpr PanelTraits traits{32, 32, 0, 15, Minimums::PerBlock};
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    const V head = load_rows(at).v[0];
    store_f(out.d, low_halves(head));
    store_f(out.dm, low_halves(shr32<16>(head)));
    const Four x = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ4_1, qs); });
    for (int i = 0; i < 4; ++i) {
      put(out, 4 * i, low_nibbles(x.v[i]));
      put(out, 16 + 4 * i, high_nibbles(x.v[i]));
    }
  }
};

/// Bits 4i ... 4i + 3 of each element as bit 4 of its bytes: the product puts bit j at 8j + 4 and, elsewhere, what the
/// mask drops.
template <int i>
LLM_INLINE V fifth_bits(V qh) {
  const V four = and_(shr32<4 * i>(qh), splat32(0x0f));
  return and_(mul32(four, splat32(0x02040810)), splat8(0x10));
}

struct PanelQ5_0 {
  static constexpr int kBytes = sizeof(BlockQ5_0), kParts = 1;
  static constexpr PanelTraits traits = biased_traits(32, 32, 16, 16);
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    const Four head = load_rows(at);  // d, qh, ...
    store_f(out.d, low_halves(head.v[0]));
    const V qh = or_(shr32<16>(head.v[0]), shl32<16>(head.v[1]));
    const Four x = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ5_0, qs); });
    repeat<4>([&](auto i) LLM_LAMBDA {
      put(out, 4 * i, stored<traits, 16>(or_(low_nibbles(x.v[i]), fifth_bits<i>(qh))));
      put(out, 16 + 4 * i, stored<traits, 16>(or_(high_nibbles(x.v[i]), fifth_bits<4 + i>(qh))));
    });
  }
};

struct PanelQ5_1 {
  static constexpr int kBytes = sizeof(BlockQ5_1), kParts = 1;
  static constexpr PanelTraits traits{32, 32, 0, 31, Minimums::PerBlock};
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    const Four head = load_rows(at);  // d and m, qh, ...
    store_f(out.d, low_halves(head.v[0]));
    store_f(out.dm, low_halves(shr32<16>(head.v[0])));
    const Four x = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ5_1, qs); });
    repeat<4>([&](auto i) LLM_LAMBDA {
      put(out, 4 * i, or_(low_nibbles(x.v[i]), fifth_bits<i>(head.v[1])));
      put(out, 16 + 4 * i, or_(high_nibbles(x.v[i]), fifth_bits<4 + i>(head.v[1])));
    });
  }
};

struct PanelQ8_0 {
  static constexpr int kBytes = sizeof(BlockQ8_0), kParts = 1;
  static constexpr PanelTraits traits = biased_traits(32, 32, 128, 128);
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    store_f(out.d, halves(at));
    const Eight x = load_rows_32([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ8_0, qs); });
    for (int i = 0; i < 8; ++i) put(out, 4 * i, kKeepsBias ? xor_(x.v[i], splat8(0x80)) : x.v[i]);
  }
};

/// d, dmin, scales and mins of Q4_K and Q5_K (the packing is in tensor/blocks.h).
template <class At>
LLM_INLINE void unpack_head_q4_k(const At& at, const PanelBlock& out) {
  const Four head = load_rows(at);
  store_f(out.d, low_halves(head.v[0]));
  store_f(out.dm, negate(low_halves(shr32<16>(head.v[0]))));
  const V six = splat32(0x3f), four = splat32(0x0f), top = splat32(0x30);
  V min[8];
  repeat<4>([&](auto i) LLM_LAMBDA {
    put_scale(out, i, and_(shr32<8 * i>(head.v[1]), six));
    put_scale(out, 4 + i, or_and(and_(shr32<8 * i>(head.v[3]), four), shr32<8 * i + 2>(head.v[1]), top));
    min[i] = and_(shr32<8 * i>(head.v[2]), six);
    min[4 + i] = or_and(and_(shr32<8 * i + 4>(head.v[3]), four), shr32<8 * i + 2>(head.v[2]), top);
  });
  for (int i = 0; i < 4; ++i) store(out.min + i * kPanelRows, or_(min[2 * i], shl32<16>(min[2 * i + 1])));
}

struct PanelQ4_K {
  static constexpr int kBytes = sizeof(BlockQ4_K), kParts = 1, kRowsPerFetch = 4;
  static constexpr PanelTraits traits{256, 32, 0, 15, Minimums::Per32};
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    unpack_head_q4_k(at, out);
    for (int h = 0; h < 4; ++h) {
      const Eight x = load_rows_32([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ4_K, qs) + 32 * h; });
      for (int i = 0; i < 8; ++i) {
        const int element = 64 * h + 4 * i;
        put(out, element, low_nibbles(x.v[i]));
        put(out, element + 32, high_nibbles(x.v[i]));
      }
    }
  }
};

struct PanelQ5_K {
  static constexpr int kBytes = sizeof(BlockQ5_K), kParts = 1, kRowsPerFetch = 4;
  static constexpr PanelTraits traits{256, 32, 0, 31, Minimums::Per32};
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    unpack_head_q4_k(at, out);
    const V bit = splat8(0x10);
    const Eight high = load_rows_32([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ5_K, qh); });
    repeat<4>([&](auto h) LLM_LAMBDA {
      const Eight x = load_rows_32([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ5_K, qs) + 32 * h; });
      for (int i = 0; i < 8; ++i) {
        const int element = 64 * h + 4 * i;
        put(out, element, or_and(low_nibbles(x.v[i]), shift16<4 - 2 * h>(high.v[i]), bit));
        put(out, element + 32, or_and(high_nibbles(x.v[i]), shift16<3 - 2 * h>(high.v[i]), bit));
      }
    });
  }
};

struct PanelQ6_K {
  static constexpr int kBytes = sizeof(BlockQ6_K), kParts = 1, kRowsPerFetch = 4;
  static constexpr PanelTraits traits = biased_traits(256, 16, 32, 32);
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    store_f(out.d, halves([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ6_K, d); }));
    const Four scales = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ6_K, scales); });
    repeat<4>([&](auto i) LLM_LAMBDA {
      for (int t = 0; t < 4; ++t) put_scale(out, 4 * t + i, sar32<24>(shl32<24 - 8 * i>(scales.v[t])));
    });
    const V two_bits = splat8(0x30);
    for (int h = 0; h < 2; ++h) {
      const Eight high = load_rows_32([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ6_K, qh) + 32 * h; });
      repeat<2>([&](auto p) LLM_LAMBDA {
        const Eight x =
            load_rows_32([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ6_K, ql) + 64 * h + 32 * p; });
        for (int i = 0; i < 8; ++i) {
          const int element = 128 * h + 32 * p + 4 * i;
          put(out, element, stored<traits, 32>(or_and(low_nibbles(x.v[i]), shift16<4 - 2 * p>(high.v[i]), two_bits)));
          put(out, element + 64,
              stored<traits, 32>(or_and(high_nibbles(x.v[i]), shift16<-2 * p>(high.v[i]), two_bits)));
        }
      });
    }
  }
};

struct PanelQ2_K {
  static constexpr int kBytes = sizeof(BlockQ2_K), kParts = 1;
  // quants times scales: at most 3 * 15
  static constexpr PanelTraits traits{256, 256, 0, 45, Minimums::Per16};
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    store_f(out.d, halves([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ2_K, d); }));
    store_f(out.dm, negate(halves([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ2_K, dmin); })));
    const Four packed = load_rows(at);
    const V four = splat32(0x0f), two_bits = splat8(0x03);
    V scale[16];
    for (int t = 0; t < 4; ++t) {
      V min[4];
      repeat<4>([&](auto i) LLM_LAMBDA {
        scale[4 * t + i] = and_(shr32<8 * i>(packed.v[t]), four);
        min[i] = and_(shr32<8 * i + 4>(packed.v[t]), four);
      });
      store(out.min + 2 * t * kPanelRows, or_(min[0], shl32<16>(min[1])));
      store(out.min + (2 * t + 1) * kPanelRows, or_(min[2], shl32<16>(min[3])));
    }
    for (int piece = 0; piece < 4; ++piece) {
      const Four x = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ2_K, qs) + 16 * piece; });
      repeat<4>([&](auto k) LLM_LAMBDA {
        const int element = piece / 2 * 128 + 32 * k + piece % 2 * 16;
        for (int i = 0; i < 4; ++i)  // no byte of the product carries into the next
          put(out, element + 4 * i, mul32(and_(shr16<2 * k>(x.v[i]), two_bits), scale[element / 16]));
      });
    }
  }
};

/// Twice as int16 each: the scales of Q3_K, from the last 16 bytes of a block (2 of qs, the scales, d) by rows.
LLM_INLINE void unpack_scales_q3_k(const Four& tail, V* scale) {
  V packed[3];
  for (int i = 0; i < 3; ++i) packed[i] = or_(shr32<16>(tail.v[i]), shl32<16>(tail.v[i + 1]));
  repeat<16>([&](auto s) LLM_LAMBDA {
    const V low = and_(shr32<8 * (s % 4) + 4 * (s / 8)>(packed[s % 8 / 4]), splat32(0x0f));
    const V high = and_(shr32<8 * (s % 4) + 2 * (s / 4)>(packed[2]), splat32(0x03));
    const V value = or_(low, shl32<4>(high));
    scale[s] = sub16(or_(value, shl32<16>(value)), splat16(32));
  });
}
/// put(Constant<k>, element, q + 4) for all elements, four of each row at a time, 32 k + 128 h and more.
template <class At, class Put>
LLM_INLINE void unpack_quants_q3_k(const At& at, const Put& put) {
  const V two_bits = splat8(0x03), bit = splat8(0x04);
  repeat<2>([&](auto h) LLM_LAMBDA {
    for (int odd = 0; odd < 2; ++odd) {
      const Four high = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ3_K, hmask) + 16 * odd; });
      const Four x = load_rows([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockQ3_K, qs) + 32 * h + 16 * odd; });
      repeat<4>([&](auto k) LLM_LAMBDA {
        for (int i = 0; i < 4; ++i)
          put(128 * h + 32 * k + 16 * odd + 4 * i,
              or_and(and_(shr16<2 * k>(x.v[i]), two_bits), shift16<2 - (4 * h + k)>(high.v[i]), bit));
      });
    }
  });
}

#if defined(LLM_ISA_avx2)

struct PanelQ3_K {
  static constexpr int kBytes = sizeof(BlockQ3_K), kParts = 1;
  static constexpr PanelTraits traits = biased_traits(256, 16, 4, 4);
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    static_assert(traits.bias != 0);
    const Four tail = load_rows([&](int r) LLM_LAMBDA { return at(r) + sizeof(BlockQ3_K) - 16; });
    store_f(out.d, low_halves(shr32<16>(tail.v[3])));
    V scale[16];
    unpack_scales_q3_k(tail, scale);
    for (int s = 0; s < 16; ++s) store(out.scale + s * kPanelRows, scale[s]);
    unpack_quants_q3_k(at, [&](int element, V q) LLM_LAMBDA { put(out, element, q); });
  }
};

#else

struct PanelQ3_K {
  static constexpr int kBytes = sizeof(BlockQ3_K), kParts = 1;
  // minus quants times scales, -(q - 4) * scale: from -128 to 124; the sign is undone in d
  static constexpr PanelTraits traits = biased_traits(256, 256, 128, 128);
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    const Four tail = load_rows([&](int r) LLM_LAMBDA { return at(r) + sizeof(BlockQ3_K) - 16; });
    store_f(out.d, negate(low_halves(shr32<16>(tail.v[3]))));
    V scale[16];
    unpack_scales_q3_k(tail, scale);
    const V even = splat16(0x00ff), bias = splat16(traits.bias);
    unpack_quants_q3_k(at, [&](int element, V q) LLM_LAMBDA {
      const V s = scale[element / 16], base = add16(bias, shl16<2>(s));
      const V low = sub16(base, mul16(and_(q, even), s)), up = sub16(base, mul16(shr16<8>(q), s));
      put(out, element, or_(and_(low, even), shl16<8>(up)));
    });
  }
};

#endif

}  // namespace llm::cpu::LLM_ISA::quant

#endif
