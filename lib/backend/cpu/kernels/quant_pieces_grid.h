// Pieces of the types whose elements are rows of a grid (tensor/codebooks.h): IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS
// IQ3_S. Indices, signs and scales are taken apart in registers. The rows themselves are loaded one by one, which is
// three times as fast as gathering them, but for the cores with AMX, where gathering is the faster way
// (docs/performance.md).
//
// With integers for what GGUF writes as fractions (quant_linear.h): values are sign * row, under scales 2 s + 1 and a
// factor d / 8 (IQ2), d / 4 (IQ3_XXS) or d (IQ3_S); those of IQ1 are 8 * row + 1 or - 1, under 2 s + 1 and d / 8.
#pragma once

#include "backend/cpu/kernels/quant_pieces.h"
#include "tensor/codebooks.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

/// Unpacks in a function of its own, which all callers share: the pieces of a group take hundreds of instructions.
template <class Unpack>
struct OutOfLine : Unpack {
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    const u8* blocks[kLanes];
    for (int b = 0; b < kLanes; ++b) blocks[b] = at(b).block;
    V all[16];
    unpack<with_bias>(blocks, all);
    repeat<16>([&](auto t) LLM_LAMBDA { put(t, all[t]); });
  }

 private:
  template <bool with_bias>
  [[gnu::noinline]] static void unpack(const u8* const* blocks, V* all) {
    Unpack::template pieces<with_bias>(
        [&](int b) LLM_LAMBDA {
          return Place{blocks[b], 0};
        },
        [&](auto t, V piece) LLM_LAMBDA { all[t] = piece; });
  }
};

/// What these types have in common.
struct GridWeights {
  using Form = InLoop;
  static constexpr int kBlock = 256, kParts = 1;
};

#if defined(LLM_ISA_amx)

inline constexpr bool kGathers = true;

/// Row numbers of kLanes blocks, eight to a lane of a register.
template <int n>
struct RowNumbers {
  V words[n / 8];
  LLM_INLINE void set(int eight, V numbers) { words[eight] = numbers; }
};

/// Piece `t` of each lane: the rows of numbers 2 t and 2 t + 1.
template <int t, int n>
LLM_INLINE V piece_of_rows(const std::uint64_t* rows, const RowNumbers<n>& number) {
  constexpr int k = 4 * (t % 4);
  const Lane two = bytes_16(k, k + 1, -1, -1, -1, -1, -1, -1, k + 2, k + 3, -1, -1, -1, -1, -1, -1);
  return _mm512_i64gather_epi64(shuffle8(number.words[t / 4], splat128(two)), rows, sizeof *rows);
}
/// The same with rows of 4 elements: of numbers 4 t to 4 t + 3.
template <int t, int n>
LLM_INLINE V piece_of_rows(const std::uint32_t* rows, const RowNumbers<n>& number) {
  constexpr int k = 8 * (t % 2);
  const Lane four = bytes_16(k, k + 1, -1, -1, k + 2, k + 3, -1, -1, k + 4, k + 5, -1, -1, k + 6, k + 7, -1, -1);
  return _mm512_i32gather_epi32(shuffle8(number.words[t / 2], splat128(four)), rows, sizeof *rows);
}

#else

inline constexpr bool kGathers = false;

/// Byte i of those at p. Where loads are what a product waits for (two a cycle, and each row is one), four are loaded
/// at once and taken apart by integer instructions.
LLM_INLINE std::size_t row_number(const u8* p, int i) {
#if defined(LLM_ISA_avx2)
  const std::size_t four = static_cast<std::uint32_t>(load_i32(p + i / 4 * 4));
  return four >> (8 * (i % 4)) & 0xff;
#else
  return p[i];
#endif
}

LLM_INLINE Lane two_rows(const std::uint64_t* rows, std::size_t first, std::size_t second) {
  return load8_twice(rows + first, rows + second);
}
LLM_INLINE Lane four_rows(const std::uint32_t* rows, std::size_t a, std::size_t b, std::size_t c, std::size_t d) {
  return load4_each(rows + a, rows + b, rows + c, rows + d);
}

/// Piece `t` of each lane: the rows of numbers of(lane, 2 t) and of(lane, 2 t + 1).
template <int t, class Of>
LLM_INLINE V piece_of_rows(const std::uint64_t* rows, const Of& of) {
  return join([&](int b) LLM_LAMBDA { return two_rows(rows, of(b, 2 * t), of(b, 2 * t + 1)); });
}
/// The same with rows of 4 elements: of numbers of(lane, 4 t) to of(lane, 4 t + 3).
template <int t, class Of>
LLM_INLINE V piece_of_rows(const std::uint32_t* rows, const Of& of) {
  return join([&](int b) LLM_LAMBDA {
    return four_rows(rows, of(b, 4 * t), of(b, 4 * t + 1), of(b, 4 * t + 2), of(b, 4 * t + 3));
  });
}

/// Row numbers of kLanes blocks, eight to a lane of a register.
template <int n>
struct RowNumbers {
  alignas(64) std::uint16_t number[n / 8][kLanes][8];
  LLM_INLINE void set(int eight, V words) { store(number[eight], words); }
  LLM_INLINE std::size_t operator()(int lane, int row) const { return number[row / 8][lane][row % 8]; }
};

#endif

/// Bytes 2 t and 2 t + 1 of each lane, eight times each.
template <int t>
LLM_INLINE V spread_bytes(V a) {
  constexpr int kFirst = 2 * t * 0x01010101, kSecond = (2 * t + 1) * 0x01010101;
  return shuffle8(a, splat128(ints_4(kFirst, kFirst, kSecond, kSecond)));
}

/// Of types with rows of magnitudes, whose signs are a bit for each element in two registers.
template <class Rows>
struct SignedRows : Rows {
  static constexpr bool kHasRows = true;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    Rows::rows(at, [&](auto t, V magnitudes, V bits) LLM_LAMBDA {
      const V value = with_signs(magnitudes, bits);
      put(t, with_bias ? add8(value, splat8(Rows::kBias)) : value);
    });
  }
};

/// seven_signs() of each byte.
LLM_INLINE V seven_signs(V index) {
  const V parity = splat128(bytes_16(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
  return or_(index, shuffle8(parity, and_(xor_(index, shr16<4>(index)), splat8(0x0f))));
}

/// The 16 signs' bytes of four SignsAndScale per lane.
LLM_INLINE V signs_of_words(V words) {  // four times 7 bits: twice 14 into words, then 7 into bytes
  const V pairs = or_and(and_(words, splat32(0x3fff)), shl32<2>(words), splat32(0x3fff0000));
  return seven_signs(add16(pairs, and_(pairs, splat16(0x3f80))));
}

/// 2 s + 1 for bytes s below 16.
LLM_INLINE V odd_scales(V s) { return or_(shl16<1>(s), splat8(1)); }
/// The same for the 8 groups of 32 elements, whose s are words.
LLM_INLINE V odd_scales_of_words(V s) { return odd_scales(or_(s, shl16<8>(s))); }
/// The same for nibbles: 8 bytes per lane, one nibble for 16 elements.
LLM_INLINE V odd_scales_of_nibbles(V bytes) { return odd_scales(low8(low_nibbles(bytes), high_nibbles(bytes))); }
/// The scales of eight SignsAndScale.
LLM_INLINE V odd_scales_of_words(V low, V high) { return odd_scales_of_words(pack32(shr32<28>(low), shr32<28>(high))); }

/// Words of eight bytes of each lane.
template <int half>
LLM_INLINE V as_words(V bytes) {
  return half == 0 ? words_low(bytes) : words_high(bytes);
}

struct RowsIQ2_XXS : GridWeights {
  static constexpr int kBytes = sizeof(BlockIQ2_XXS), kSub = 32, kBias = 64, kMin = -43, kMax = 43;
  static constexpr int kQs = offsetof(BlockIQ2_XXS, qs);
  template <int half, class At>
  LLM_INLINE static V words(const At& at) {
    return odd32(bytes_at(at, kQs + 32 * half), bytes_at(at, kQs + 32 * half + 16));
  }
  template <class At>
  LLM_INLINE static auto numbers(const At& at) {
    if constexpr (kGathers) {
      const Lane words = bytes_16(0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10, -1, 11, -1);
      RowNumbers<32> number;
      for (int i = 0; i < 4; ++i) number.set(i, shuffle8(bytes_at(at, kQs + 16 * i), splat128(words)));
      return number;
    } else {
      return [&at](int b, int r) LLM_LAMBDA { return row_number(at(b).block + kQs + r / 4 * 8, r % 4); };
    }
  }
  template <class At, class Put>
  LLM_INLINE static void rows(const At& at, const Put& put) {
    const V signs[2] = {signs_of_words(words<0>(at)), signs_of_words(words<1>(at))};
    const auto number = numbers(at);
    repeat<16>([&](auto t) LLM_LAMBDA {
      put(t, piece_of_rows<t>(kGridIQ2_XXS.rows, number), spread_bytes<t % 8>(signs[t / 8]));
    });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    return odd_scales_of_words(words<0>(at), words<1>(at));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return mul(halves_at(at, 0), splat_f(0.125f));
  }
};

struct RowsIQ2_XS : GridWeights {
  static constexpr int kBytes = sizeof(BlockIQ2_XS), kSub = 16, kBias = 64, kMin = -43, kMax = 43;
  template <class At, class Put>
  LLM_INLINE static void rows(const At& at, const Put& put) {
    RowNumbers<32> number;
    V index[4];
    for (int i = 0; i < 4; ++i) {
      const V q = bytes_at(at, static_cast<int>(offsetof(BlockIQ2_XS, qs)) + 16 * i);
      number.set(i, and_(q, splat16(0x1ff)));
      index[i] = shr16<9>(q);
    }
    const V signs[2] = {seven_signs(pack16(index[0], index[1])), seven_signs(pack16(index[2], index[3]))};
    repeat<16>([&](auto t) LLM_LAMBDA {
      put(t, piece_of_rows<t>(kGridIQ2_XS.rows, number), spread_bytes<t % 8>(signs[t / 8]));
    });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    return odd_scales_of_nibbles(lanes8([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockIQ2_XS, scales); }));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return mul(halves_at(at, 0), splat_f(0.125f));
  }
};

struct RowsIQ2_S : GridWeights {
  static constexpr int kBytes = sizeof(BlockIQ2_S), kSub = 16, kBias = 64, kMin = -43, kMax = 43;
  template <class At, class Put>
  LLM_INLINE static void rows(const At& at, const Put& put) {
    RowNumbers<32> number;
    const V top = lanes8([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockIQ2_S, qh); });
    const V place = splat128(words_8(256, 64, 16, 4, 256, 64, 16, 4));  // to bits 8 and 9
    repeat<4>([&](auto i) LLM_LAMBDA {
      constexpr short kFirst = static_cast<short>(0x8000 | (2 * i)), kSecond = static_cast<short>(0x8000 | (2 * i + 1));
      const V two =
          shuffle8(top, splat128(words_8(kFirst, kFirst, kFirst, kFirst, kSecond, kSecond, kSecond, kSecond)));
      const V low = as_words<i % 2>(bytes_at(at, offsetof(BlockIQ2_S, qs) + i / 2 * 16));
      number.set(i, or_and(low, mul16(two, place), splat16(0x300)));
    });
    const V signs[2] = {bytes_at(at, offsetof(BlockIQ2_S, signs)), bytes_at(at, offsetof(BlockIQ2_S, signs) + 16)};
    repeat<16>([&](auto t) LLM_LAMBDA {
      put(t, piece_of_rows<t>(kGridIQ2_S.rows, number), spread_bytes<t % 8>(signs[t / 8]));
    });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    return odd_scales_of_nibbles(lanes8([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockIQ2_S, scales); }));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return mul(halves_at(at, 0), splat_f(0.125f));
  }
};

struct RowsIQ3_XXS : GridWeights {
  static constexpr int kBytes = sizeof(BlockIQ3_XXS), kSub = 32, kBias = 64, kMin = -62, kMax = 62;
  template <int half, class At>
  LLM_INLINE static V words(const At& at) {
    return bytes_at(at, offsetof(BlockIQ3_XXS, signs) + 16 * half);
  }
  template <class At>
  LLM_INLINE static auto numbers(const At& at) {
    constexpr int kQs = offsetof(BlockIQ3_XXS, qs);
    if constexpr (kGathers) {
      RowNumbers<64> number;
      repeat<8>([&](auto i) LLM_LAMBDA { number.set(i, as_words<i % 2>(bytes_at(at, kQs + i / 2 * 16))); });
      return number;
    } else {
      return [&at](int b, int r) LLM_LAMBDA { return row_number(at(b).block + kQs, r); };
    }
  }
  template <class At, class Put>
  LLM_INLINE static void rows(const At& at, const Put& put) {
    const V signs[2] = {signs_of_words(words<0>(at)), signs_of_words(words<1>(at))};
    const auto number = numbers(at);
    repeat<16>([&](auto t) LLM_LAMBDA {
      put(t, piece_of_rows<t>(kGridIQ3_XXS.rows, number), spread_bytes<t % 8>(signs[t / 8]));
    });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    return odd_scales_of_words(words<0>(at), words<1>(at));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return mul(halves_at(at, 0), splat_f(0.25f));
  }
};

struct RowsIQ3_S : GridWeights {
  static constexpr int kBytes = sizeof(BlockIQ3_S), kSub = 32, kBias = 16, kMin = -15, kMax = 15;
  template <class At, class Put>
  LLM_INLINE static void rows(const At& at, const Put& put) {
    RowNumbers<64> number;
    const V top = lanes8([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockIQ3_S, qh); });
    const V place = splat128(words_8(256, 128, 64, 32, 16, 8, 4, 2));  // to bit 8
    repeat<8>([&](auto i) LLM_LAMBDA {
      const V byte = shuffle8(top, splat128(words_8(0x8000 | i.value)));
      const V low = as_words<i % 2>(bytes_at(at, offsetof(BlockIQ3_S, qs) + i / 2 * 16));
      number.set(i, or_and(low, mul16(byte, place), splat16(0x100)));
    });
    const V signs[2] = {bytes_at(at, offsetof(BlockIQ3_S, signs)), bytes_at(at, offsetof(BlockIQ3_S, signs) + 16)};
    repeat<16>([&](auto t) LLM_LAMBDA {
      put(t, piece_of_rows<t>(kGridIQ3_S.rows, number), spread_bytes<t % 8>(signs[t / 8]));
    });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    const V bytes = lanes4([&](int b) LLM_LAMBDA { return at(b).block + offsetof(BlockIQ3_S, scales); });
    const V nibbles = low8(low_nibbles(bytes), high_nibbles(bytes));
    return odd_scales(low8(nibbles, nibbles));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return halves_at(at, 0);
  }
};

/// 8 * row + delta, where delta is -1 for rows whose byte of `negative` has its top bit, else 1.
template <int bias, int t>
LLM_INLINE V ternary_piece(V rows, const V* negative) {
  const V delta = spread_bytes<t % 8>(sub8(splat8(bias + 1), and_(shr16<6>(negative[t / 8]), splat8(2))));
  return add8(and_(shl16<3>(rows), splat8(-8)), delta);
}

struct UnpackIQ1_S : GridWeights {
  static constexpr int kBytes = sizeof(BlockIQ1_S), kSub = 32, kBias = 16, kMin = -9, kMax = 9;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    RowNumbers<32> number;
    const V top = bytes_at(at, offsetof(BlockIQ1_S, qh));
    const V place = splat128(words_8(256, 32, 4, 0, 256, 32, 4, 0));  // bits 0, 3, 6 to bit 8; the last: 9
    const V last = splat128(words_8(0, 0, 0, 0x700, 0, 0, 0, 0x700));
    repeat<4>([&](auto i) LLM_LAMBDA {
      constexpr short kFirst = static_cast<short>((4 * i + 1) << 8 | (4 * i)),
                      kSecond = static_cast<short>((4 * i + 3) << 8 | (4 * i + 2));
      const V two =
          shuffle8(top, splat128(words_8(kFirst, kFirst, kFirst, kFirst, kSecond, kSecond, kSecond, kSecond)));
      const V high = or_and(and_(mul16(two, place), splat16(0x700)), shr16<1>(two), last);
      number.set(i, or_(as_words<i % 2>(bytes_at(at, offsetof(BlockIQ1_S, qs) + i / 2 * 16)), high));
    });
    const V negative[2] = {
        shuffle8(top, splat128(bytes_16(1, 1, 1, 1, 3, 3, 3, 3, 5, 5, 5, 5, 7, 7, 7, 7))),
        shuffle8(top, splat128(bytes_16(9, 9, 9, 9, 11, 11, 11, 11, 13, 13, 13, 13, 15, 15, 15, 15)))};
    constexpr int kAdded = with_bias ? kBias : 0;
    repeat<16>([&](auto t)
                   LLM_LAMBDA { put(t, ternary_piece<kAdded, t>(piece_of_rows<t>(kGridIQ1.rows, number), negative)); });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    return odd_scales_of_words(and_(shr16<12>(bytes_at(at, offsetof(BlockIQ1_S, qh))), splat16(7)));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    return mul(halves_at(at, 0), splat_f(0.125f));
  }
};

struct UnpackIQ1_M : GridWeights {
  static constexpr int kBytes = sizeof(BlockIQ1_M), kSub = 16, kBias = 16, kMin = -9, kMax = 9;
  template <bool with_bias, class At, class Put>
  LLM_INLINE static void pieces(const At& at, const Put& put) {
    RowNumbers<32> number;
    const V top = bytes_at(at, offsetof(BlockIQ1_M, qh));
    const V nibbles[2] = {low8(top, shr16<4>(top)), high8(top, shr16<4>(top))};  // and what the masks drop
    repeat<4>([&](auto i) LLM_LAMBDA {
      const V high = and_(shl16<8>(as_words<i % 2>(nibbles[i / 2])), splat16(0x700));
      number.set(i, or_(as_words<i % 2>(bytes_at(at, offsetof(BlockIQ1_M, qs) + i / 2 * 16)), high));
    });
    const V negative[2] = {shl16<4>(nibbles[0]), shl16<4>(nibbles[1])};
    constexpr int kAdded = with_bias ? kBias : 0;
    repeat<16>([&](auto t)
                   LLM_LAMBDA { put(t, ternary_piece<kAdded, t>(piece_of_rows<t>(kGridIQ1.rows, number), negative)); });
  }
  template <class At>
  LLM_INLINE static V scales(const At& at) {
    const V packed = bytes_at(at, offsetof(BlockIQ1_M, scales) - 8);  // its last 8 bytes
    const V shift = splat128(words_8(1 << 13, 1 << 10, 1 << 7, 1 << 4, 1 << 13, 1 << 10, 1 << 7, 1 << 4));
    const auto eight = [&](V words) LLM_LAMBDA { return shr16<13>(mul16(shuffle8(packed, words), shift)); };
    const V low = eight(splat128(words_8(0x0908, 0x0908, 0x0908, 0x0908, 0x0b0a, 0x0b0a, 0x0b0a, 0x0b0a)));
    const V high = eight(splat128(words_8(0x0d0c, 0x0d0c, 0x0d0c, 0x0d0c, 0x0f0e, 0x0f0e, 0x0f0e, 0x0f0e)));
    return odd_scales(pack16(low, high));
  }
  template <class At>
  LLM_INLINE static F factors(const At& at) {
    Half d[kWidth];
    for (int i = 0; i < kWidth; ++i) d[i] = iq1_m_d(*reinterpret_cast<const BlockIQ1_M*>(at(i).block));
    return mul(halves([&](int i) LLM_LAMBDA { return reinterpret_cast<const u8*>(d + i); }), splat_f(0.125f));
  }
};

using WeightsIQ2_XXS = OutOfLine<SignedRows<RowsIQ2_XXS>>;
using WeightsIQ2_XS = OutOfLine<SignedRows<RowsIQ2_XS>>;
using WeightsIQ2_S = OutOfLine<SignedRows<RowsIQ2_S>>;
using WeightsIQ3_XXS = OutOfLine<SignedRows<RowsIQ3_XXS>>;
using WeightsIQ3_S = OutOfLine<SignedRows<RowsIQ3_S>>;
using WeightsIQ1_S = OutOfLine<UnpackIQ1_S>;
using WeightsIQ1_M = OutOfLine<UnpackIQ1_M>;

}  // namespace llm::cpu::LLM_ISA::quant

#endif
