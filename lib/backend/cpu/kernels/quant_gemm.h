// Products with several columns: weights are unpacked per panel of 32 rows into the scratch (quant_panel.h) and meet
// all columns there, some at a time. Rows are the elements of the registers, so a column's activations are broadcast
// from memory.
#pragma once

#include "backend/cpu/kernels/quant_columns.h"
#include "backend/cpu/kernels/quant_panel.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

inline constexpr int kTileRows = 2 * kWidth;

/// With few columns unpacking is a great part of the work, and reading the weights takes as long as multiplying them:
/// the panel has to stay in the first cache, and memory to be busy all the time.
enum class Form : std::uint8_t { FewColumns, ManyColumns };
/// Whatever Ways::few_columns says.
inline constexpr i64 kLeastManyColumns = 13;

/// Elements of k that are unpacked at a time: whole cache lines of the columns' sums.
constexpr i64 stretch(Form form) { return form == Form::FewColumns ? 512 : 4096; }
inline constexpr i64 kMostStretch = stretch(Form::ManyColumns);

/// Columns of a tile, each with two registers of rows. Eight of them are 16 sums in 32 registers, and what is added up
/// beyond a sub-block goes through memory; with six that has registers as well. Few columns are rather one tile than
/// two, where Ways::narrow_tiles does not say otherwise.
constexpr int tile_columns([[maybe_unused]] Form form) {
#if defined(LLM_ISA_avx512)
  return form == Form::FewColumns ? 8 : 6;
#elif defined(LLM_ISA_neondotprod)
  return 8;
#else
  return 4;
#endif
}
inline constexpr int kMostTileColumns = tile_columns(Form::FewColumns);
#if defined(LLM_ISA_avx512)
inline constexpr int kColumnsInRegisters = 6;  ///< tiles of so many columns keep everything in registers
#else
inline constexpr int kColumnsInRegisters = 0;
#endif

/// Most panels that meet a tile's columns one after the other, so that these are prepared once.
constexpr int panels(Form form) { return form == Form::FewColumns ? 1 : 2; }
/// Bytes of weights that several panels are made of, at most. A row is fetched whole and used a stretch at a time, so
/// that the weights in use and the next ones are in the second cache together, beside panels and activations.
inline constexpr i64 kMostWeightBytes = 256 << 10;
/// panels(form), or 1 where rows are too long for that.
template <Form form>
LLM_INLINE int panels_at_once(const LinearArgs& args) {
  return panels(form) * kPanelRows * static_cast<i64>(args.w_row_bytes) <= kMostWeightBytes ? panels(form) : 1;
}

/// The scratch of the several-column products.
struct PanelMemory {
  alignas(64) u8 q[kMostStretch * kPanelRows];
  alignas(64) std::int32_t scale[kMostStretch / 16 * kPanelRows];
  alignas(64) std::int32_t min[kMostStretch / 32 * kPanelRows];
  alignas(64) float d[kMostStretch / 16 * kPanelRows];
  alignas(64) float dm[kMostStretch / 32 * kPanelRows];
};

/// What a tile needs of its columns beside the quants. Rows are padded by a cache line: equal k of all columns, other
/// sets.
template <Form form>
struct TileColumns {
  static constexpr i64 kElems = stretch(form);
  static constexpr int kTileCols = tile_columns(form);
  alignas(64) std::int32_t bias[kTileCols][kElems / 16 + 16];  ///< [k / sub] - bias * sum of activations: where a sum
                                                               ///< starts
  alignas(64) std::int32_t sums[kTileCols][kElems / 32 + 16];  ///< [k / min_pair] two int16 sums, or [k / 32] one f32
  alignas(64) float d[kTileCols][kElems / 16 + 16];            ///< [k / block]
  const std::int8_t* q[kTileCols];
};

/// Weights of the next panel, fetched little by little while this one is multiplied.
struct Ahead {
  const u8* next;
  const u8* end;
  i64 lines;  ///< many columns: at a time, a few times per block, so that a step of a tile is not burdened
  i64 step;   ///< few columns: bytes from one fetch to the next, at most a line; 0 if there is nothing to fetch
  bool near;  ///< few columns: into the first cache
};

/// Lines that are asked for in bursts find a core's few slots for them taken, which the panel's lines need as well. So
/// the steps of tiles and of unpacking fetch them one by one, and where slots are few, into the second cache.
LLM_INLINE void fetch_step(Ahead& ahead) {
  fetch_to(ahead.near, ahead.next);
  ahead.next += ahead.step;
}

LLM_INLINE void fetch_lines(Ahead& ahead) {
  for (i64 i = 0; i < ahead.lines && ahead.next < ahead.end; ++i, ahead.next += 64) fetch_near(ahead.next);
}

struct TileWork {
  Ahead ahead;
  alignas(64) F acc[2 * kMostTileColumns];
  alignas(64) V isum[2 * kMostTileColumns];
  alignas(64) F first[2 * kMostTileColumns];  ///< terms of the first of two blocks under one scale of activations
  alignas(64) float edge[kMostTileColumns][kPanelRows];  ///< outputs of a panel that has fewer rows
};

/// Few columns are prepared once for all panels of a call, as long as all their stretches find a place.
template <Form form>
inline constexpr i64 kColumnPlaces = form == Form::ManyColumns
                                         ? 1
                                         : (static_cast<i64>(kScratchBytes) -
                                            static_cast<i64>(sizeof(PanelMemory) + sizeof(TileWork))) /
                                               static_cast<i64>(sizeof(TileColumns<form>));

template <Form form>
struct GemmScratch {
  PanelMemory panel[panels(form)];
  TileWork work;
  TileColumns<form> cols[kColumnPlaces<form>];
};
static_assert(sizeof(GemmScratch<Form::FewColumns>) <= kScratchBytes);
static_assert(sizeof(GemmScratch<Form::ManyColumns>) <= kScratchBytes);

/// int32 sums of pairs of int16, times `factor`; both in the order of memory.
LLM_INLINE V pair_sums(const std::int16_t* p, int factor) { return madd16(load(p), splat16(factor)); }

/// Fills column `i` of a tile for elements [k0, k0 + n). Reads up to a register beyond the last sum: rows of sums are
/// padded.
template <PanelTraits t, Form form>
LLM_INLINE void prepare_column(const Column& col, i64 k0, i64 n, int i, TileColumns<form>& out) {
  out.q[i] = col.q + k0;
  if constexpr (t.block == 16) {
    for (i64 b = 0; b < n / 16; ++b) out.d[i][b] = col.scales[k0 / 32 + b / 2];
  } else {
    __builtin_memcpy(out.d[i], col.scales + k0 / t.block, static_cast<std::size_t>(n / t.block) * sizeof(float));
  }
  const std::int16_t* sums = col.sums + k0 / 16;
  if constexpr (t.bias != 0 && t.sub == 16) {
    const V factor = splat32(-t.bias);
    for (i64 s = 0; s < n / 16; s += kWidth) store(out.bias[i] + s, mul32(widen16(sums + s), factor));
  } else if constexpr (t.bias != 0 && t.sub == 32) {
    for (i64 s = 0; s < n / 32; s += kWidth) store(out.bias[i] + s, pair_sums(sums + 2 * s, -t.bias));
  } else if constexpr (t.bias != 0) {
    for (i64 b = 0; b < n / t.block; ++b) {
      std::int32_t sum = 0;
      for (int s = 0; s < 16; ++s) sum += sums[16 * b + s];
      out.bias[i][b] = -t.bias * sum;
    }
  }
  if constexpr (t.minimums == Minimums::PerBlock) {
    for (i64 s = 0; s < n / 32; s += kWidth)
      store_f(reinterpret_cast<float*>(out.sums[i] + s), to_f(pair_sums(sums + 2 * s, 1)));
  } else if constexpr (t.minimums == Minimums::Per32) {
    for (i64 s = 0; s < n / 64; s += kWidth)
      store(out.sums[i] + s, narrow32(pair_sums(sums + 4 * s, 1), pair_sums(sums + 4 * s + 2 * kWidth, 1)));
  } else if constexpr (t.minimums == Minimums::Per16) {
    __builtin_memcpy(out.sums[i], sums, static_cast<std::size_t>(n / 16) * sizeof(std::int16_t));
  }
}

/// Keeps the compiler from holding what `p` points to in registers: the sums of the inner loop need them all.
template <class X>
LLM_INLINE X* in_memory(X* p) {
  __asm__ volatile("" : "+r"(p) : : "memory");
  return p;
}

template <int nc>
struct Sums {
  V v[2][nc];
};

// Adds `elements` products to each sum; `q` points to the panel's bytes, `k` is the place in the columns.
#if defined(LLM_ISA_neondotprod)
/// 16 elements of each column are in a register, from which products take four by their place.
template <PanelTraits t, int elements, int nc, Form form>
LLM_INLINE void add_products(Sums<nc>& sum, const u8* q, const TileColumns<form>& cols, i64 k, Ahead& ahead) {
  repeat<elements / 16>([&](auto i) LLM_LAMBDA {
    V a[nc];
    repeat<nc>([&](auto c) LLM_LAMBDA { a[c] = load(cols.q[c] + k + 16 * i); });
    repeat<4>([&](auto four) LLM_LAMBDA {
      const u8* at = q + (16 * i + 4 * four) * kPanelRows;
      __asm__ volatile("" : "+r"(at));  // not all weights at once: the registers are full
      const V w0 = load(at), w1 = load(at + sizeof(V));
      if constexpr (form == Form::FewColumns) fetch_step(ahead);
      repeat<nc>([&](auto c) LLM_LAMBDA {
        sum.v[0][c] = dot8_element<four>(sum.v[0][c], w0, a[c]);
        sum.v[1][c] = dot8_element<four>(sum.v[1][c], w1, a[c]);
      });
    });
  });
}
#elif defined(LLM_ISA_neon)
/// Products are added up as int16 as long as they cannot overflow, each element of a row for itself; where that is for
/// two of them only, it saves nothing.
template <PanelTraits t, int elements, int nc, Form form>
LLM_INLINE void add_products(Sums<nc>& sum, const u8* q, const TileColumns<form>& cols, i64 k, Ahead& ahead) {
  constexpr int kMost = 32767 / (127 * t.max_abs);
  constexpr int kSteps = kMost >= 8 ? 8 : kMost >= 4 ? 4 : 1;
  constexpr int kGroup = kSteps < elements / 4 ? kSteps : elements / 4;
  repeat<elements / 4 / kGroup>([&](auto g) LLM_LAMBDA {
    Products part[2][nc];
    repeat<kGroup>([&](auto i) LLM_LAMBDA {
      constexpr int kStep = g * kGroup + i;
      const u8* at = q + kStep * 4 * kPanelRows;
      __asm__ volatile("" : "+r"(at));  // not all weights at once: the registers are full
      const V w0 = load(at), w1 = load(at + sizeof(V));
      if constexpr (form == Form::FewColumns) fetch_step(ahead);
      repeat<nc>([&](auto c) LLM_LAMBDA {
        const V a = splat32(load_i32(cols.q[c] + k + 4 * kStep));
        if constexpr (kGroup == 1) {
          sum.v[0][c] = dot8(sum.v[0][c], w0, a);
          sum.v[1][c] = dot8(sum.v[1][c], w1, a);
        } else {
          part[0][c] = i == 0 ? products(w0, a) : products(part[0][c], w0, a);
          part[1][c] = i == 0 ? products(w1, a) : products(part[1][c], w1, a);
        }
      });
    });
    if constexpr (kGroup > 1) {
      repeat<nc>([&](auto c) LLM_LAMBDA {
        sum.v[0][c] = add32(sum.v[0][c], sums_of_4(part[0][c]));
        sum.v[1][c] = add32(sum.v[1][c], sums_of_4(part[1][c]));
      });
    }
  });
}
#elif !defined(LLM_ISA_avx2)
template <PanelTraits t, int elements, int nc, Form form>
LLM_INLINE void add_products(Sums<nc>& sum, const u8* q, const TileColumns<form>& cols, i64 k, Ahead& ahead) {
#pragma GCC unroll 16
  for (int i = 0; i < elements / 4; ++i) {
    const V w0 = load(q + i * 4 * kPanelRows), w1 = load(q + i * 4 * kPanelRows + sizeof(V));
    if constexpr (form == Form::FewColumns) fetch_step(ahead);
#pragma GCC unroll 8
    for (int c = 0; c < nc; ++c) {
      const V a = splat32(load_i32(cols.q[c] + k + 4 * i));
      sum.v[0][c] = dot8(sum.v[0][c], w0, a);
      sum.v[1][c] = dot8(sum.v[1][c], w1, a);
    }
  }
}
#else
/// int16 sums of two products are added up as long as they cannot overflow, then widened by a multiplication with
/// `factor` (pairs of int16) per register of rows. Those of a sub-block start with what undoes its bias.
template <PanelTraits t, int elements, int nc, Form form>
LLM_INLINE void add_products_16(V* isum, const V* factor, const u8* q, const TileColumns<form>& cols, i64 k,
                                Ahead& ahead) {
  constexpr bool kStartsBiased = t.bias != 0 && t.scaled();
  constexpr int kMost = 32767 / (2 * 127 * t.max_abs);
  constexpr int kSteps = kMost >= 8 ? 8 : kMost >= 4 ? 4 : kMost >= 2 ? 2 : 1;
  constexpr int kGroup = kSteps < elements / 4 ? kSteps : elements / 4;
  static_assert(!kStartsBiased || kGroup == elements / 4);
#pragma GCC unroll 8
  for (int g = 0; g < elements / 4; g += kGroup) {
    V sum[2][nc];
    if constexpr (kStartsBiased) {
#pragma GCC unroll 4
      for (int c = 0; c < nc; ++c) sum[0][c] = sum[1][c] = splat32(cols.bias[c][k / t.sub] & 0xffff);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kGroup; ++i) {
      const u8* at = q + (g + i) * 4 * kPanelRows;
      const V w0 = load(at), w1 = load(at + sizeof(V));
      if constexpr (form == Form::FewColumns) fetch_step(ahead);
      const V m0 = t.is_signed ? abs8(w0) : w0, m1 = t.is_signed ? abs8(w1) : w1;
#pragma GCC unroll 4
      for (int c = 0; c < nc; ++c) {
        const V a = splat32(load_i32(cols.q[c] + k + 4 * (g + i)));
        const V p0 = maddubs(m0, t.is_signed ? sign8(a, w0) : a), p1 = maddubs(m1, t.is_signed ? sign8(a, w1) : a);
        sum[0][c] = i == 0 && !kStartsBiased ? p0 : add16(sum[0][c], p0);
        sum[1][c] = i == 0 && !kStartsBiased ? p1 : add16(sum[1][c], p1);
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < nc; ++c) {
      isum[2 * c] = madd16(isum[2 * c], sum[0][c], factor[0]);
      isum[2 * c + 1] = madd16(isum[2 * c + 1], sum[1][c], factor[1]);
    }
  }
}
#endif

#if defined(LLM_ISA_avx2)

/// The integer sums of block `b` of the panel.
template <PanelTraits t, int nc, Form form>
LLM_INLINE Sums<nc> block_sums(const PanelMemory& p, int row, const TileColumns<form>& cols, i64 b, V* isum,
                               Ahead& ahead) {
  const u8* q = p.q + b * t.block * kPanelRows + row * 4;
  for (int c = 0; c < nc; ++c)
    isum[2 * c] = isum[2 * c + 1] = t.bias != 0 && !t.scaled() ? splat32(cols.bias[c][b]) : zero();
  if constexpr (t.scaled()) {
    for (int s = 0; s < t.block / t.sub; ++s) {
      if constexpr (form == Form::ManyColumns) fetch_lines(ahead);
      const std::int32_t* scale = p.scale + (b * (t.block / t.sub) + s) * kPanelRows + row;
      const V factor[2] = {load(scale), load(scale + kWidth)};
      add_products_16<t, t.sub, nc, form>(isum, factor, q + s * t.sub * kPanelRows, cols, b * t.block + s * t.sub,
                                          ahead);
    }
  } else {
    constexpr int kPart = t.block < 32 ? t.block : 32;
    const V factor[2] = {splat16(1), splat16(1)};
    if constexpr (form == Form::ManyColumns) fetch_lines(ahead);
    for (int s = 0; s < t.block; s += kPart)
      add_products_16<t, kPart, nc, form>(isum, factor, q + s * kPanelRows, cols, b * t.block + s, ahead);
  }
  Sums<nc> sum;
  for (int c = 0; c < nc; ++c) {
    sum.v[0][c] = isum[2 * c];
    sum.v[1][c] = isum[2 * c + 1];
  }
  return sum;
}

#else

/// The integer sums of sub-block `s` of block `b`, not scaled.
template <PanelTraits t, int nc, Form form>
LLM_INLINE Sums<nc> sub_block_sums(const PanelMemory& p, int row, const TileColumns<form>& cols, i64 b, int s,
                                   Ahead& ahead) {
  constexpr int kSubs = t.block / t.sub;
  const u8* q = p.q + (b * t.block + s * t.sub) * kPanelRows + row * 4;
  Sums<nc> sum;
#pragma GCC unroll 8
  for (int c = 0; c < nc; ++c) sum.v[0][c] = sum.v[1][c] = t.bias != 0 ? splat32(cols.bias[c][b * kSubs + s]) : zero();
  if constexpr (t.sub <= 32) {
    add_products<t, t.sub, nc, form>(sum, q, cols, b * t.block + s * t.sub, ahead);
  } else {
    for (int part = 0; part < t.sub; part += 32)
      add_products<t, 32, nc, form>(sum, q + part * kPanelRows, cols, b * t.block + part, ahead);
  }
  return sum;
}

/// The integer sums of block `b` of the panel; those that are scaled are added up in `isum`, or in registers if there
/// are enough of them, the others never leave the registers.
template <PanelTraits t, int nc, Form form>
LLM_INLINE Sums<nc> block_sums(const PanelMemory& p, int row, const TileColumns<form>& cols, i64 b, V* isum,
                               Ahead& ahead) {
  if constexpr (!t.scaled()) {
    if constexpr (form == Form::ManyColumns) fetch_lines(ahead);
    return sub_block_sums<t, nc, form>(p, row, cols, b, 0, ahead);
  } else {
    constexpr int kSubs = t.block / t.sub;
    constexpr bool kInRegisters = nc <= kColumnsInRegisters;
    Sums<nc> total;
#pragma GCC unroll 8
    for (int c = 0; c < nc; ++c) {
      if constexpr (kInRegisters)
        total.v[0][c] = total.v[1][c] = zero();
      else
        isum[2 * c] = isum[2 * c + 1] = zero();
    }
#pragma GCC unroll 1
    for (int s = 0; s < kSubs; ++s) {
      if constexpr (form == Form::ManyColumns) fetch_lines(ahead);
      const Sums<nc> sum = sub_block_sums<t, nc, form>(p, row, cols, b, s, ahead);
      const std::int32_t* scale = p.scale + (b * kSubs + s) * kPanelRows + row;
      const V s0 = load(scale), s1 = load(scale + kWidth);
#pragma GCC unroll 8
      for (int c = 0; c < nc; ++c) {
        V& sum0 = kInRegisters ? total.v[0][c] : isum[2 * c];
        V& sum1 = kInRegisters ? total.v[1][c] : isum[2 * c + 1];
        sum0 = add32(sum0, mul32(sum.v[0][c], s0));
        sum1 = add32(sum1, mul32(sum.v[1][c], s1));
      }
    }
    if constexpr (!kInRegisters) {
#pragma GCC unroll 8
      for (int c = 0; c < nc; ++c) {
        total.v[0][c] = isum[2 * c];
        total.v[1][c] = isum[2 * c + 1];
      }
    }
    return total;
  }
}

#endif

/// y += the product of kTileRows rows of the panel from `row` with nc columns over n elements; y = if this is where k
/// `begins`.
template <PanelTraits t, int nc, Form form>
[[gnu::noinline]] void tile(const PanelMemory& p, int row, i64 n, const TileColumns<form>& cols, TileWork& work,
                            float* const* y, bool begins) {
  Ahead ahead = work.ahead;
  // of scaled types registers have the sums of blocks
  constexpr bool kInRegisters = nc <= kColumnsInRegisters && !t.scaled();
  F registers[2 * nc];
  F* acc = kInRegisters ? registers : in_memory(work.acc);
  V* isum = in_memory(work.isum);
  F* first = in_memory(work.first);
#pragma GCC unroll 8
  for (int c = 0; c < nc; ++c) {
    acc[2 * c] = begins ? zero_f() : load_f(y[c] + row);
    acc[2 * c + 1] = begins ? zero_f() : load_f(y[c] + row + kWidth);
  }
  for (i64 b = 0; b < n / t.block; ++b) {
    if constexpr (t.block == 16) {
      const Sums<nc> sums = block_sums<t, nc, form>(p, row, cols, b, isum, ahead);
      const F d0 = load_f(p.d + b * kPanelRows + row), d1 = load_f(p.d + b * kPanelRows + row + kWidth);
#pragma GCC unroll 8
      for (int c = 0; c < nc; ++c) {
        first[2 * c] = mul(d0, to_f(sums.v[0][c]));
        first[2 * c + 1] = mul(d1, to_f(sums.v[1][c]));
      }
      ++b;
    }
    const Sums<nc> sums = block_sums<t, nc, form>(p, row, cols, b, isum, ahead);
    const float* d = p.d + b * kPanelRows + row;
    const float* dm = p.dm + b * kPanelRows + row;
    const F d0 = load_f(d), d1 = load_f(d + kWidth);
#pragma GCC unroll 8
    for (int c = 0; c < nc; ++c) {
      F y0 = to_f(sums.v[0][c]), y1 = to_f(sums.v[1][c]);
      y0 = t.block == 16 ? fma(d0, y0, first[2 * c]) : mul(d0, y0);
      y1 = t.block == 16 ? fma(d1, y1, first[2 * c + 1]) : mul(d1, y1);
      if constexpr (t.minimums == Minimums::PerBlock) {
        const F sum = splat_f(reinterpret_cast<const float*>(cols.sums[c])[b]);
        y0 = fma(load_f(dm), sum, y0);
        y1 = fma(load_f(dm + kWidth), sum, y1);
      } else if constexpr (t.minimums != Minimums::None) {
        constexpr int kPairs = t.block / t.min_pair();
        const std::int32_t* min = p.min + b * kPairs * kPanelRows + row;
        V m0 = zero(), m1 = zero();
#pragma GCC unroll 8
        for (int i = 0; i < kPairs; ++i) {
          const V sums = splat32(cols.sums[c][b * kPairs + i]);
          m0 = madd16(m0, load(min + i * kPanelRows), sums);
          m1 = madd16(m1, load(min + i * kPanelRows + kWidth), sums);
        }
        y0 = fma(load_f(dm), to_f(m0), y0);
        y1 = fma(load_f(dm + kWidth), to_f(m1), y1);
      }
      const F da = splat_f(cols.d[c][b]);
      acc[2 * c] = fma(da, y0, acc[2 * c]);
      acc[2 * c + 1] = fma(da, y1, acc[2 * c + 1]);
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < nc; ++c) {
    store_f(y[c] + row, acc[2 * c]);
    store_f(y[c] + row + kWidth, acc[2 * c + 1]);
  }
  work.ahead = ahead;
}

/// What a tile needs to know of a type: of a bias only whether there is one, and the range of the stored bytes.
constexpr PanelTraits tile_traits(PanelTraits t) {
#if defined(LLM_ISA_avx2)
  t.max_abs += t.bias;
  t.max_abs = t.bias == 0 ? t.max_abs : t.max_abs <= 8 ? 8 : t.max_abs <= 16 ? 16 : 32;
#else
  t.is_signed = false;
#endif
  t.bias = t.bias != 0 ? 1 : 0;
#if defined(LLM_ISA_neondotprod)
  t.max_abs = 0;
#endif
  return t;
}

template <Form form>
using TileFn = void (*)(const PanelMemory&, int, i64, const TileColumns<form>&, TileWork&, float* const*, bool);

template <PanelTraits t, Form form>
TileFn<form> tile_of(i64 nc) {
  constexpr i64 kMost = tile_columns(form);
  constexpr i64 kLeast = form == Form::ManyColumns ? kLeastManyColumns * kMost / (kLeastManyColumns + kMost - 1) : 1;
  TileFn<form> found = nullptr;
  repeat<kMost>([&](auto i) LLM_LAMBDA {
    if constexpr (i.value + 1 >= kLeast)
      if (nc == i.value + 1) found = tile<t, i.value + 1, form>;
  });
  return found;
}

/// Unpacks elements [k0, k0 + n) of the rows. Every eighth time that a row is read, some of the next panel is fetched.
template <class T, bool near>
[[gnu::noinline]] void unpack_panel(const u8* const* rows, i64 k0, i64 n, PanelMemory& p, TileWork& work) {
  Ahead ahead = work.ahead;
  constexpr PanelTraits t = T::traits;
  for (i64 b = 0; b < n / t.block; b += parts_at_once<T>()) {
    const i64 block = k0 / t.block + b, offset = block / T::kParts * T::kBytes;
    for (int row = 0; row < kPanelRows; row += kWidth) {
      const PanelBlock out{p.q + b * t.block * kPanelRows + row * 4, p.scale + b * (t.block / t.sub) * kPanelRows + row,
                           p.min + b * (t.block / t.min_pair()) * kPanelRows + row, p.d + b * kPanelRows + row,
                           p.dm + b * kPanelRows + row};
      const auto at = [&](int r) LLM_LAMBDA {
        if (r % rows_per_fetch<T>() == 0) {
          fetch_scheduled<near>(ahead.next);
          ahead.next += ahead.step;
        }
        return rows[row + r] + offset;
      };
      T::unpack(at, static_cast<int>(block % T::kParts), out);
    }
  }
  work.ahead = ahead;
}

/// Columns [c0, c0 + nc) of a tile for elements [k0, k0 + n).
template <class T, Form form>
LLM_INLINE void prepare_columns(const LinearArgs& args, i64 k0, i64 n, i64 c0, i64 nc, TileColumns<form>& out) {
  for (int c = 0; c < nc; ++c) prepare_column<T::traits>(column(args, c0 + c), k0, n, c, out);
}

/// The panel's rows against columns [c0, c0 + nc).
template <class T, Form form>
LLM_INLINE void panel_columns(const LinearArgs& args, i64 row, int n_rows, i64 k0, i64 n, i64 c0, i64 nc,
                              const PanelMemory& panel, const TileColumns<form>& cols, TileWork& work) {
  float* y[kMostTileColumns];
  for (int c = 0; c < nc; ++c) {
    y[c] = n_rows == kPanelRows ? output(args, c0 + c) + row : work.edge[c];
    if (n_rows != kPanelRows && k0 != 0)
      __builtin_memcpy(y[c], output(args, c0 + c) + row, static_cast<std::size_t>(n_rows) * sizeof(float));
  }
  const TileFn<form> run = tile_of<tile_traits(T::traits), form>(nc);
  for (int r = 0; r < kPanelRows; r += kTileRows) run(panel, r, n, cols, work, y, k0 == 0);
  if (n_rows != kPanelRows)
    for (int c = 0; c < nc; ++c)
      __builtin_memcpy(output(args, c0 + c) + row, y[c], static_cast<std::size_t>(n_rows) * sizeof(float));
}

/// Asks for the outputs of a panel's rows, for writing: rows of y are far apart, and a tile that waits for their lines
/// has the sums of the next one wait behind it.
LLM_INLINE void fetch_outputs(const LinearArgs& args, i64 row, i64 c0, i64 nc) {
  for (i64 c = c0; c < c0 + nc; ++c) {
    const float* y = output(args, c) + row;
    for (int r = 0; r < kPanelRows; r += 16) fetch_to_write(y + r);
  }
}

/// What to fetch during the panels of `rows` rows at `row` with elements [k0, k0 + n): an even share of the next ones.
template <class T, Form form>
LLM_INLINE Ahead next_weights(const LinearArgs& args, i64 row, i64 rows, i64 row_end, i64 k0, i64 n, i64 tiles) {
  const i64 first = row + rows, rest = row_end - first;
  const bool near = args.ways.streams == Streams::One;
  if (rest <= 0) return {weight_row(args, row), nullptr, 0, 0, near};
  const i64 bytes = (rest < rows ? rest : rows) * static_cast<i64>(args.w_row_bytes);
  const u8* begin = weight_row(args, first) + bytes * k0 / args.k;
  const u8* end = weight_row(args, first) + bytes * (k0 + n) / args.k;
  const i64 runs = tiles * (rows / kTileRows);
  if constexpr (form == Form::ManyColumns) {
    const i64 times = n / T::traits.sub * runs;
    return {begin, end, (end - begin + times * 64 - 1) / (times * 64), 0, near};
  }
  // a tile's every fourth element; unpacking reads about 16 bytes of 16 rows between two of them
  const i64 times = n / 4 * runs + (end - begin) / (4 * kPanelRows);
  const i64 step = (end - begin + times - 1) / times;
  return {begin, end, 0, step < 64 ? step : 64, near};
}

template <class T, Form form>
void gemm_form(const LinearArgs& args, i64 row_begin, i64 row_end, std::byte* scratch) {
  auto& s = *reinterpret_cast<GemmScratch<form>*>(scratch);
  const i64 width = args.ways.narrow_tiles && kColumnsInRegisters > 0 ? kColumnsInRegisters : tile_columns(form);
  const i64 tiles = (args.n_cols + width - 1) / width;
  const i64 stretches = (args.k + stretch(form) - 1) / stretch(form);
  const bool keep = form == Form::FewColumns && stretches * tiles <= kColumnPlaces<form>;
  const int at_once = panels_at_once<form>(args);
  for (i64 row = row_begin; row < row_end; row += at_once * kPanelRows) {
    TileColumns<form>* cols = s.cols;
    for (i64 k0 = 0; k0 < args.k; k0 += stretch(form)) {
      const i64 n = args.k - k0 < stretch(form) ? args.k - k0 : stretch(form);
      s.work.ahead = next_weights<T, form>(args, row, at_once * kPanelRows, row_end, k0, n, tiles);
      int used = 0;
      for (; used < at_once && row + used * kPanelRows < row_end; ++used) {
        const u8* rows[kPanelRows];  // missing rows repeat the last one and are not written
        for (int r = 0; r < kPanelRows; ++r) {
          const i64 at = row + used * kPanelRows + r;
          rows[r] = weight_row(args, at < row_end ? at : row_end - 1);
        }
        const auto unpack = s.work.ahead.near ? unpack_panel<T, true> : unpack_panel<T, false>;
        unpack(rows, k0, n, s.panel[used], s.work);
      }
      for (i64 i = 0, c0 = 0; i < tiles; ++i) {  // tiles as even as can be: 9 columns are 5 and 4
        const i64 nc = (args.n_cols - c0 + tiles - i - 1) / (tiles - i), c1 = c0 + nc;
        if (!keep || row == row_begin) prepare_columns<T>(args, k0, n, c0, nc, *cols);
        for (int p = 0; p < used; ++p) {
          const i64 first = row + p * kPanelRows;
          if constexpr (form == Form::ManyColumns) {
            if (p + 1 < used)
              fetch_outputs(args, first + kPanelRows, c0, nc);
            else
              fetch_outputs(args, row, c1, args.n_cols - c1 < nc ? args.n_cols - c1 : nc);
          }
          const int n_rows = static_cast<int>(row_end - first < kPanelRows ? row_end - first : kPanelRows);
          panel_columns<T>(args, first, n_rows, k0, n, c0, nc, s.panel[p], *cols, s.work);
        }
        if (keep) ++cols;
        c0 = c1;
      }
    }
  }
}

template <class T>
void gemm(const LinearArgs& args, i64 row_begin, i64 row_end, std::byte* scratch) {
  if (args.n_cols < kLeastManyColumns || args.n_cols <= args.ways.few_columns)
    gemm_form<T, Form::FewColumns>(args, row_begin, row_end, scratch);
  else
    gemm_form<T, Form::ManyColumns>(args, row_begin, row_end, scratch);
}

}  // namespace llm::cpu::LLM_ISA::quant

#endif
