// Products with few columns: weights are read once, at strictly ascending addresses, as a hardware prefetcher wants
// them, in one stream or in two of half the rows each. A step takes kWidth consecutive blocks whatever row they belong
// to and stores one term y per block and column (quant_linear.h); after kWidth rows the terms are read back with rows
// as the elements of registers, and added up in the order of k.
//
// Steps do not care for the ends of rows, so the activations of a step start anywhere in k. They are laid out
// beforehand for groups of kLanes blocks: window i has blocks kLanes i, kLanes i + 1, ... of the endless repetition of
// the column.
#pragma once

#include "backend/cpu/kernels/quant_columns.h"
#include "backend/cpu/kernels/quant_stream.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

/// How far ahead of the sums weights are fetched, in bytes, and into which cache.
struct Fetching {
  i64 distance;
  bool second_cache;
};
/// From two streams out of the pages that they are in.
LLM_INLINE Fetching fetching(Streams streams) {
  if (streams == Streams::TwoAhead) return {4 << 10, true};
  return {streams == Streams::Two ? 2 << 10 : 14 << 10, false};
}
inline constexpr int kMostStreams = 2;

LLM_INLINE i64 greatest_divisor(i64 a, i64 b) {
  while (b != 0) {
    const i64 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// Types whose groups take so many instructions that four of them in a row would only fill the cache.
template <class T>
inline constexpr bool kGroupsInLoop = requires {
  typename T::GroupsInLoop;
};

/// Types whose blocks have a factor for each half.
template <class T>
inline constexpr bool kTwoFactors = requires {
  &T::terms;
};

/// Places in the scratch: the windows of nc columns, [window][register][column]; then per column what it has beside
/// them; then a copy of the last, incomplete step.
template <class T, int nc>
struct StreamLayout {
  explicit StreamLayout(i64 k)
      : blocks(k / T::kBlock),
        windows(blocks / greatest_divisor(blocks, kLanes)),
        columns((windows + kRepeated) * kWindowBytes),
        terms(up((blocks + kWidth) * 4)),
        terms_bytes(up((blocks + 1) * kWidth * 4) + 64),
        column_bytes(terms + kMostStreams * terms_bytes),
        copy(columns + column_bytes * nc),
        bytes(copy + up(kStepBytes)) {}

  /// The four groups of a step are a loop. With several columns and blocks of 256 this is faster as well: decoded
  /// instructions of four groups would not fit into their cache.
  static constexpr bool kLoop = kGroupsInLoop<T> || (nc > 1 && T::kBlock == 256);
  static constexpr i64 kRepeated = kLoop ? 0 : 3;  ///< windows that are stored twice, so that a step has four in a row
  static constexpr i64 kWindowBytes = T::kActs * nc * kVectorBytes;
  static constexpr i64 kStepBytes = kWidth * T::kBytes / T::kParts;
  static constexpr i64 up(i64 n) { return (n + 63) / 64 * 64; }

  i64 blocks;   ///< of a row
  i64 windows;  ///< until they repeat
  i64 columns;  ///< first of a column: [blocks + kWidth] int32 or f32 per block, repeated
  i64 terms;    ///< in a column: of each stream [kWidth rows][blocks] f32
  i64 terms_bytes;
  i64 column_bytes;
  i64 copy;
  i64 bytes;
};

/// Lays out the activations of column c. Reads up to a register beyond the last sum: rows of sums are padded.
template <class T, int nc>
LLM_INLINE void prepare_stream(const Column& col, const StreamLayout<T, nc>& layout, int c, std::byte* scratch) {
  constexpr int kPieces = T::kBlock / 16;
  i64 next = 0;
  for (i64 i = 0; i < layout.windows + layout.kRepeated; ++i) {
    std::byte* out = scratch + i * layout.kWindowBytes + c * kVectorBytes;
    const auto put = [&](int t, V x) LLM_LAMBDA { store(out + t * nc * kVectorBytes, x); };
    i64 block[kLanes];
    for (i64& b : block) {
      b = next;
      next = next + 1 == layout.blocks ? 0 : next + 1;
    }
    for (int t = 0; t < kPieces; ++t) {
      put(t, join([&](int b) LLM_LAMBDA {
            const std::int8_t* q = col.q + block[b] * T::kBlock;
            if constexpr (requires { T::activations(q, t); })
              return T::activations(q, t);
            else
              return load16(q + 16 * t);
          }));
    }
    const auto sums = [&](int half) LLM_LAMBDA {
      return lanes([&](int b) LLM_LAMBDA { return col.sums + 16 * block[b] + 8 * half; });
    };
    if constexpr (T::kSums == StreamSums::Per32) {  // pairs are neighbours: their sums as int32, then as int16
      put(kPieces, pack32(madd16(sums(0), splat16(1)), madd16(sums(1), splat16(1))));
    } else if constexpr (T::kSums == StreamSums::Per16) {
      put(kPieces, sums(0));
      put(kPieces + 1, sums(1));
    } else if constexpr (T::kSums == StreamSums::BiasOf16) {
      const V both = lanes4([&](int b) LLM_LAMBDA { return col.sums + 2 * block[b]; });
      const V apart = shuffle8(both, splat128(bytes_16(0, 1, -1, -1, -1, -1, -1, -1, 2, 3, -1, -1, -1, -1, -1, -1)));
      put(kPieces, madd16(apart, splat16(-T::kBias * T::kTimes)));
    }
  }
  if constexpr (T::kSums == StreamSums::Bias || T::kSums == StreamSums::Float) {
    constexpr int kFactor = T::kSums == StreamSums::Bias ? -T::kBias : 1;
    auto* repeated = reinterpret_cast<std::int32_t*>(scratch + layout.columns + c * layout.column_bytes);
    for (i64 i = 0; i < layout.blocks; i += kWidth) {
      const V sum = madd16(load(col.sums + 2 * i), splat16(kFactor));
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
LLM_INLINE void fetch(const u8* p, bool second_cache, V& x) {
  if (second_cache) {
    fetch_far_after(x, p);
  } else {
    fetch_after(x, p);
  }
}

/// The terms of the kWidth blocks at w, stored `terms_at` bytes from where each column begins; meanwhile others are
/// asked for.
template <class T, int nc>
LLM_INLINE void stream_step(const u8* w, const Fetching& fetching, const StreamLayout<T, nc>& layout,
                            std::byte* scratch, i64 terms_at, StreamPlace& place) {
  using Layout = StreamLayout<T, nc>;
  V isum[4][nc], msum[4][nc], heads[4];
  const auto act_of = [&](const std::byte* window) LLM_LAMBDA {
    return [window](int c, int t) LLM_LAMBDA { return load(window + (t * nc + c) * kVectorBytes); };
  };
  if constexpr (Layout::kLoop) {
#pragma GCC unroll 1
    for (int j = 0; j < 4; ++j) {
      const int first = j * kLanes;  // block of the step
      const u8* next = w + j * (Layout::kStepBytes / 4) + fetching.distance;
      const auto ahead = [&](auto i, auto n, V& x) LLM_LAMBDA {
        constexpr int kLines = (Layout::kStepBytes / 4 + 63) / 64, kFirst = i.value * kLines / n.value;
        repeat<(i.value + 1) * kLines / n.value - kFirst>(
            [&](auto line) LLM_LAMBDA { fetch(next + (kFirst + line.value) * 64, fetching.second_cache, x); });
      };
      T::template group<nc>(w + first / T::kParts * T::kBytes, first % T::kParts,
                            act_of(scratch + place.window * Layout::kWindowBytes), ahead, isum[j], msum[j], heads[j]);
      place.window = place.window + 1 == layout.windows ? 0 : place.window + 1;
    }
  } else {
    repeat<4>([&](auto j) LLM_LAMBDA {
      constexpr int kFirst = j.value * kLanes;
      const auto ahead = [&](auto i, auto n, V& x) LLM_LAMBDA {
        constexpr int kLines = (Layout::kStepBytes + 63) / 64, kPoints = 4 * n.value,
                      kPoint = j.value * n.value + i.value;
        repeat<(kPoint + 1) * kLines / kPoints - kPoint * kLines / kPoints>([&](auto line) LLM_LAMBDA {
          fetch(w + fetching.distance + (kPoint * kLines / kPoints + line.value) * 64, fetching.second_cache, x);
        });
      };
      T::template group<nc>(w + kFirst / T::kParts * T::kBytes, kFirst % T::kParts,
                            act_of(scratch + (place.window + j) * Layout::kWindowBytes), ahead, isum[j], msum[j],
                            heads[j]);
    });
    place.window += 4;
    while (place.window >= layout.windows) place.window -= layout.windows;
  }
  F d, m;
  T::factors(w, heads, d, m);
  repeat<nc>([&](auto c) LLM_LAMBDA {
    std::byte* column = scratch + layout.columns + c * layout.column_bytes;
    float* terms = reinterpret_cast<float*>(column + terms_at);
    if constexpr (kTwoFactors<T>) {
      store_f(terms, natural_order(T::terms(isum[0][c], isum[1][c], isum[2][c], isum[3][c], d, m)));
      return;
    }
    V sum = sum4(isum[0][c], isum[1][c], isum[2][c], isum[3][c]);
    if constexpr (T::kBlock == 256) {
      F y = mul(d, to_f(sum));
      if constexpr (T::kHasMins) y = fma(m, to_f(sum4(msum[0][c], msum[1][c], msum[2][c], msum[3][c])), y);
      store_f(terms, natural_order(y));
    } else {
      const std::byte* repeated = column + 4 * place.block;
      sum = natural_order(sum);
      if constexpr (T::kSums == StreamSums::Bias) sum = add32(sum, load(repeated));
      F y = mul(d, to_f(sum));
      if constexpr (T::kSums == StreamSums::Float) y = fma(m, load_f(reinterpret_cast<const float*>(repeated)), y);
      store_f(terms, y);
    }
  });
  place.block += kWidth;
  while (place.block >= layout.blocks) place.block -= layout.blocks;
}

/// Adds up the terms of `count` times kWidth rows in the order of k, side by side: each sum waits for the one before
/// it.
template <int count>
LLM_INLINE void add_terms(const float* const* terms, const float* d_act, i64 blocks, F* acc) {
  repeat<count>([&](auto g) LLM_LAMBDA { acc[g] = zero_f(); });
  for (i64 j = 0; j < blocks; j += 4) {
    Four x[count];
    repeat<count>(
        [&](auto g) LLM_LAMBDA { x[g] = load_rows([&](int row) LLM_LAMBDA { return terms[g] + row * blocks + j; }); });
    repeat<4>([&](auto i) LLM_LAMBDA {
      if (j + i >= blocks) return;
      const F d = splat_f(d_act[j + i]);
      repeat<count>([&](auto g) LLM_LAMBDA { acc[g] = fma(d, as_f(x[g].v[i]), acc[g]); });
    });
  }
}

LLM_INLINE void put_sums(float* y, F sums, i64 n) {
  if (n == kWidth) return store_f(y, sums);
  float all[kWidth];
  store_f(all, sums);
  __builtin_memcpy(y, all, static_cast<std::size_t>(n) * sizeof(float));
}

/// Up to kWidth neighbouring rows.
struct RowGroup {
  i64 first, count;
};

/// Adds up the terms of the groups, of which the second one's lie where a second stream's do, and writes the outputs.
template <class T, int nc, int count>
LLM_INLINE void put_rows(const LinearArgs& args, const StreamLayout<T, nc>& layout, const std::byte* scratch,
                         const float* const* d_act, const RowGroup* groups) {
  for (int c = 0; c < nc; ++c) {
    const std::byte* column = scratch + layout.columns + c * layout.column_bytes + layout.terms;
    const float* terms[count];
    repeat<count>([&](auto g)
                      LLM_LAMBDA { terms[g] = reinterpret_cast<const float*>(column + g * layout.terms_bytes); });
    F acc[count];
    add_terms<count>(terms, d_act[c], layout.blocks, acc);
    repeat<count>([&](auto g) LLM_LAMBDA { put_sums(output(args, c) + groups[g].first, acc[g], groups[g].count); });
  }
}

/// The terms of a group's rows; with two streams also those of as many rows `distance` further on, a step of each in
/// turn: then the group has kWidth rows.
template <class T, int nc>
[[gnu::noinline]] void stream_rows(const LinearArgs& args, const StreamLayout<T, nc>& layout, const RowGroup& rows,
                                   int streams, i64 distance, std::byte* scratch) {
  const i64 n_terms = rows.count * layout.blocks, distance_bytes = distance * static_cast<i64>(args.w_row_bytes);
  const Fetching ahead = fetching(args.ways.streams);
  const u8* w = weight_row(args, rows.first);
  StreamPlace place;
  for (i64 at = 0; at < n_terms; at += kWidth, w += layout.kStepBytes) {
    if (at + kWidth > n_terms) {  // fewer blocks than a step takes: from a copy, so that nothing behind them is read
      u8* copy = reinterpret_cast<u8*>(scratch + layout.copy);
      __builtin_memset(copy, 0, layout.kStepBytes);
      __builtin_memcpy(copy, w, static_cast<std::size_t>((n_terms - at) * T::kBytes / T::kParts));
      w = copy;
    }
    const StreamPlace here = place;
#pragma GCC unroll 1
    for (int i = 0; i < streams; ++i) {
      place = here;
      stream_step<T, nc>(w + i * distance_bytes, ahead, layout, scratch, layout.terms + i * layout.terms_bytes + at * 4,
                         place);
    }
  }
}

/// All nc columns over all rows of the range.
template <class T, int nc>
void stream_columns(const LinearArgs& args, const StreamLayout<T, nc>& layout, i64 row_begin, i64 row_end,
                    std::byte* scratch) {
  const float* d_act[nc];
  for (int c = 0; c < nc; ++c) {
    const Column col = column(args, c);
    prepare_stream<T, nc>(col, layout, c, scratch);
    d_act[c] = col.scales;
  }
  const i64 half = args.ways.streams == Streams::One ? 0 : (row_end - row_begin) / (2 * kWidth) * kWidth;
  for (i64 row = row_begin; row < row_begin + half; row += kWidth) {
    const RowGroup groups[2] = {{row, kWidth}, {row + half, kWidth}};
    stream_rows<T, nc>(args, layout, groups[0], 2, half, scratch);
    put_rows<T, nc, 2>(args, layout, scratch, d_act, groups);
  }
  for (i64 row = row_begin + 2 * half; row < row_end; row += kWidth) {
    const RowGroup rest{row, row_end - row < kWidth ? row_end - row : kWidth};
    stream_rows<T, nc>(args, layout, rest, 1, 0, scratch);
    put_rows<T, nc, 1>(args, layout, scratch, d_act, &rest);
  }
}

/// Whether the range can be streamed: rows without gaps and short enough for the scratch.
template <class T, int nc>
LLM_INLINE bool can_stream(const LinearArgs& args, const StreamLayout<T, nc>& layout) {
  return layout.blocks / T::kParts * T::kBytes == static_cast<i64>(args.w_row_bytes) &&
         layout.bytes <= static_cast<i64>(kScratchBytes);
}

/// Beyond these a panel is at least as fast, or nearly so where unpacking takes most of the time. The smaller the
/// blocks, the more factors and sums a stream gathers for each column.
template <class Stream>
inline constexpr int kStreamColumns = Stream::kBlock == 256 ? (kGroupsInLoop<Stream> ? 4 : 6) : (kSums32 ? 3 : 4);
/// Streams of more columns than long_stream_columns() pay as long as their activations stay in the first cache.
inline constexpr i64 kStreamWindowBytes = 36 << 10;
LLM_INLINE int long_stream_columns(Streams streams) { return streams == Streams::One ? 2 : 4; }

/// The columns as a stream, unless there are more than nc or a panel is the better way.
template <class Stream, int nc>
bool stream(const LinearArgs& args, i64 row_begin, i64 row_end, std::byte* scratch) {
  if constexpr (nc > 1)
    if (args.n_cols < nc) return stream<Stream, nc - 1>(args, row_begin, row_end, scratch);
  const StreamLayout<Stream, nc> layout(args.k);
  if (args.n_cols != nc || !can_stream(args, layout)) return false;
  if (nc > long_stream_columns(args.ways.streams) && layout.windows * layout.kWindowBytes > kStreamWindowBytes)
    return false;
  stream_columns<Stream, nc>(args, layout, row_begin, row_end, scratch);
  return true;
}

}  // namespace llm::cpu::LLM_ISA::quant

#endif
