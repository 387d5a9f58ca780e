// Unpacking of weights in the order of the file, for products with few columns. A register takes a group of kLanes
// consecutive blocks, one per 128-bit lane, so that a sub-block's sum is four partial sums of its lane. One struct per
// storage type:
//
//   kBlock             elements under one activation scale: 256 or 32
//   kParts, kBytes     such blocks in a block of the file, and its bytes
//   kActs              registers of activations per group: kBlock / 16 of quants, then sums (Sums says which)
//   group<nc>(w, part, act, fetch, isum, msum, head)   partial sums of the group from part `part` of the block at w on,
//                      with the activations act(column, register);
//                      `head`: bytes of the blocks that factors() wants; fetch(i, n, x) is called at n points of even
//                      distance
//   factors(w, heads, d, m)   factors of four groups: in the order of sum4() (256), of the blocks (32)
//   terms(a, b, c, d, ...)    optional, of blocks with a factor for each half: their terms in the order of sum4(), from
//                      the groups' partial sums and both of what factors() gives
//   activations(q, t)  optional: 16 activations of the block at q that meet register t, if not those at 16 t
#pragma once

#include "backend/cpu/kernels/quant_vec.h"
#include "tensor/blocks.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

enum class StreamSums : std::uint8_t {
  None,
  Per32,     ///< one register of int16 sums of 32
  Per16,     ///< two registers of int16 sums of 16
  BiasOf16,  ///< one register of int32: the sum of 16, 0, the sum of the next 16, 0; times -kBias kTimes
  Bias,      ///< not in the group: per block of 32, times -kBias, as int32
  Float,     ///< not in the group: per block, as f32
};

/// A group's block of lane b, and `offset` bytes into it.
template <class T>
LLM_INLINE V piece(const u8* w, int offset) {
  return lanes([&](int b) LLM_LAMBDA { return w + b * T::kBytes + offset; });
}

// Products of 16 weights and activations per lane: int32 sums of 4, or without kSums32 int16 sums of 2 with unsigned
// weights. Two of these may be added up to 31 * 127 * 2, which all types below keep.
LLM_INLINE V dot(V w, V a) {
#if defined(LLM_ISA_avx2)
  return maddubs(w, a);
#else
  return lane_dot8(zero(), w, a);
#endif
}
LLM_INLINE V dot(V sum, V w, V a) {
#if defined(LLM_ISA_avx2)
  return add16(sum, maddubs(w, a));
#else
  return lane_dot8(sum, w, a);
#endif
}
LLM_INLINE V widen(V sum) { return kSums32 ? sum : madd16(sum, splat16(1)); }

/// Two scales for the sums of two sub-blocks, int16 but on Arm.
struct PairScale {
  V a, b;
};
LLM_INLINE V pick_words(V words, int low, int high) {
  const auto bytes = [](int word) { return (2 * word + 1) << 8 | 2 * word; };
  const int l = bytes(low), h = bytes(high);
  return shuffle8(words, splat128(words_8(l, l, l, l, h, h, h, h)));
}
/// Words 2i and 2i + 1 of each lane.
template <int i>
LLM_INLINE PairScale pair_scale(V words) {
#if defined(LLM_ISA_neon)
  return {splat_word<2 * i>(words), splat_word<2 * i + 1>(words)};
#else
  if constexpr (kSums32)
    return {pick_words(words, 2 * i, 2 * i + 1), zero()};
  else
    return {pick_words(words, 2 * i, 2 * i), pick_words(words, 2 * i + 1, 2 * i + 1)};
#endif
}
/// isum + scale * sum for both. int32 sums of 4 products (8 in Q4_K, Q5_K) fit into int16: 63 * 127 * 4, 31 * 127 * 8.
LLM_INLINE V add_scaled(V isum, V sum0, V sum1, const PairScale& s) {
#if defined(LLM_ISA_neon)
  return add32(add32(isum, mul32(sum0, s.a)), mul32(sum1, s.b));  // one instruction for each product and its sum
#else
  if constexpr (kSums32)
    return madd16(isum, pack32(sum0, sum1), s.a);
  else
    return madd16(madd16(isum, sum0, s.a), sum1, s.b);
#endif
}

LLM_INLINE V words_low(V bytes) { return low8(bytes, zero()); }
LLM_INLINE V words_high(V bytes) { return high8(bytes, zero()); }
LLM_INLINE V signed_words_low(V bytes) { return sar16<8>(low8(bytes, bytes)); }
LLM_INLINE V signed_words_high(V bytes) { return sar16<8>(high8(bytes, bytes)); }

/// Element 0, 3 of each lane of four heads, in the order of sum4().
LLM_INLINE V first_elements(const V* h) { return low64(low32(h[0], h[1]), low32(h[2], h[3])); }
LLM_INLINE V last_elements(const V* h) { return high64(high32(h[0], h[1]), high32(h[2], h[3])); }
/// The f16 at `offset` of the blocks of four groups, in the order of sum4().
template <class T>
LLM_INLINE F block_halves(const u8* w, int offset) {
  return halves([&](int e) LLM_LAMBDA { return w + (kLanes * (e % 4) + e / 4) * T::kBytes + offset; });
}

LLM_INLINE V stream_low(V a) { return and_(a, splat8(0x0f)); }
LLM_INLINE V stream_high(V a) { return and_(shr16<4>(a), splat8(0x0f)); }

struct StreamQ4_0 {
  static constexpr int kBlock = 32, kBytes = sizeof(BlockQ4_0), kParts = 1, kActs = 2, kBias = 8;
  static constexpr StreamSums kSums = StreamSums::Bias;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V&) {
    const V q = piece<StreamQ4_0>(w, offsetof(BlockQ4_0, qs));
    const V low = stream_low(q), high = stream_high(q);
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = widen(dot(dot(low, act(c, 0)), high, act(c, 1))); });
    fetch(Constant<0>{}, Constant<1>{}, isum[0]);
  }
  LLM_INLINE static void factors(const u8* w, const V*, F& d, F&) {
#if defined(LLM_ISA_avx512)
    d = halves_18(w);
#else
    d = halves([&](int e) LLM_LAMBDA { return w + e * kBytes; });
#endif
  }
};

struct StreamQ4_1 {
  static constexpr int kBlock = 32, kBytes = sizeof(BlockQ4_1), kParts = 1, kActs = 2, kBias = 0;
  static constexpr StreamSums kSums = StreamSums::Float;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V& head) {
    head = piece<StreamQ4_1>(w, 0);
    const V q = piece<StreamQ4_1>(w, offsetof(BlockQ4_1, qs));
    const V low = stream_low(q), high = stream_high(q);
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = widen(dot(dot(low, act(c, 0)), high, act(c, 1))); });
    fetch(Constant<0>{}, Constant<1>{}, isum[0]);
  }
  LLM_INLINE static void factors(const u8*, const V* heads, F& d, F& m) {
    const V both = natural_order(first_elements(heads));
    d = low_halves(both);
    m = low_halves(shr32<16>(both));
  }
};

/// q + 0x10 where the two bytes of `head` from `byte` on have the bit of an element.
template <int byte>
LLM_INLINE V add_fifth_bits(V q, V head) {
  constexpr int kFirst = byte * 0x01010101, kSecond = (byte + 1) * 0x01010101;
  const V bytes = shuffle8(head, splat128(ints_4(kFirst, kFirst, kSecond, kSecond)));
  return add_where(q, bytes, splat128(longs_2(0x8040201008040201)), splat8(0x10));
}

template <int kQh>
LLM_INLINE void unpack_five_bits(V q, V head, V& low, V& high) {
  low = add_fifth_bits<kQh>(stream_low(q), head);
  high = add_fifth_bits<kQh + 2>(stream_high(q), head);
}

struct StreamQ5_0 {
  static constexpr int kBlock = 32, kBytes = sizeof(BlockQ5_0), kParts = 1, kActs = 2, kBias = 16;
  static constexpr StreamSums kSums = StreamSums::Bias;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V& head) {
    V low, high;
    head = piece<StreamQ5_0>(w, 0);
    unpack_five_bits<offsetof(BlockQ5_0, qh)>(piece<StreamQ5_0>(w, offsetof(BlockQ5_0, qs)), head, low, high);
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = widen(dot(dot(low, act(c, 0)), high, act(c, 1))); });
    fetch(Constant<0>{}, Constant<1>{}, isum[0]);
  }
  LLM_INLINE static void factors(const u8*, const V* heads, F& d, F&) {
    d = low_halves(natural_order(first_elements(heads)));
  }
};

struct StreamQ5_1 {
  static constexpr int kBlock = 32, kBytes = sizeof(BlockQ5_1), kParts = 1, kActs = 2, kBias = 0;
  static constexpr StreamSums kSums = StreamSums::Float;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V& head) {
    V low, high;
    head = piece<StreamQ5_1>(w, 0);
    unpack_five_bits<offsetof(BlockQ5_1, qh)>(piece<StreamQ5_1>(w, offsetof(BlockQ5_1, qs)), head, low, high);
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = widen(dot(dot(low, act(c, 0)), high, act(c, 1))); });
    fetch(Constant<0>{}, Constant<1>{}, isum[0]);
  }
  LLM_INLINE static void factors(const u8* w, const V* heads, F& d, F& m) { StreamQ4_1::factors(w, heads, d, m); }
};

struct StreamQ8_0 {
  static constexpr int kBlock = 32, kBytes = sizeof(BlockQ8_0), kParts = 1, kActs = 2, kBias = kKeepsBias ? 128 : 0;
  static constexpr StreamSums kSums = kKeepsBias ? StreamSums::Bias : StreamSums::None;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V&) {
    const V q0 = piece<StreamQ8_0>(w, offsetof(BlockQ8_0, qs)), q1 = piece<StreamQ8_0>(w, offsetof(BlockQ8_0, qs) + 16);
#if defined(LLM_ISA_avx2)
    const V m0 = abs8(q0), m1 = abs8(q1);  // at most 128: two products fit into int16, four do not
    repeat<nc>([&](auto c) LLM_LAMBDA {
      isum[c] = add32(widen(dot(m0, sign8(act(c, 0), q0))), widen(dot(m1, sign8(act(c, 1), q1))));
    });
#else
    const V stored = splat8(kKeepsBias ? 0x80 : 0), u0 = xor_(q0, stored), u1 = xor_(q1, stored);
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = dot(dot(u0, act(c, 0)), u1, act(c, 1)); });
#endif
    fetch(Constant<0>{}, Constant<1>{}, isum[0]);
  }
  LLM_INLINE static void factors(const u8* w, const V*, F& d, F&) {
    d = halves([&](int e) LLM_LAMBDA { return w + e * kBytes; });
  }
};

/// Per lane the 8 scales and then the 8 mins of Q4_K and Q5_K as bytes, from the first 16 bytes of a block.
LLM_INLINE V unpack_scales_q4_k(V head) {
  // scales 0-3, 4-7, mins 0-3, 4-7: low bits from bytes 0-3, 8-11, 4-7, 8-11 (>> 4) of the packed scales
  const V low = shuffle8(head, splat128(bytes_16(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)));
  const V low_mask = splat128(ints_4(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
  const V top = shuffle8(head, splat128(bytes_16(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11)));
  return or_and(and_(shr32(low, splat128(ints_4(0, 0, 0, 4))), low_mask), shr16<2>(top), splat8(0x30));
}

struct StreamQ4_K {
  static constexpr int kBlock = 256, kBytes = sizeof(BlockQ4_K), kParts = 1, kActs = 17, kBias = 0;
  static constexpr StreamSums kSums = StreamSums::Per32;
  static constexpr bool kHasMins = true;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V* msum, V& head) {
    head = piece<StreamQ4_K>(w, 0);
    const V packed = unpack_scales_q4_k(head), scales = words_low(packed), mins = words_high(packed);
    repeat<nc>([&](auto c) LLM_LAMBDA {
      isum[c] = zero();
      msum[c] = madd16(mins, act(c, 16));
    });
    repeat<4>([&](auto h) LLM_LAMBDA {
      const V q0 = piece<StreamQ4_K>(w, offsetof(BlockQ4_K, qs) + 32 * h);
      const V q1 = piece<StreamQ4_K>(w, offsetof(BlockQ4_K, qs) + 32 * h + 16);
      const V low0 = stream_low(q0), low1 = stream_low(q1), high0 = stream_high(q0), high1 = stream_high(q1);
      const PairScale s = pair_scale<h>(scales);
      repeat<nc>([&](auto c) LLM_LAMBDA {
        const V sum0 = dot(dot(low0, act(c, 4 * h)), low1, act(c, 4 * h + 1));
        const V sum1 = dot(dot(high0, act(c, 4 * h + 2)), high1, act(c, 4 * h + 3));
        isum[c] = add_scaled(isum[c], sum0, sum1, s);
      });
      fetch(h, Constant<4>{}, isum[0]);
    });
  }
  LLM_INLINE static void factors(const u8*, const V* heads, F& d, F& m) {
    const V both = first_elements(heads);
    d = low_halves(both);
    m = negate(low_halves(shr32<16>(both)));
  }
};

struct StreamQ5_K {
  static constexpr int kBlock = 256, kBytes = sizeof(BlockQ5_K), kParts = 1, kActs = 17, kBias = 0;
  static constexpr StreamSums kSums = StreamSums::Per32;
  static constexpr bool kHasMins = true;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V* msum, V& head) {
    head = piece<StreamQ5_K>(w, 0);
    const V packed = unpack_scales_q4_k(head), scales = words_low(packed), mins = words_high(packed);
    const V top0 = piece<StreamQ5_K>(w, offsetof(BlockQ5_K, qh)),
            top1 = piece<StreamQ5_K>(w, offsetof(BlockQ5_K, qh) + 16);
    const V bit = splat8(0x10);
    repeat<nc>([&](auto c) LLM_LAMBDA {
      isum[c] = zero();
      msum[c] = madd16(mins, act(c, 16));
    });
    repeat<4>([&](auto h) LLM_LAMBDA {
      const V q0 = piece<StreamQ5_K>(w, offsetof(BlockQ5_K, qs) + 32 * h);
      const V q1 = piece<StreamQ5_K>(w, offsetof(BlockQ5_K, qs) + 32 * h + 16);
      const V low0 = or_and(stream_low(q0), shift16<4 - 2 * h>(top0), bit);
      const V low1 = or_and(stream_low(q1), shift16<4 - 2 * h>(top1), bit);
      const V high0 = or_and(stream_high(q0), shift16<3 - 2 * h>(top0), bit);
      const V high1 = or_and(stream_high(q1), shift16<3 - 2 * h>(top1), bit);
      const PairScale s = pair_scale<h>(scales);
      repeat<nc>([&](auto c) LLM_LAMBDA {
        const V sum0 = dot(dot(low0, act(c, 4 * h)), low1, act(c, 4 * h + 1));
        const V sum1 = dot(dot(high0, act(c, 4 * h + 2)), high1, act(c, 4 * h + 3));
        isum[c] = add_scaled(isum[c], sum0, sum1, s);
      });
      fetch(h, Constant<4>{}, isum[0]);
    });
  }
  LLM_INLINE static void factors(const u8* w, const V* heads, F& d, F& m) { StreamQ4_K::factors(w, heads, d, m); }
};

/// -2^shift * sum of scale * sum of activations: what a bias of the quants adds to isum.
template <int shift>
LLM_INLINE V unbias(V scales_low, V scales_high, V sums_low, V sums_high) {
  return sub32(zero(), shl32<shift>(madd16(madd16(scales_low, sums_low), scales_high, sums_high)));
}

struct StreamQ6_K {
  static constexpr int kBlock = 256, kBytes = sizeof(BlockQ6_K), kParts = 1, kActs = 18, kBias = 0;
  static constexpr StreamSums kSums = StreamSums::Per16;
  static constexpr bool kHasMins = false;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V&) {
    const V packed = piece<StreamQ6_K>(w, offsetof(BlockQ6_K, scales)), two_bits = splat8(0x30);
    const V scales[2] = {signed_words_low(packed), signed_words_high(packed)};
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = unbias<5>(scales[0], scales[1], act(c, 16), act(c, 17)); });
    repeat<2>([&](auto h) LLM_LAMBDA {
      const V top0 = piece<StreamQ6_K>(w, offsetof(BlockQ6_K, qh) + 32 * h);
      const V top1 = piece<StreamQ6_K>(w, offsetof(BlockQ6_K, qh) + 32 * h + 16);
      repeat<2>([&](auto k) LLM_LAMBDA {  // elements 128 h + 32 k ... and 64 further on
        const V q0 = piece<StreamQ6_K>(w, offsetof(BlockQ6_K, ql) + 64 * h + 32 * k);
        const V q1 = piece<StreamQ6_K>(w, offsetof(BlockQ6_K, ql) + 64 * h + 32 * k + 16);
        const V low0 = or_and(stream_low(q0), shift16<4 - 2 * k>(top0), two_bits);
        const V low1 = or_and(stream_low(q1), shift16<4 - 2 * k>(top1), two_bits);
        const V high0 = or_and(stream_high(q0), shift16<-2 * k>(top0), two_bits);
        const V high1 = or_and(stream_high(q1), shift16<-2 * k>(top1), two_bits);
        const PairScale s = pair_scale<k>(scales[h]), s_high = pair_scale<k + 2>(scales[h]);
        constexpr int t = 8 * h.value + 2 * k.value;
        repeat<nc>([&](auto c) LLM_LAMBDA {
          isum[c] = add_scaled(isum[c], dot(low0, act(c, t)), dot(low1, act(c, t + 1)), s);
        });
        fetch(Constant<4 * h.value + 2 * k.value>{}, Constant<8>{}, isum[0]);
        repeat<nc>([&](auto c) LLM_LAMBDA {
          isum[c] = add_scaled(isum[c], dot(high0, act(c, t + 4)), dot(high1, act(c, t + 5)), s_high);
        });
        fetch(Constant<4 * h.value + 2 * k.value + 1>{}, Constant<8>{}, isum[0]);
      });
    });
  }
  LLM_INLINE static void factors(const u8* w, const V*, F& d, F&) {
    d = block_halves<StreamQ6_K>(w, offsetof(BlockQ6_K, d));
  }
};

struct StreamQ2_K {
  static constexpr int kBlock = 256, kBytes = sizeof(BlockQ2_K), kParts = 1, kActs = 18, kBias = 0;
  static constexpr StreamSums kSums = StreamSums::Per16;
  static constexpr bool kHasMins = true;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V* msum, V& head) {
    const V packed = piece<StreamQ2_K>(w, 0), four_scales = stream_low(packed), mins = stream_high(packed);
    head = piece<StreamQ2_K>(w, kBytes - 16);  // ends with d, dmin
    repeat<nc>([&](auto c) LLM_LAMBDA {
      isum[c] = zero();
      msum[c] = madd16(madd16(words_low(mins), act(c, 16)), words_high(mins), act(c, 17));
    });
#if defined(LLM_ISA_avx2)
    add_multiples<nc>(w, four_scales, act, fetch, isum);
#else
    const V scales[2] = {words_low(four_scales), words_high(four_scales)};
    const V two_bits = splat8(0x03);
    repeat<2>([&](auto h) LLM_LAMBDA {
      const V q0 = piece<StreamQ2_K>(w, offsetof(BlockQ2_K, qs) + 32 * h);
      const V q1 = piece<StreamQ2_K>(w, offsetof(BlockQ2_K, qs) + 32 * h + 16);
      repeat<4>([&](auto k) LLM_LAMBDA {
        const V w0 = and_(shr16<2 * k>(q0), two_bits), w1 = and_(shr16<2 * k>(q1), two_bits);
        const PairScale s = pair_scale<k>(scales[h]);
        repeat<nc>([&](auto c) LLM_LAMBDA {
          const int t = 8 * h + 2 * k;
          isum[c] = add_scaled(isum[c], dot(w0, act(c, t)), dot(w1, act(c, t + 1)), s);
        });
        fetch(Constant<4 * h.value + k.value>{}, Constant<8>{}, isum[0]);
      });
    });
#endif
  }
  LLM_INLINE static void factors(const u8*, const V* heads, F& d, F& m) {
    const V both = last_elements(heads);
    d = low_halves(both);
    m = negate(low_halves(shr32<16>(both)));
  }

#if defined(LLM_ISA_avx2)
 private:
  /// By tables: the four multiples of a scale, 45 at most, are looked up by nibbles, each of which holds two quants.
  /// Two such products with activations fit into int16 and are widened together.
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void add_multiples(const u8* w, V scales, const Act& act, const Fetch& fetch, V* isum) {
    const V twice = add8(scales, scales), thrice = add8(twice, scales);
    const V ones_low = low8(zero(), scales), ones_high = high8(zero(), scales);
    const V twos_low = low8(twice, thrice), twos_high = high8(twice, thrice);
    // in each lane the multiples of four scales, 0 to 3 times
    const V multiples[4] = {low16(ones_low, twos_low), high16(ones_low, twos_low), low16(ones_high, twos_high),
                            high16(ones_high, twos_high)};
    repeat<4>([&](auto i) LLM_LAMBDA {  // by 64 elements, whose steps are taken side by side
      constexpr int kHalf = i.value / 2, kSub = 4 * i.value;
      const V q0 = piece<StreamQ2_K>(w, offsetof(BlockQ2_K, qs) + 32 * kHalf);
      const V q1 = piece<StreamQ2_K>(w, offsetof(BlockQ2_K, qs) + 32 * kHalf + 16);
      const V n[2] = {i % 2 == 0 ? stream_low(q0) : stream_high(q0), i % 2 == 0 ? stream_low(q1) : stream_high(q1)};
      V scaled[4];
      repeat<4>([&](auto j) LLM_LAMBDA { scaled[j] = table<j / 2, j>(multiples[i]); });
      repeat<4>([&](auto j) LLM_LAMBDA { scaled[j] = shuffle8(scaled[j], n[j % 2]); });
      repeat<nc>([&](auto c) LLM_LAMBDA {
        V sums[4];
        repeat<4>([&](auto j) LLM_LAMBDA { sums[j] = dot(scaled[j], act(c, kSub + j)); });
        isum[c] = add32(isum[c], add32(widen(add16(sums[0], sums[1])), widen(add16(sums[2], sums[3]))));
      });
      fetch(Constant<2 * i.value>{}, Constant<8>{}, isum[0]);
      fetch(Constant<2 * i.value + 1>{}, Constant<8>{}, isum[0]);
    });
  }
  /// Multiples of scale i by the first or the second quant of a nibble.
  template <int second, int i>
  LLM_INLINE static V table(V multiples) {
    constexpr int k = 4 * i;
    if constexpr (second == 0)
      return shuffle8(multiples, splat128(ints_4((k + 3) << 24 | (k + 2) << 16 | (k + 1) << 8 | k)));
    return shuffle8(multiples, splat128(bytes_16(k, k, k, k, k + 1, k + 1, k + 1, k + 1, k + 2, k + 2, k + 2, k + 2,
                                                 k + 3, k + 3, k + 3, k + 3)));
  }
#endif
};

/// Per lane the 16 scales of Q3_K, from the last 16 bytes of a block (2 of qs, 12 of packed scales, d).
LLM_INLINE V unpack_scales_q3_k(V tail) {
  const V eight = splat128(bytes_16(2, 3, 4, 5, 6, 7, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1));
  const V low = low64(shuffle8(stream_low(tail), eight), shuffle8(stream_high(tail), eight));
  const V top = shuffle8(tail, splat128(ints_4(0x0d0c0b0a)));
  const V two_bits = and_(shr32(top, splat128(ints_4(0, 2, 4, 6))), splat8(0x03));
  return sub8(or_(low, shl16<4>(two_bits)), splat8(32));
}

struct StreamQ3_K {
  static constexpr int kBlock = 256, kBytes = sizeof(BlockQ3_K), kParts = 1, kActs = 18, kBias = 0;
  static constexpr StreamSums kSums = StreamSums::Per16;
  static constexpr bool kHasMins = false;
  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int, const Act& act, const Fetch& fetch, V* isum, V*, V& head) {
    head = piece<StreamQ3_K>(w, kBytes - 16);
    const V packed = unpack_scales_q3_k(head);
    const V scales[2] = {signed_words_low(packed), signed_words_high(packed)};
    const V top0 = piece<StreamQ3_K>(w, offsetof(BlockQ3_K, hmask)),
            top1 = piece<StreamQ3_K>(w, offsetof(BlockQ3_K, hmask) + 16);
    repeat<nc>([&](auto c) LLM_LAMBDA { isum[c] = unbias<2>(scales[0], scales[1], act(c, 16), act(c, 17)); });
    const V two_bits = splat8(0x03), bit = splat8(0x04);
    repeat<2>([&](auto h) LLM_LAMBDA {
      const V q0 = piece<StreamQ3_K>(w, offsetof(BlockQ3_K, qs) + 32 * h);
      const V q1 = piece<StreamQ3_K>(w, offsetof(BlockQ3_K, qs) + 32 * h + 16);
      repeat<4>([&](auto k) LLM_LAMBDA {
        constexpr int kUp = 2 - (4 * h.value + k.value);
        const V w0 = or_and(and_(shr16<2 * k>(q0), two_bits), shift16<kUp>(top0), bit);
        const V w1 = or_and(and_(shr16<2 * k>(q1), two_bits), shift16<kUp>(top1), bit);
        const PairScale s = pair_scale<k>(scales[h]);
        repeat<nc>([&](auto c) LLM_LAMBDA {
          const int t = 8 * h + 2 * k;
          isum[c] = add_scaled(isum[c], dot(w0, act(c, t)), dot(w1, act(c, t + 1)), s);
        });
        fetch(Constant<4 * h.value + k.value>{}, Constant<8>{}, isum[0]);
      });
    });
  }
  LLM_INLINE static void factors(const u8*, const V* heads, F& d, F&) {
    d = low_halves(shr32<16>(last_elements(heads)));
  }
};

}  // namespace llm::cpu::LLM_ISA::quant

#endif
