// Products with few columns: weights are read once, at strictly ascending addresses, as a hardware prefetcher wants
// them. A step takes kWidth consecutive blocks whatever row they belong to and stores one term y per block and column
// (quant_linear.h); after kWidth rows the terms are read back with rows as the elements of registers, and added up in
// the order of k.
//
// Steps do not care for the ends of rows, so the activations of a step start anywhere in k. They are laid out
// beforehand for groups of kLanes blocks: window i has blocks kLanes i, kLanes i + 1, ... of the endless repetition of
// the column.
#pragma once

#include "backend/cpu/kernels/quant_columns.h"
#include "backend/cpu/kernels/quant_stream.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

/// How far ahead of the sums weights are fetched, in bytes.
inline constexpr i64 kFetchAhead = 14 << 10;

LLM_INLINE i64 greatest_divisor(i64 a, i64 b) {
  while (b != 0) {
    const i64 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// Places in the scratch of one column, and behind the last one of a copy of the last, incomplete step.
template <class T>
struct StreamLayout {
  explicit StreamLayout(i64 k)
      : blocks(k / T::kBlock),
        windows(blocks / greatest_divisor(blocks, kLanes)),
        repeated(up((windows + 3) * kWindowBytes)),
        terms(repeated + up((blocks + kWidth) * 4)),
        column_bytes(terms + up((blocks + 1) * kWidth * 4) + 64) {}
  i64 bytes(int nc) const { return column_bytes * nc + up(kStepBytes); }

  static constexpr i64 kWindowBytes = T::kActs * kVectorBytes;
  static constexpr i64 kStepBytes = kWidth * T::kBytes / T::kParts;
  static constexpr i64 up(i64 n) { return (n + 63) / 64 * 64; }

  i64 blocks;    ///< of a row
  i64 windows;   ///< until they repeat
  i64 repeated;  ///< [blocks + kWidth] int32 or f32 per block
  i64 terms;     ///< [kWidth rows][blocks] f32
  i64 column_bytes;
};

/// Lays out the activations of one column. Reads up to a register beyond the last sum: rows of sums are padded.
template <class T>
LLM_INLINE void prepare_stream(const Column& col, const StreamLayout<T>& layout, std::byte* memory) {
  constexpr int kPieces = T::kBlock / 16;
  i64 next = 0;
  for (i64 i = 0; i < layout.windows + 3; ++i) {
    std::byte* out = memory + i * StreamLayout<T>::kWindowBytes;
    i64 block[kLanes];
    for (i64& b : block) {
      b = next;
      next = next + 1 == layout.blocks ? 0 : next + 1;
    }
    for (int t = 0; t < kPieces; ++t)
      store(out + t * kVectorBytes, lanes([&](int b) LLM_LAMBDA { return col.q + block[b] * T::kBlock + 16 * t; }));
    const auto sums = [&](int half) LLM_LAMBDA {
      return lanes([&](int b) LLM_LAMBDA { return col.sums + 16 * block[b] + 8 * half; });
    };
    if constexpr (T::kSums == StreamSums::Per32) {  // pairs are neighbours: their sums as int32, then as int16
      store(out + kPieces * kVectorBytes, pack32(madd16(sums(0), splat16(1)), madd16(sums(1), splat16(1))));
    } else if constexpr (T::kSums == StreamSums::Per16) {
      store(out + kPieces * kVectorBytes, sums(0));
      store(out + (kPieces + 1) * kVectorBytes, sums(1));
    }
  }
  if constexpr (T::kSums == StreamSums::Bias || T::kSums == StreamSums::Float) {
    constexpr int kFactor = T::kSums == StreamSums::Bias ? -T::kBias : 1;
    std::int32_t* repeated = reinterpret_cast<std::int32_t*>(memory + layout.repeated);
    for (i64 i = 0; i < layout.blocks; i += kWidth) {
      const V sum = T::kBlock == 16 ? mul32(widen16(col.sums + i), splat32(kFactor))
                                    : madd16(load(col.sums + 2 * i), splat16(kFactor));
      store(repeated + i, T::kSums == StreamSums::Bias ? sum : bits(to_f(sum)));
    }
    for (int i = 0; i < kWidth; ++i) repeated[layout.blocks + i] = repeated[i];
  }
}

/// Where a step is in the repetition of its columns.
struct StreamPlace {
  i64 window = 0;
  i64 block = 0;
};

/// Fetches a cache line after x is computed. A core has few slots for lines on their way: in bursts, as compilers like
/// to arrange them, a third of the bandwidth was lost, so the place in the code is fixed by a dependence on a sum.
LLM_INLINE void fetch(const u8* p, V& x) {
#if defined(LLM_ISA_avx512)
  __asm__ volatile("prefetcht0 %1" : "+v"(x) : "m"(*p));
#else
  __asm__ volatile("prefetcht0 %1" : "+x"(x) : "m"(*p));
#endif
}

/// Types whose groups take so many instructions that four of them in a row would only fill the cache.
template <class T>
inline constexpr bool kGroupsInLoop = requires {
  typename T::GroupsInLoop;
};

/// The terms of the kWidth blocks at w: nc columns whose memory starts at `columns`, stored from term `at` on.
template <class T, int nc>
LLM_INLINE void stream_step(const u8* w, const StreamLayout<T>& layout, std::byte* columns, i64 at,
                            StreamPlace& place) {
  constexpr i64 kWindowBytes = StreamLayout<T>::kWindowBytes;
  const std::byte* windows = columns + place.window * kWindowBytes;
  V isum[4][nc], msum[4][nc], heads[4];
  const auto act_of = [&](int j) LLM_LAMBDA {
    return [&, j](int c, int t)
               LLM_LAMBDA { return load(windows + j * kWindowBytes + c * layout.column_bytes + t * kVectorBytes); };
  };
  if constexpr (kGroupsInLoop<T>) {
    for (int j = 0; j < 4; ++j) {
      constexpr i64 kGroupBytes = StreamLayout<T>::kStepBytes / 4;
      const u8* next = w + j * kGroupBytes + kFetchAhead;
      const auto ahead = [&](auto i, auto n, V& x) LLM_LAMBDA {
        constexpr int kLines = (kGroupBytes + 63) / 64, kFirst = i.value * kLines / n.value;
        repeat<(i.value + 1) * kLines / n.value - kFirst>(
            [&](auto line) LLM_LAMBDA { fetch(next + (kFirst + line.value) * 64, x); });
      };
      T::template group<nc>(w + j * kGroupBytes, act_of(j), ahead, isum[j], msum[j], heads[j]);
    }
  } else {
    repeat<4>([&](auto j) LLM_LAMBDA {
      constexpr int kFirst = j.value * kLanes;  // block of the step
      const u8* from = w + kFirst / T::kParts * T::kBytes;
      const auto ahead = [&](auto i, auto n, V& x) LLM_LAMBDA {
        constexpr int kLines = (StreamLayout<T>::kStepBytes + 63) / 64, kPoints = 4 * n.value,
                      kPoint = j.value * n.value + i.value;
        repeat<(kPoint + 1) * kLines / kPoints - kPoint * kLines / kPoints>(
            [&](auto line) LLM_LAMBDA { fetch(w + kFetchAhead + (kPoint * kLines / kPoints + line.value) * 64, x); });
      };
      if constexpr (T::kParts == 1)
        T::template group<nc>(from, act_of(j), ahead, isum[j], msum[j], heads[j]);
      else
        T::template group<nc, kFirst % T::kParts>(from, act_of(j), ahead, isum[j], msum[j], heads[j]);
    });
  }
  F d, m;
  T::factors(w, heads, d, m);
  repeat<nc>([&](auto c) LLM_LAMBDA {
    std::byte* column = columns + c * layout.column_bytes;
    float* terms = reinterpret_cast<float*>(column + layout.terms) + at;
    V sum = sum4(isum[0][c], isum[1][c], isum[2][c], isum[3][c]);
    if constexpr (T::kBlock == 256) {
      F y = mul(d, to_f(sum));
      if constexpr (T::kHasMins) y = fma(m, to_f(sum4(msum[0][c], msum[1][c], msum[2][c], msum[3][c])), y);
      store_f(terms, natural_order(y));
    } else {
      const std::byte* repeated = column + layout.repeated + 4 * place.block;
      sum = natural_order(sum);
      if constexpr (T::kSums == StreamSums::Bias) sum = add32(sum, load(repeated));
      F y = mul(d, to_f(sum));
      if constexpr (T::kSums == StreamSums::Float) y = fma(m, load_f(reinterpret_cast<const float*>(repeated)), y);
      store_f(terms, y);
    }
  });
  place.block += kWidth;
  while (place.block >= layout.blocks) place.block -= layout.blocks;
  place.window += 4;
  while (place.window >= layout.windows) place.window -= layout.windows;
}

/// Adds up the terms of kWidth rows in the order of k; `share` neighbouring blocks have one scale.
template <int share>
LLM_INLINE F add_terms(const float* terms, const float* d_act, i64 blocks) {
  F acc = zero_f();
  for (i64 j = 0; j < blocks; j += 4) {
    const Four x = load_rows([&](int row) LLM_LAMBDA { return terms + row * blocks + j; });
    acc = fma(splat_f(d_act[j / share]), as_f(x.v[0]), acc);
    if (j + 1 < blocks) acc = fma(splat_f(d_act[(j + 1) / share]), as_f(x.v[1]), acc);
    if (j + 2 < blocks) acc = fma(splat_f(d_act[(j + 2) / share]), as_f(x.v[2]), acc);
    if (j + 3 < blocks) acc = fma(splat_f(d_act[(j + 3) / share]), as_f(x.v[3]), acc);
  }
  return acc;
}

/// Columns [c0, c0 + nc) over all rows of the range.
template <class T, int nc>
[[gnu::noinline]] void stream_columns(const LinearArgs& args, i64 c0, i64 row_begin, i64 row_end, std::byte* scratch) {
  const StreamLayout<T> layout(args.k);
  const float* d_act[nc];
  for (int c = 0; c < nc; ++c) {
    const Column col = column(args, c0 + c);
    prepare_stream<T>(col, layout, scratch + c * layout.column_bytes);
    d_act[c] = col.scales;
  }
  for (i64 row = row_begin; row < row_end; row += kWidth) {
    const i64 n_rows = row_end - row < kWidth ? row_end - row : kWidth, n_terms = n_rows * layout.blocks;
    const u8* w = weight_row(args, row);
    StreamPlace place;
    i64 at = 0;
    for (; at < n_terms; at += kWidth, w += StreamLayout<T>::kStepBytes) {
      if (at + kWidth > n_terms) {  // fewer blocks than a step takes: from a copy, so that nothing behind them is read
        u8* copy = reinterpret_cast<u8*>(scratch + layout.column_bytes * nc);
        __builtin_memset(copy, 0, StreamLayout<T>::kStepBytes);
        __builtin_memcpy(copy, w, static_cast<std::size_t>((n_terms - at) * T::kBytes / T::kParts));
        w = copy;
      }
      stream_step<T, nc>(w, layout, scratch, at, place);
    }
    for (int c = 0; c < nc; ++c) {
      const std::byte* column = scratch + c * layout.column_bytes;
      constexpr int kShare = T::kBlock == 16 ? 2 : 1;
      const F acc = add_terms<kShare>(reinterpret_cast<const float*>(column + layout.terms), d_act[c], layout.blocks);
      float* y = output(args, c0 + c) + row;
      if (n_rows == kWidth) {
        store_f(y, acc);
      } else {
        float all[kWidth];
        store_f(all, acc);
        __builtin_memcpy(y, all, static_cast<std::size_t>(n_rows) * sizeof(float));
      }
    }
  }
}

/// Whether the range can be streamed: rows without gaps and short enough for the scratch.
template <class T>
LLM_INLINE bool can_stream(const LinearArgs& args, int nc) {
  const StreamLayout<T> layout(args.k);
  return layout.blocks / T::kParts * T::kBytes == static_cast<i64>(args.w_row_bytes) &&
         layout.bytes(nc) <= static_cast<i64>(kScratchBytes);
}

}  // namespace llm::cpu::LLM_ISA::quant

#endif
