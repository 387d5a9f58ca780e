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

/// Blocks of 32 elements: two of 16, whose sums stay apart until each has its own factor. A lane holds quants as the
/// file does, the first or the last eight elements of both, and activations likewise.
struct StreamNVFP4 {
  static constexpr int kBlock = 32, kParts = 2, kBytes = sizeof(BlockNVFP4), kBias = kKeepsBias || !kSums32 ? 16 : 0;
  static constexpr StreamSums kSums = kBias != 0 ? StreamSums::BiasOf16 : StreamSums::None;
  static constexpr int kActs = kBias != 0 ? 3 : 2;
  static constexpr int kTimes = kSums32 ? 1 : 128;  ///< what widens sums multiplies them, so that factors need not be

  /// Register t of the activations of a block.
  LLM_INLINE static Lane activations(const std::int8_t* q, int t) {
#if defined(LLM_ISA_neon)
    return load16(q + 16 * t);
#else
    return load8_twice(q + 8 * t, q + 16 + 8 * t);
#endif
  }

  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int part, const Act& act, const Fetch& fetch, V* isum, V*, V&) {
    const V table = value_table<kBias, kBias != 0>(kValuesE2M1), q = quants(w, part);
    const V low = shuffle8(table, stream_low(q)), high = shuffle8(table, stream_high(q));
    repeat<nc>([&](auto c) LLM_LAMBDA {
#if defined(LLM_ISA_neon)
      isum[c] = sum2(dot(low64(low, high), act(c, 0)), dot(high64(low, high), act(c, 1)));
#elif defined(LLM_ISA_avx2)
      isum[c] = add32(madd16(dot(dot(low, act(c, 0)), high, act(c, 1)), splat16(kTimes)), act(c, 2));
#else
      isum[c] = lane_dot8(lane_dot8(act(c, 2), low, act(c, 0)), high, act(c, 1));
#endif
    });
    fetch(Constant<0>{}, Constant<1>{}, isum[0]);
  }

  /// In each lane: of the blocks of groups 0 and 1, then of 2 and 3.
  LLM_INLINE static void factors(const u8* w, const V*, F& first, F& second) {
#if defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)
    const Lane bytes = load4_each(w, w + kBytes, w + 2 * kBytes, w + 3 * kBytes);
    const Lane nan = _mm_set1_epi8(0x7f),
               known = _mm_andnot_si128(_mm_cmpeq_epi8(bytes, nan), _mm_and_si128(bytes, nan));
    const auto of = [&](Lane high_bytes) LLM_LAMBDA {
      const F d = _mm256_cvtph_ps(_mm_srli_epi16(_mm_shuffle_epi8(known, high_bytes), 1));
      return kTimes == 128 ? d : mul(d, splat_f(0x1p7f));
    };
    first = of(bytes_16(-1, 0, -1, 1, -1, 4, -1, 5, -1, 2, -1, 3, -1, 6, -1, 7));
    second = of(bytes_16(-1, 8, -1, 9, -1, 12, -1, 13, -1, 10, -1, 11, -1, 14, -1, 15));
#else
    const V four = join([&](int b) LLM_LAMBDA {
      const auto scales = [&](int j) LLM_LAMBDA { return w + (j * kLanes + b) / 2 * kBytes; };
      return load4_each(scales(0), scales(1), scales(2), scales(3));
    });
    const auto of = [&](int group) LLM_LAMBDA {
      const V place = join([&](int b) LLM_LAMBDA {
        const auto byte = [&](int j) LLM_LAMBDA { return 4 * j + (j * kLanes + b) % 2 * 2; };
        const int a = byte(group), c = byte(group + 1);
        return bytes_16(a, -1, -1, -1, a + 1, -1, -1, -1, c, -1, -1, -1, c + 1, -1, -1, -1);
      });
      return e4m3_halves(shuffle8(four, place));
    };
    first = of(0);
    second = of(2);
#endif
  }
  LLM_INLINE static F terms(V a, V b, V c, V d, F first, F second) {
    return sum2(mul(first, to_f(sum2(a, b))), mul(second, to_f(sum2(c, d))));
  }

 private:
  LLM_INLINE static V quants(const u8* w, int part) {
    const u8* q = w + offsetof(BlockNVFP4, qs) + 16 * part;
#if defined(LLM_ISA_avx2) || defined(LLM_ISA_avx2vnni)
    return load(q);  // a group is a block of the file
#else
    return lanes([&](int b) LLM_LAMBDA { return q + b / 2 * kBytes + b % 2 * 16; });
#endif
  }
};

/// A whole block of the file at a time: its scales are one element of each row, and its parts share their loads.
struct PanelNVFP4 {
  static constexpr int kBytes = sizeof(BlockNVFP4), kParts = 4, kPartsAtOnce = 4;
  static constexpr int kBias = 16, kMax = 16;  // rounded up as PanelOf does, which shares the tiles of MXFP4's
  static constexpr PanelTraits traits = biased_traits(16, 16, kBias, kMax);
  template <class At>
  LLM_INLINE static void unpack(const At& at, int, const PanelBlock& out) {
    static_assert(offsetof(BlockNVFP4, qs) == 4);
    const V table = value_table<kBias, traits.bias != 0>(kValuesE2M1), scales = load_rows(at).v[0];
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
    put(Constant<15>{}, biased<kBias, with_bias>(digit(last_fractions(at))));
  }
  /// Of the last 16 elements.
  template <class At>
  LLM_INLINE static V last_fractions(const At& at) {
    // 4 bytes, of which element j of a lane is multiplied by 3^j
    const V q = lanes4([&](int l) LLM_LAMBDA { return at(l).block + offsetof(BlockTQ1_0, qh); });
    const V four = shuffle8(q, splat128(ints_4(0x03020100))), even = splat16(0x00ff);
    const V power = splat128(words_8(1, 1, 3, 3, 9, 9, 27, 27));
    return or_(and_(mul16(and_(four, even), power), even), shl16<8>(mul16(shr16<8>(four), power)));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, offsetof(BlockTQ1_0, d));
  }
};

#if defined(LLM_ISA_avx2)
/// One or two columns: two digits of a byte at a time. Nine times a fraction has in its high byte a place in a table of
/// each digit. What unpacks some bytes stands beside what multiplies others: a first EPYC, whose halves of a register
/// are instructions of their own, looks no more than 18 of these ahead.
struct StreamTQ1_0 : StreamOf<WeightsTQ1_0> {
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int part, const Act& act, const Fetch& fetch, V* isum, V* msum, V& head) {
    if constexpr (nc > 2)
      StreamOf<WeightsTQ1_0>::group<nc>(w, part, act, fetch, isum, msum, head);
    else
      add_pairs([&](int b) LLM_LAMBDA { return place(w, part, b); },
                PieceSums<WeightsTQ1_0, nc, Act, Fetch>(zero(), act, fetch, isum));
  }

 private:
  template <class At, class Sums>
  LLM_INLINE static void add_pairs(const At& at, Sums sums) {
    const V first = value_table<kBias, true>(kFirstDigits), second = value_table<kBias, true>(kSecondDigits);
    V fraction[3] = {bytes_at(at, 0), bytes_at(at, 16), bytes_at(at, 32)}, pair[3];
    const auto split = [&](int i) LLM_LAMBDA {
      const V low = splat16(0x00ff), even = maddubs(fraction[i], splat16(9)),
              odd = maddubs(fraction[i], splat16(9 << 8));
      pair[i] = or_and(shr16<8>(even), odd, splat16(0xff00));
      fraction[i] = or_(and_(even, low), shl16<8>(odd));
    };
    const auto add_pair = [&](auto n) LLM_LAMBDA {  // elements of 32 neighbouring bytes, then of 16
      constexpr int i = n.value % 3, kStep = i < 2 ? 2 : 1, t = (i < 2 ? i : 10) + 2 * kStep * (n.value / 3);
      sums.add(Constant<t>{}, shuffle8(first, pair[i]));
      sums.add(Constant<t + kStep>{}, shuffle8(second, pair[i]));
    };
    split(0);
    repeat<5>([&](auto n) LLM_LAMBDA {
      split((n + 1) % 3);
      add_pair(n);
    });
    const V last[4] = {WeightsTQ1_0::digit(fraction[0]), WeightsTQ1_0::digit(fraction[1]),
                       WeightsTQ1_0::digit(fraction[2]), WeightsTQ1_0::digit(WeightsTQ1_0::last_fractions(at))};
    add_pair(Constant<5>{});
    sums.add(Constant<8>{}, last[0]);
    sums.add(Constant<9>{}, last[1]);
    sums.add(Constant<14>{}, last[2]);
    sums.add(Constant<15>{}, last[3]);
  }

  static constexpr std::int8_t kFirstDigits[16] = {-1, -1, -1, 0, 0, 0, 1, 1, 1};
  static constexpr std::int8_t kSecondDigits[16] = {-1, 0, 1, -1, 0, 1, -1, 0, 1};
};
#else
using StreamTQ1_0 = StreamOf<WeightsTQ1_0>;
#endif

using PanelTQ1_0 = PanelOf<WeightsTQ1_0>;

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
#if defined(LLM_ISA_avx2)
struct StreamTQ2_0 : Inline {
#else
struct StreamTQ2_0 : InLoop {
#endif
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
