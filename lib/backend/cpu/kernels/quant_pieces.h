// The types that are unpacked in one way for few columns and for many: kLanes blocks at a time, in registers of 16
// elements ("pieces") of each, one block per 128-bit lane. StreamOf multiplies the pieces as they come, PanelOf puts
// them into a panel. One struct per storage type (quant_pieces_codes.h, quant_pieces_grid.h):
//
//   kBlock         elements under one factor and one activation scale: 256 or 32
//   kParts, kBytes such blocks in a block of the file, and its bytes
//   kSub           elements under one integer scale: 16 or 32; kBlock if there is none
//   kBias, kMin, kMax   of the values: value + kBias is not negative
//   pieces<with_bias>(at, put)   put(Constant<t>, V) for pieces t = 0, 1, ... of the blocks at(lane): the values, or
//                  unsigned with the bias
//   rows(at, put)  where values are magnitudes and signs (kHasRows): put(Constant<t>, magnitudes, bits), as
//                  with_signs() takes them
//   scales(at)     where kSub < kBlock: per lane 16 int8, one per piece
//   factors(at)    f32 factors of the blocks at(0) ... at(kWidth - 1)
//   stream_factors(w)   optional: the same for kWidth neighbouring blocks at w
//   Form           InLoop or Inline: of a group's code in StreamOf
#pragma once

#include "backend/cpu/kernels/quant_panel.h"
#include "backend/cpu/kernels/quant_stream.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

struct InLoop {
  using GroupsInLoop = void;
};
struct Inline {};

/// A block of a product: which part of a block of the file.
struct Place {
  const u8* block;
  int part;
};

/// 16 bytes of the block of each lane, `offset` bytes into it.
template <class At>
LLM_INLINE V bytes_at(const At& at, int offset) {
  return lanes([&](int b) LLM_LAMBDA { return at(b).block + offset; });
}

/// The f16 of kWidth blocks, `offset` bytes into them.
template <class At>
LLM_INLINE F halves_at(const At& at, int offset) {
  return halves([&](int i) LLM_LAMBDA { return at(i).block + offset; });
}

/// Byte `byte` of each lane, sign-extended to its int32 elements.
template <int byte>
LLM_INLINE V splat_scale(V scales) {
  return sar32<24>(shuffle8(scales, splat128(ints_4(static_cast<int>(byte << 24 | 0x00808080)))));
}

/// Each element with a sign of its own: negated if bit i % 8 of byte i of `bits` is set.
LLM_INLINE V with_signs(V a, V bits) { return negate_where(a, bits, splat128(longs_2(0x8040201008040201))); }

/// Whether a stream multiplies magnitudes: what rows() has is not put together, signs go to the activations.
template <class W>
inline constexpr bool kSignsApart = requires {
  W::kHasRows;
};

/// Whether a stream multiplies other weights with their bias. A product of unsigned and signed bytes takes three
/// instructions less than one of signed bytes, so AVX2 does so too where int16 sums of products leave room for it.
template <class W>
inline constexpr bool kStreamsBias = !kSignsApart<W> && (kKeepsBias || (!kSums32 && W::kMax + W::kBias <= 32));

/// Adds up a block's pieces as they come; `W` as above.
template <class W, int nc, class Act, class Fetch>
class PieceSums {
 public:
  LLM_INLINE PieceSums(V scales, const Act& act, const Fetch& fetch, V* isum)
      : act_(act), fetch_(fetch), isum_(isum), scales_(scales) {
    if constexpr (kScaled) {
      words_[0] = signed_words_low(scales);
      words_[1] = signed_words_high(scales);
    }
    repeat<nc>([&](auto c) LLM_LAMBDA { isum_[c] = kUnbias ? unbias(act(c, kPieces), act(c, kPieces + 1)) : zero(); });
  }

  /// `w`: a piece, or its magnitudes and signs as rows() has them.
  template <int t, class... Weights>
  LLM_INLINE void add(Constant<t>, const Weights&... w) {
    constexpr bool kFirst = t % kRun == 0, kLast = t % kRun == kRun - 1;
    repeat<nc>([&](auto c) LLM_LAMBDA {
      const Operands x = operands(act_(c, t), w...);
      run_[c] = kFirst ? dot(x.weights, x.activations) : dot(run_[c], x.weights, x.activations);
    });
    if constexpr (kLast) end_run<t>();
    if constexpr (t % 2 == 1) fetch_(Constant<t / 2>{}, Constant<kPieces / 2>{}, isum_[0]);
  }

 private:
  static constexpr int kPieces = W::kBlock / 16;
  static constexpr bool kScaled = W::kSub != W::kBlock;
  static constexpr bool kUnbias = kStreamsBias<W> && W::kBlock == 256;
  static constexpr int kTop = kStreamsBias<W> ? W::kMax + W::kBias : (W::kMax > -W::kMin ? W::kMax : -W::kMin);
  /// Pieces that are added up before they are scaled. Without kSums32 the sums are of int16: two products per piece.
  static constexpr int kMost = kSums32 ? kPieces : 32767 / (2 * 127 * kTop);
  static constexpr int kRun = kMost < W::kSub / 16 ? (kMost < 1 ? 1 : kMost) : W::kSub / 16;
  /// Whether the int32 sums of a run fit into int16: then two runs are scaled at once, where that is cheaper.
  static constexpr bool kPaired = kKeepsBias && kScaled && 4 * kRun * kTop * 127 <= 32767;

  struct Operands {
    V weights, activations;
  };
  LLM_INLINE static Operands operands(V a, V w) {
#if defined(LLM_ISA_avx2)
    if constexpr (!kStreamsBias<W>) return {abs8(w), sign8(a, w)};
#endif
    return {w, a};
  }
  LLM_INLINE static Operands operands(V a, V magnitudes, V bits) { return {magnitudes, with_signs(a, bits)}; }

  /// - kBias * sum over pieces of scale * sum of activations
  LLM_INLINE V unbias(V sums_low, V sums_high) const {
    const V factor = splat16(-W::kBias);
    if constexpr (kScaled)
      return madd16(madd16(mul16(words_[0], factor), sums_low), mul16(words_[1], factor), sums_high);
    else
      return madd16(madd16(factor, sums_low), factor, sums_high);
  }

  template <int t>
  LLM_INLINE void end_run() {
    repeat<nc>([&](auto c) LLM_LAMBDA {
      if constexpr (!kScaled) {
        isum_[c] = add32(isum_[c], widen(run_[c]));
      } else if constexpr (kPaired) {
        if constexpr (t / kRun % 2 == 0)
          before_[c] = run_[c];
        else
          isum_[c] = madd16(isum_[c], pack32(before_[c], run_[c]), pick_words(words_[t / 8], (t - kRun) % 8, t % 8));
      } else if constexpr (kSums32) {
        isum_[c] = add32(isum_[c], mul32(run_[c], splat_scale<t>(scales_)));
      } else {
        constexpr int kScale = t / (W::kSub / 16) * (W::kSub / 16);  // the first of those that are equal
        isum_[c] = madd16(isum_[c], run_[c], pick_words(words_[kScale / 8], kScale % 8, kScale % 8));
      }
    });
  }

  const Act& act_;
  const Fetch& fetch_;
  V* isum_;
  V scales_, words_[2], run_[nc], before_[nc];
};

template <class W>
struct StreamOf : W::Form {
  static constexpr int kBlock = W::kBlock, kBytes = W::kBytes, kParts = W::kParts, kBias = W::kBias;
  static constexpr StreamSums kSums = !kStreamsBias<W> ? StreamSums::None
                                      : kBlock == 256  ? StreamSums::Per16
                                                       : StreamSums::Bias;
  static constexpr int kActs = kBlock / 16 + (kSums == StreamSums::Per16 ? 2 : 0);
  static constexpr bool kHasMins = false;

  /// The place of block i behind part `first` of the file's block at w.
  LLM_INLINE static Place place(const u8* w, int first, int i) {
    return {w + (first + i) / kParts * kBytes, (first + i) % kParts};
  }

  template <int nc, class Act, class Fetch>
  LLM_INLINE static void group(const u8* w, int part, const Act& act, const Fetch& fetch, V* isum, V*, V&) {
    const auto at = [&](int b) LLM_LAMBDA { return place(w, part, b); };
    V scales = zero();
    if constexpr (W::kSub != W::kBlock) scales = W::scales(at);
    PieceSums<W, nc, Act, Fetch> sums(scales, act, fetch, isum);
    if constexpr (kSignsApart<W>)
      W::rows(at, [&](auto t, V magnitudes, V bits) LLM_LAMBDA { sums.add(t, magnitudes, bits); });
    else
      W::template pieces<kStreamsBias<W>>(at, [&](auto t, V piece) LLM_LAMBDA { sums.add(t, piece); });
  }

  LLM_INLINE static void factors(const u8* w, const V*, F& d, F&) {
    if constexpr (requires { W::stream_factors(w); })
      d = W::stream_factors(w);
    else
      d = W::factors([&](int e) LLM_LAMBDA { return place(w, 0, kBlock == 256 ? kLanes * (e % 4) + e / 4 : e); });
  }
};

template <class W>
struct PanelOf {
  static constexpr int kBytes = W::kBytes, kParts = W::kParts;
  /// The range is rounded up to the next that changes a tile: types share the code of their tiles.
  static constexpr int kRange = W::kMax > -W::kMin ? W::kMax : -W::kMin;
  static constexpr int kRounded = kRange <= 4 ? 4 : kRange <= 16 ? 16 : kRange <= 32 ? 32 : kRange <= 64 ? 64 : 128;
  static constexpr PanelTraits traits = biased_traits(W::kBlock, W::kSub, W::kBias, kRounded);

  template <class At>
  LLM_INLINE static void unpack(const At& block, int part, const PanelBlock& out) {
    const auto at = [&](int r) LLM_LAMBDA { return Place{block(r), part}; };
    constexpr int kPieces = W::kBlock / 16;
    V pieces[4][kPieces], scales[4];
    const auto unpack_rows = [&](int j) LLM_LAMBDA {  // as load_rows() takes them
      const auto rows = [&](int b) LLM_LAMBDA { return at(4 * b + j); };
      W::template pieces<traits.bias != 0>(rows, [&](auto t, V piece) LLM_LAMBDA { pieces[j][t] = piece; });
      if constexpr (W::kSub != W::kBlock) scales[j] = W::scales(rows);
    };
    if constexpr (kPieces <= 2) {  // they stay in registers
      repeat<4>(unpack_rows);
    } else {
#pragma GCC unroll 1
      for (int j = 0; j < 4; ++j) unpack_rows(j);
    }
    for (int t = 0; t < kPieces; ++t) {
      const Four x = transpose4(pieces[0][t], pieces[1][t], pieces[2][t], pieces[3][t]);
      for (int i = 0; i < 4; ++i) put(out, 16 * t + 4 * i, x.v[i]);
    }
    if constexpr (W::kSub != W::kBlock) {
      const Four x = transpose4(scales[0], scales[1], scales[2], scales[3]);
      repeat<W::kBlock / W::kSub>([&](auto sub) LLM_LAMBDA {
        constexpr int kPiece = sub * (W::kSub / 16);
        put_scale(out, sub, sar32<24>(shl32<24 - 8 * (kPiece % 4)>(x.v[kPiece / 4])));
      });
    }
    store_f(out.d, W::factors(at));
  }
};

}  // namespace llm::cpu::LLM_ISA::quant

#endif
