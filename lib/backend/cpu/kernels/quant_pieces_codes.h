// Pieces of the types whose elements are codes of a few bits, with or without a table of 16 values: IQ4_NL IQ4_XS MXFP4
// NVFP4 Q1_0 Q2_0 TQ1_0 TQ2_0.
#pragma once

#include "backend/cpu/kernels/quant_pieces.h"
#include "tensor/codebooks.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

/// The 16 values as pieces hold them, in each lane.
template <int bias, bool with_bias>
LLM_INLINE V value_table(const std::int8_t* values) {
  return add8(splat128(load16(values)), splat8(with_bias ? bias : 0));
}

struct WeightsIQ4_NL {
  using Form = Inline;
  static constexpr int kBlock = 32, kParts = 1, kBytes = sizeof(BlockIQ4_NL), kSub = 32;
  static constexpr int kBias = 128, kMin = -127, kMax = 113;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const V table = value_table<kBias, with_bias>(kValuesIQ4), q = bytes_at(at, offsetof(BlockIQ4_NL, qs));
    put(Constant<0>{}, shuffle8(table, low_nibbles(q)));
    put(Constant<1>{}, shuffle8(table, high_nibbles(q)));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, 0);
  }
#if defined(LLM_ISA_avx512)
  LLM_INLINE static F stream_factors(const u8* w) { return halves_18(w); }
#endif
};

struct WeightsIQ4_XS {
  using Form = Inline;
  static constexpr int kBlock = 256, kParts = 1, kBytes = sizeof(BlockIQ4_XS), kSub = 32;
  static constexpr int kBias = 128, kMin = -127, kMax = 113;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const V table = value_table<kBias, with_bias>(kValuesIQ4);
    repeat<8>([&](auto g) LLM_LAMBDA {
      const V q = bytes_at(at, offsetof(BlockIQ4_XS, qs) + 16 * g);
      put(Constant<2 * g>{}, shuffle8(table, low_nibbles(q)));
      put(Constant<2 * g + 1>{}, shuffle8(table, high_nibbles(q)));
    });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    const V head = bytes_at(at, 0);  // d, scales_h, scales_l, ...
    // element j of a lane is of groups 2j, 2j, 2j + 1, 2j + 1, whose bits are byte j of scales_l and 4j ... of scales_h
    const V l = shuffle8(head, splat128(bytes_16(4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7)));
    const V low = or_and(and_(l, splat32(0x00000f0f)), shr16<4>(l), splat32(0x0f0f0000));
    const V h = shr32(shuffle8(head, splat128(ints_4(0x03020302))), splat128(ints_4(0, 4, 8, 12)));
    const V two = shuffle8(h, splat128(bytes_16(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
    const V high = or_and(and_(shl16<4>(two), splat32(0x00003030)), shl16<2>(two), splat32(0x30300000));
    return sub8(or_(low, high), splat8(32));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, 0);
  }
};

/// e8m0_half() of each element.
LLM_INLINE F powers_of_two(V e) {
  return as_f(max32(shl32<23>(add32(e, splat32(-1))), shl32(splat32(0x00200000), min32(e, splat32(2)))));
}

/// ue4m3_half() of each element: as f16 the bits stand for 2^-8 of the value.
LLM_INLINE F e4m3_halves(V x) {
  const V is_nan = sar32<31>(sub32(xor_(x, splat32(0x7f)), splat32(1)));
  const F value = mul(low_halves(shl32<7>(and_(x, splat32(0x7f)))), splat_f(0x1p7f));
  return as_f(sub32(bits(value), and_(bits(value), is_nan)));
}

#if defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)
/// The same of 8 bytes.
LLM_INLINE F e4m3_halves(Lane bytes) {
  const Lane words = _mm_cvtepu8_epi16(bytes), is_nan = _mm_cmpeq_epi16(words, words_8(0x7f));
  const Lane magnitudes = _mm_andnot_si128(is_nan, _mm_and_si128(words, words_8(0x7f)));
  return mul(_mm256_cvtph_ps(_mm_slli_epi16(magnitudes, 7)), splat_f(0x1p7f));
}
#endif

struct WeightsMXFP4 {
  static constexpr int kBlock = 32, kParts = 1, kBytes = sizeof(BlockMXFP4), kSub = 32;
  static constexpr int kBias = 16, kMin = -12, kMax = 12;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const V table = value_table<kBias, with_bias>(kValuesE2M1), q = bytes_at(at, offsetof(BlockMXFP4, qs));
    put(Constant<0>{}, shuffle8(table, low_nibbles(q)));
    put(Constant<1>{}, shuffle8(table, high_nibbles(q)));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return powers_of_two(byte_elements([&](int i) LLM_LAMBDA { return at(i).block; }));
  }
};

/// With unsigned weights on every set of instructions: they are so small that products need no signs there.
struct StreamMXFP4 {
  static constexpr int kBlock = 32, kBytes = sizeof(BlockMXFP4), kParts = 1, kActs = 2, kBias = WeightsMXFP4::kBias;
  static constexpr StreamSums kSums = StreamSums::Bias;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V&) {
    const V table = add8(splat128(load16(kValuesE2M1)), splat8(kBias));
    const V q = piece<StreamMXFP4>(w, offsetof(BlockMXFP4, qs));
    const V low = shuffle8(table, stream_low(q)), high = shuffle8(table, stream_high(q));
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = widen(dot(dot(low, act(c, 0)), high, act(c, 1))); });
    fetch(Constant<0>{}, Constant<1>{}, isum[0]);
  }
  LLM_INLINE static void factors(const u8* w, const V*, F& d, F&) {
#if defined(LLM_ISA_neon)
    d = powers_of_two(byte_elements([&](int e) LLM_LAMBDA { return w + e * kBytes; }));
#else
    d = powers_of_two(byte_elements_17(w));
#endif
  }
};

using PanelMXFP4 = PanelOf<WeightsMXFP4>;

struct WeightsNVFP4 {
  using Form = Inline;
  static constexpr int kBlock = 16, kParts = 4, kBytes = sizeof(BlockNVFP4), kSub = 16;
  static constexpr int kBias = 16, kMin = -12, kMax = 12;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const V q = lanes8([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockNVFP4, qs) + 8 * at(b).part; });
    put(Constant<0>{}, shuffle8(value_table<kBias, with_bias>(kValuesE2M1), low64(low_nibbles(q), high_nibbles(q))));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return e4m3_halves(byte_elements([&](int i) LLM_LAMBDA { return at(i).block + at(i).part; }));
  }
#if defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)
  LLM_INLINE static F stream_factors(const u8* w) {
    return e4m3_halves(_mm_unpacklo_epi32(load4(w), load4(w + kBytes)));
  }
#endif
};

using StreamNVFP4 = StreamOf<WeightsNVFP4>;

/// A whole block of the file at a time: its scales are one element of each row, and its parts share their loads.
struct PanelNVFP4 {
  static constexpr int kBytes = sizeof(BlockNVFP4), kParts = 4, kPartsAtOnce = 4;
  static constexpr PanelTraits traits = PanelOf<WeightsNVFP4>::traits;
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    static_assert(offsetof(BlockNVFP4, qs) == 4);
    const V table = value_table<WeightsNVFP4::kBias, traits.bias != 0>(kValuesE2M1), scales = load_rows(at).v[0];
    const Eight x = load_rows_32([&](int r) LLM_LAMBDA { return at(r) + offsetof(BlockNVFP4, qs); });
    repeat<4>([&](auto part) LLM_LAMBDA {
      store_f(out.d + part * kPanelRows, e4m3_halves(and_(shr32<8 * part>(scales), splat32(0xff))));
      for (int i = 0; i < 2; ++i) {
        const V q = x.v[2 * part + i];
        put(out, 16 * part + 4 * i, shuffle8(table, low_nibbles(q)));
        put(out, 16 * part + 8 + 4 * i, shuffle8(table, high_nibbles(q)));
      }
    });
  }
};

struct WeightsQ1_0 {
  using Form = Inline;
  static constexpr int kBlock = 32, kParts = 4, kBytes = sizeof(BlockQ1_0), kSub = 32;
  static constexpr int kBias = 1, kMin = -1, kMax = 1;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const V q = lanes4([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockQ1_0, qs) + 4 * at(b).part; });
    const V bit = splat128(longs_2(0x8040201008040201));
    repeat<2>([&](auto t) LLM_LAMBDA {
      constexpr int kFirst = 2 * t * 0x01010101, kSecond = (2 * t + 1) * 0x01010101;
      const V bytes = shuffle8(q, splat128(ints_4(kFirst, kFirst, kSecond, kSecond)));
      put(t, biased<kBias, with_bias>(add_where(zero(), bytes, bit, splat8(2))));
    });
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, 0);
  }
#if defined(LLM_ISA_avx512)
  LLM_INLINE static F stream_factors(const u8* w) { return halves_repeated<kParts, kBytes>(w); }
#endif
};

struct WeightsQ2_0 {
  using Form = Inline;
  static constexpr int kBlock = 32, kParts = 2, kBytes = sizeof(BlockQ2_0), kSub = 32;
  static constexpr int kBias = 1, kMin = -1, kMax = 2;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const V q = lanes8([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockQ2_0, qs) + 8 * at(b).part; });
    const V four_bits = low8(low_nibbles(q), high_nibbles(q)), two = splat8(0x03);
    const V even = and_(four_bits, two), odd = and_(shr16<2>(four_bits), two);
    put(Constant<0>{}, biased<kBias, with_bias>(low8(even, odd)));
    put(Constant<1>{}, biased<kBias, with_bias>(high8(even, odd)));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, 0);
  }
#if defined(LLM_ISA_avx512)
  LLM_INLINE static F stream_factors(const u8* w) { return halves_repeated<kParts, kBytes>(w); }
#endif
};

struct WeightsTQ1_0 {
  using Form = InLoop;
  static constexpr int kBlock = 256, kParts = 1, kBytes = sizeof(BlockTQ1_0), kSub = 256;
  static constexpr int kBias = 1, kMin = -1, kMax = 1;
  /// The first base-3 digit of each byte as a fraction: byte * 3 / 256.
  LLM_INLINE static V digit(V fraction) {
    const V one = splat8(1);
    return add8(min8(sub8_to_zero(fraction, splat8(85)), one), min8(sub8_to_zero(fraction, splat8(170)), one));
  }
  LLM_INLINE static V next(V fraction) { return add8(add8(fraction, fraction), fraction); }

  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    V a = bytes_at(at, 0), b = bytes_at(at, 16), c = bytes_at(at, 32);
    repeat<5>([&](auto p) LLM_LAMBDA {
      put(Constant<2 * p>{}, biased<kBias, with_bias>(digit(a)));
      put(Constant<2 * p + 1>{}, biased<kBias, with_bias>(digit(b)));
      a = next(a);
      b = next(b);
    });
    repeat<5>([&](auto p) LLM_LAMBDA {
      put(Constant<10 + p>{}, biased<kBias, with_bias>(digit(c)));
      c = next(c);
    });
    // 4 bytes, of which element j of a lane is multiplied by 3^j
    const V q = lanes4([&](int l) LLM_LAMBDA { return at(l).block + offsetof(BlockTQ1_0, qh); });
    const V four = shuffle8(q, splat128(ints_4(0x03020100))), even = splat16(0x00ff);
    const V power = splat128(words_8(1, 1, 3, 3, 9, 9, 27, 27));
    const V low = and_(mul16(and_(four, even), power), even), high = shl16<8>(mul16(shr16<8>(four), power));
    put(Constant<15>{}, biased<kBias, with_bias>(digit(or_(low, high))));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, offsetof(BlockTQ1_0, d));
  }
};

struct WeightsTQ2_0 {
  using Form = InLoop;
  static constexpr int kBlock = 256, kParts = 1, kBytes = sizeof(BlockTQ2_0), kSub = 256;
  static constexpr int kBias = 1, kMin = -1, kMax = 2;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const V two = splat8(0x03);
    repeat<2>([&](auto h) LLM_LAMBDA {
      const V q0 = bytes_at(at, 32 * h), q1 = bytes_at(at, 32 * h + 16);
      repeat<4>([&](auto k) LLM_LAMBDA {
        put(Constant<8 * h.value + 2 * k.value>{}, biased<kBias, with_bias>(and_(shr16<2 * k>(q0), two)));
        put(Constant<8 * h.value + 2 * k.value + 1>{}, biased<kBias, with_bias>(and_(shr16<2 * k>(q1), two)));
      });
    });
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, offsetof(BlockTQ2_0, d));
  }
};

/// Two of four elements are taken out of their byte as they are, and count four times: a shift less. With unsigned
/// weights on every set of instructions.
struct StreamTQ2_0 : InLoop {
  static constexpr int kBlock = 256, kBytes = sizeof(BlockTQ2_0), kParts = 1, kActs = 18, kBias = WeightsTQ2_0::kBias;
  static constexpr StreamSums kSums = StreamSums::Per16;
  static constexpr bool kHasMins = false;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V&) {
    V once[nc], four_times[nc];  // without kSums32 int16: 12 * 127 * 2 * 8 at most
    repeat<nc>([&](auto c) LLM_LAMBDA { once[c] = four_times[c] = zero(); });
    repeat<4>([&](auto i) LLM_LAMBDA {
      constexpr int kHalf = i / 2, kShift = i % 2 * 4, kFirst = 8 * kHalf + kShift;
      const V q0 = shift16<-kShift>(piece<StreamTQ2_0>(w, offsetof(BlockTQ2_0, qs) + 32 * kHalf));
      const V q1 = shift16<-kShift>(piece<StreamTQ2_0>(w, offsetof(BlockTQ2_0, qs) + 32 * kHalf + 16));
      const auto add = [&](V* sums, int mask, int t) LLM_LAMBDA {
        const V w0 = and_(q0, splat8(mask)), w1 = and_(q1, splat8(mask));
        repeat<nc>([&](auto c) LLM_LAMBDA { sums[c] = dot(dot(sums[c], w0, act(c, t)), w1, act(c, t + 1)); });
      };
      add(once, 0x03, kFirst);
      add(four_times, 0x0c, kFirst + 2);
      fetch(Constant<i>{}, Constant<4>{}, once[0]);
    });
    const V minus = splat16(-kBias);
    repeat<nc>([&](auto c) LLM_LAMBDA {
      const V unbiased = madd16(madd16(minus, act(c, 16)), minus, act(c, 17));
      isum[c] = add32(add32(unbiased, widen(once[c])), sar32<2>(widen(four_times[c])));
    });
  }
  LLM_INLINE static void factors(const u8* w, const V*, F& d, F&) {
    d = block_halves<StreamTQ2_0>(w, offsetof(BlockTQ2_0, d));
  }
};

using PanelTQ2_0 = PanelOf<WeightsTQ2_0>;

}  // namespace llm::cpu::LLM_ISA::quant

#endif
