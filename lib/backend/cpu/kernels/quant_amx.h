// Products with many columns by tiles (amx_tiles.h): 16 columns times 16 rows of weights, over 64 bytes of k at once.
// A panel's bytes (quant_panel.h) already lie as a tile of weights has to. Integer scales are multiplied into them: of
// a type whose products need more than a byte, into two planes of bytes, whose sums are put together again:
//
//   5 bits times an unsigned scale of 6 bits   quant * (scale % 8)         + 8 *   quant * (scale / 8)
//   else                                       (quant * scale) % 256       + 256 * (quant * scale) / 256
//
// Blocks of 16 have their quants multiplied with their factors, as BF16, and two blocks are one sum, as long as it is
// exact. The sums are those of quant_linear.h, and what follows them is done in the same order: equal bits. Tiles are
// multiplied beside the sums of those before becoming floats.
#pragma once

#include "backend/cpu/kernels/amx_tiles.h"
#include "backend/cpu/kernels/quant_columns.h"
#include "backend/cpu/kernels/quant_panel.h"

namespace llm::cpu::LLM_ISA::quant {

inline constexpr i64 kSpan = 256;  ///< elements of k that are unpacked at a time
inline constexpr int kMostPanels = 4;
inline constexpr int kGroup = 16;         ///< columns of a tile
inline constexpr int kSteps = 4;          ///< of an item: so many blocks, or quarters of a block of 256
inline constexpr i64 kCallColumns = 512;  ///< whose places and sums are kept at a time
inline constexpr i64 kFewColumns = 256;   ///< up to these one panel at a time
inline constexpr int kRegisterRows = 16;

struct Panel {
  alignas(64) u8 q[2][kSpan * kPanelRows];
  alignas(64) std::int32_t scale[kSpan / 16 * kPanelRows];
  alignas(64) std::int32_t min[kSpan / 32 * kPanelRows];
  alignas(64) float d[kSpan / 16 * kPanelRows];
  alignas(64) float dm[kSpan / 32 * kPanelRows];
};

/// Where a column's activations and outputs are.
struct ColumnPlace {
  Column act;
  float* y;  ///< row 0
};

/// Columns whose tiles are multiplied together, over one span.
struct Group {
  /// Activations that do not lie at equal distances, or as BF16.
  alignas(64) std::int8_t packed[kGroup * kSpan * sizeof(BFloat16)];
  alignas(64) std::int32_t sums[kGroup][kSpan / 32];  ///< of 32 activations: two int16, or one f32
  const ColumnPlace* places;
  const std::int8_t* q;
  i64 stride;  ///< bytes from one column's q to the next
  int columns;
};

/// One product of tiles: a group's columns with a panel's rows over kSteps steps.
struct Item {
  const Group* group = nullptr;
  const Panel* panel = nullptr;
  i64 row = 0;                ///< of the panel's first in y
  std::uint32_t present = 0;  ///< a bit for each row of the panel that there is
  i64 k = 0;                  ///< where it begins
  int element = 0;            ///< the same in the span
  int steps = 0;
  bool last = false;     ///< of the sums over k
  float* acc = nullptr;  ///< the sums so far, [column][row]
};

struct TileScratch {
  Panel panels[kMostPanels];
  Group groups[2];
  alignas(64) std::int32_t sums[2][kSteps * kGroup * kPanelRows];  ///< [step or plane][column][row]
  ColumnPlace places[kCallColumns];
  alignas(64) float acc[kCallColumns / kGroup * kMostPanels][kGroup * kPanelRows];  ///< [group][panel]
};
static_assert(sizeof(TileScratch) <= kScratchBytes);

template <PanelTraits t>
struct TileShape {
  static constexpr bool kWhole = t.block == kSpan;  ///< one block is an item
  /// Blocks of 16 are multiplied as BF16, two at a time: their products with factors have few enough bits.
  static constexpr bool kFloats = t.block == 16;
  static constexpr int kStepElems = kWhole ? kSpan / kSteps : kFloats ? 32 : t.block;
  static constexpr int kItemElems = kSteps * kStepElems;
  static constexpr bool kPlanes = t.scaled();
  static constexpr bool kNarrow = t.minimums == Minimums::Per32;  ///< quants of 5 bits, unsigned scales of 6
  static constexpr int kShift = !kPlanes ? 0 : kNarrow ? 3 : 8;
  static constexpr int kBytes = kFloats ? sizeof(BFloat16) : 1;  ///< of an element
  static constexpr int kStepBytes = kStepElems * kBytes;
  /// That are multiplied in turn. A column's activations serve all of them once they are in the first cache, which is
  /// worth more where they are widened; few columns gain more if a panel is still there as well.
  static constexpr int panels(i64 columns) { return kFloats ? 4 : columns <= kFewColumns ? 1 : 2; }

  static tiles::Config config(int columns) {
    tiles::Config c;
    for (int tile = 0; tile < tiles::kTiles; ++tile) {
      const bool act = tile == 4 || tile == 5, weights = tile > 5;
      c.rows[tile] = static_cast<std::uint8_t>(weights ? kStepBytes / 4 : columns);
      c.row_bytes[tile] = act ? kStepBytes : 64;
    }
    return c;
  }
};

// --- panels ---

/// Takes the bias from the quants.
template <PanelTraits t>
[[gnu::noinline]] void make_signed(i64 n, Panel& p) {
  const V bias = splat8(t.bias);
  for (i64 i = 0; i < n * kPanelRows; i += kVectorBytes) store(p.q[0] + i, sub8(load(p.q[0] + i), bias));
}

/// Writes the planes of quants times scales over the quants.
template <PanelTraits t>
[[gnu::noinline]] void multiply_scales(Panel& p) {
  const V low_byte = splat16(0x00ff), high_byte = splat16(static_cast<short>(0xff00)), bias = splat8(t.bias);
  for (i64 sub = 0; sub < kSpan / t.sub; ++sub) {
    for (int row = 0; row < kPanelRows; row += kRegisterRows) {
      const V one_scale = load(p.scale + sub * kPanelRows + row);
      const V scale = or_(and_(one_scale, splat32(0xffff)), shl32<16>(one_scale));  // twice, as int16
      const V low_scale = and_(scale, splat16(7)), high_scale = shr16<3>(scale);
      u8* begin = p.q[0] + sub * t.sub * kPanelRows + row * 4;
#pragma GCC unroll 4
      for (int i = 0; i < t.sub / 4; ++i) {
        u8* at = begin + i * 4 * kPanelRows;
        u8* high_at = at + sizeof p.q[0];
        if constexpr (TileShape<t>::kNarrow) {  // no byte carries into the next
          const V q = load(at);
          store(at, mul16(q, low_scale));
          store(high_at, mul16(q, high_scale));
        } else {
          const V q = sub8(load(at), bias);
          const V even = mul16(sar16<8>(shl16<8>(q)), scale), odd = mul16(sar16<8>(q), scale);
          store(at, or_and(shl16<8>(odd), even, low_byte));
          store(high_at, or_and(shr16<8>(even), odd, high_byte));
        }
      }
    }
  }
}

/// Whether every f32 sum of products of two blocks under these factors is exact, in whatever order. The products are
/// multiples of the smaller factor / 15, since factors are of 4 bits, and the sum is less than 24 bits of them: a
/// block's is at most 16 * 12 * 127 factors.
LLM_INLINE bool sums_are_exact(F d0, F d1) {
  const __m512 low = _mm512_min_ps(d0, d1), high = _mm512_max_ps(d0, d1);
  const __mmask16 present = _mm512_cmp_ps_mask(low, zero_f(), _CMP_NEQ_OQ);
  return _mm512_mask_cmp_ps_mask(present, high, mul(low, splat_f(44)), _CMP_GT_OQ) == 0;
}

/// Writes quants times factors, BF16, over the quants, which are in the second half: no group of four elements is
/// written before it is read. False: the factors are too far apart for exact sums.
template <PanelTraits t>
[[gnu::noinline]] bool multiply_factors(i64 n, Panel& p) {
  for (i64 b = 0; b < n / t.block; b += 2) {
    for (int row = 0; row < kPanelRows; row += kRegisterRows) {
      const float* d = p.d + b * kPanelRows + row;
      if (!sums_are_exact(load_f(d), load_f(d + kPanelRows))) return false;
    }
  }
  const V bias = splat8(t.bias), high_half = splat32(static_cast<int>(0xffff0000));
  for (i64 four = 0; four < n / 4; ++four) {
    for (int row = 0; row < kPanelRows; row += kRegisterRows) {
      const V q = sub8(load(p.q[1] + four * 4 * kPanelRows + row * 4), bias);
      const F d = load_f(p.d + four * 4 / t.block * kPanelRows + row);
      V x[4];
      repeat<4>([&](auto i) LLM_LAMBDA { x[i] = bits(mul(d, to_f(sar32<24>(shl32<24 - 8 * i>(q))))); });
      u8* at = p.q[0] + four * 8 * kPanelRows + row * 4;
      store(at, or_and(shr32<16>(x[0]), x[1], high_half));
      store(at + 4 * kPanelRows, or_and(shr32<16>(x[2]), x[3], high_half));
    }
  }
  return true;
}

/// Elements [k0, k0 + n) of the rows. False: tiles would not give the right bits.
template <class T>
[[gnu::noinline]] bool unpack(const u8* const* rows, i64 k0, i64 n, Panel& p) {
  constexpr PanelTraits t = T::traits;
  for (i64 b = 0; b < n / t.block; b += parts_at_once<T>()) {
    const i64 block = k0 / t.block + b, offset = block / T::kParts * T::kBytes;
    for (int row = 0; row < kPanelRows; row += kRegisterRows) {
      const PanelBlock out{p.q[TileShape<t>::kFloats] + b * t.block * kPanelRows + row * 4,
                           p.scale + b * (t.block / t.sub) * kPanelRows + row,
                           p.min + b * (t.block / t.min_pair()) * kPanelRows + row, p.d + b * kPanelRows + row,
                           p.dm + b * kPanelRows + row};
      const auto at = [&](int r) LLM_LAMBDA { return rows[row + r] + offset; };
      T::unpack(at, static_cast<int>(block % T::kParts), out);
    }
  }
  if constexpr (t.scaled())
    multiply_scales<t>(p);
  else if constexpr (TileShape<t>::kFloats)
    return multiply_factors<t>(n, p);
  else if constexpr (t.bias != 0)
    make_signed<t>(n, p);
  return true;
}

// --- columns ---

/// The sums of 32 activations from those of 16, of n elements.
template <Minimums minimums>
LLM_INLINE void sum_pairs(const std::int16_t* sums16, i64 n, std::int32_t* out) {
  const auto present = static_cast<__mmask16>((1u << n / 16) - 1);
  const __m256i pairs = _mm256_madd_epi16(_mm256_maskz_loadu_epi16(present, sums16), _mm256_set1_epi16(1));
  if constexpr (minimums == Minimums::PerBlock)
    _mm256_store_ps(reinterpret_cast<float*>(out), _mm256_cvtepi32_ps(pairs));
  else
    _mm_store_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtepi32_epi16(pairs));
}

/// n elements as BF16.
LLM_INLINE void widen_to_bf16(const std::int8_t* q, i64 n, std::int8_t* out) {
  for (i64 i = 0; i < n; i += 32) {
    const V words = V{_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + i)))};
    const V even = bits(to_f(sar32<16>(shl32<16>(words)))), odd = bits(to_f(sar32<16>(words)));
    store(out + i * 2, or_and(shr32<16>(even), odd, splat32(static_cast<int>(0xffff0000))));
  }
}

/// Columns `places` over elements [k0, k0 + n); `tile_columns` are loaded in any case.
template <PanelTraits t>
LLM_INLINE void prepare(const LinearArgs& args, const ColumnPlace* places, i64 k0, i64 n, int columns, int tile_columns,
                        Group& g) {
  g.places = places;
  g.columns = columns;
  if constexpr (t.minimums == Minimums::PerBlock || t.minimums == Minimums::Per32)
    for (int c = 0; c < columns; ++c) sum_pairs<t.minimums>(places[c].act.sums + k0 / 16, n, g.sums[c]);
  if constexpr (TileShape<t>::kFloats) {
    g.q = g.packed;
    g.stride = kSpan * TileShape<t>::kBytes;
    for (int c = 0; c < columns; ++c) widen_to_bf16(places[c].act.q + k0, n, g.packed + c * g.stride);
    return;
  }
  if (args.act_rows == nullptr && columns == tile_columns) {
    g.q = places->act.q + k0;
    g.stride = static_cast<i64>(args.layout->row_bytes);
    return;
  }
  g.q = g.packed;
  g.stride = kSpan;
  for (int c = 0; c < columns; ++c)
    __builtin_memcpy(g.packed + c * kSpan, places[c].act.q + k0, static_cast<std::size_t>(n));
}

// --- items ---

/// With the first plane.
template <PanelTraits t, int sum, int act, int weights>
LLM_INLINE void multiply_tiles() {
  if constexpr (TileShape<t>::kFloats)
    tiles::dot_bf16<sum, act, weights>();
  else
    tiles::dot<sum, act, weights, TileShape<t>::kPlanes>();
}

/// Multiplies step `s` of an item. Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights.
template <PanelTraits t, int s>
LLM_INLINE void multiply_step(const Item& item, std::int32_t* sums) {
  using Shape = TileShape<t>;
  constexpr i64 kRowBytes = 4 * kPanelRows, kSumBytes = kPanelRows * sizeof(std::int32_t);
  constexpr int kAct = 4 + s % 2, kPair = Shape::kPlanes ? 0 : 2 * (s % 2);
  const int element = item.element + s * Shape::kStepElems;
  const u8* w = item.panel->q[0] + i64{element} * Shape::kBytes * kPanelRows;
  if constexpr (!Shape::kWhole || s == 0 || (s == 1 && !Shape::kPlanes)) {
    tiles::zero<kPair>();
    tiles::zero<kPair + 1>();
  }
  tiles::load<kAct>(item.group->q + element * Shape::kBytes, item.group->stride);
  tiles::load<6>(w, kRowBytes);
  multiply_tiles<t, kPair, kAct, 6>();
  tiles::load<7>(w + 64, kRowBytes);
  multiply_tiles<t, kPair + 1, kAct, 7>();
  if constexpr (Shape::kPlanes) {
    if constexpr (s == 0) {
      tiles::zero<2>();
      tiles::zero<3>();
    }
    const u8* high = w + sizeof item.panel->q[0];
    tiles::load<6>(high, kRowBytes);
    tiles::dot<2, kAct, 6, Shape::kNarrow>();
    tiles::load<7>(high + 64, kRowBytes);
    tiles::dot<3, kAct, 7, Shape::kNarrow>();
  }
  if constexpr (!Shape::kWhole) {
    std::int32_t* out = sums + s * kGroup * kPanelRows;
    tiles::store<kPair>(out, kSumBytes);
    tiles::store<kPair + 1>(out + kRegisterRows, kSumBytes);
  } else if constexpr (s == kSteps - 1) {
    tiles::store<0>(sums, kSumBytes);
    tiles::store<1>(sums + kRegisterRows, kSumBytes);
    tiles::store<2>(sums + kGroup * kPanelRows, kSumBytes);
    tiles::store<3>(sums + kGroup * kPanelRows + kRegisterRows, kSumBytes);
  }
}

/// Two registers of rows.
struct RowPair {
  F r[2];
};

/// What a panel has for the sums of an item, kept in registers: of one block, or of kSteps small ones.
template <PanelTraits t>
struct Factors {
  static constexpr int kBlocks = TileShape<t>::kWhole ? 1 : kSteps;
  static constexpr bool kMins = t.minimums == Minimums::Per16 || t.minimums == Minimums::Per32;
  static constexpr int kPairs = kMins ? t.block / t.min_pair() : 1;
  RowPair d[kBlocks], dm[kBlocks];
  V min[kPairs][2];

  LLM_INLINE Factors(const Panel& p, int block) {
    repeat<2>([&](auto r) LLM_LAMBDA {
      constexpr int kRow = r * kRegisterRows;
      repeat<kBlocks>([&](auto b) LLM_LAMBDA {
        d[b].r[r] = load_f(p.d + (block + b) * kPanelRows + kRow);
        if constexpr (t.minimums != Minimums::None) dm[b].r[r] = load_f(p.dm + (block + b) * kPanelRows + kRow);
      });
      if constexpr (kMins)
        repeat<kPairs>([&](auto i) LLM_LAMBDA { min[i][r] = load(p.min + (block * kPairs + i) * kPanelRows + kRow); });
    });
  }
};

/// Adds the block of an item to the outputs of column `c`, whose sums are at `sums`.
template <PanelTraits t>
LLM_INLINE void add_whole_block(const Item& item, const Factors<t>& f, const std::int32_t* sums, int c, RowPair& acc) {
  const ColumnPlace& place = item.group->places[c];
  V msum[2] = {zero(), zero()};
  if constexpr (Factors<t>::kMins) {
    const std::int32_t* pairs = t.minimums == Minimums::Per16
                                    ? reinterpret_cast<const std::int32_t*>(place.act.sums + item.k / 16)
                                    : item.group->sums[c];
    repeat<Factors<t>::kPairs>([&](auto i) LLM_LAMBDA {
      const V pair = splat32(pairs[i]);
      repeat<2>([&](auto r) LLM_LAMBDA { msum[r] = madd16(msum[r], f.min[i][r], pair); });
    });
  }
  const F da = splat_f(place.act.scales[item.k / 256]);
  repeat<2>([&](auto r) LLM_LAMBDA {
    const std::int32_t* at = sums + r * kRegisterRows;
    const V isum = add32(load(at), shl32<TileShape<t>::kShift>(load(at + kGroup * kPanelRows)));
    F y = mul(f.d[0].r[r], to_f(isum));
    if constexpr (Factors<t>::kMins) y = fma(f.dm[0].r[r], to_f(msum[r]), y);
    acc.r[r] = fma(da, y, acc.r[r]);
  });
}

/// The same for block `b` of an item of several.
template <PanelTraits t, int b>
LLM_INLINE void add_block(const Item& item, const Factors<t>& f, const std::int32_t* sums, int c, RowPair& acc) {
  const F da = splat_f(item.group->places[c].act.scales[(item.k + b * TileShape<t>::kStepElems) / 32]);
  repeat<2>([&](auto r) LLM_LAMBDA {
    const std::int32_t* at = sums + b * kGroup * kPanelRows + r * kRegisterRows;
    F y = TileShape<t>::kFloats ? as_f(load(at)) : mul(f.d[b].r[r], to_f(load(at)));
    if constexpr (t.minimums == Minimums::PerBlock)
      y = fma(f.dm[b].r[r], splat_f(reinterpret_cast<const float*>(item.group->sums[c])[item.element / 32 + b]), y);
    acc.r[r] = fma(da, y, acc.r[r]);
  });
}

/// Adds the sums of an item to those so far, which are y in the end. `whole`: all steps are there.
template <PanelTraits t, bool whole>
LLM_INLINE void finish(const Item& item, const std::int32_t* sums) {
  const Factors<t> f(*item.panel, item.element / t.block);
  for (int c = 0; c < item.group->columns; ++c) {
    float* so_far = item.acc + c * kPanelRows;
    RowPair acc = {{zero_f(), zero_f()}};
    if (item.k != 0) acc = {{load_f(so_far), load_f(so_far + kRegisterRows)}};
    if constexpr (TileShape<t>::kWhole) {
      add_whole_block<t>(item, f, sums + c * kPanelRows, c, acc);
    } else {
      repeat<kSteps>([&](auto b) LLM_LAMBDA {
        if (whole || b < item.steps) add_block<t, b>(item, f, sums + c * kPanelRows, c, acc);
      });
    }
    if (!item.last) {
      store_f(so_far, acc.r[0]);
      store_f(so_far + kRegisterRows, acc.r[1]);
    } else {
      float* y = item.group->places[c].y + item.row;
      _mm512_mask_storeu_ps(y, static_cast<__mmask16>(item.present), acc.r[0]);
      _mm512_mask_storeu_ps(y + kRegisterRows, static_cast<__mmask16>(item.present >> kRegisterRows), acc.r[1]);
    }
  }
}

/// Multiplies `next` and finishes `last`; either may be missing (no steps). What a core does of both at once is up to
/// how far it looks ahead: a finer mixture of their instructions was slower (docs/performance.md).
template <PanelTraits t>
[[gnu::noinline]] void run(const Item& next, std::int32_t* next_sums, const Item& last, const std::int32_t* last_sums) {
  repeat<kSteps>([&](auto s) LLM_LAMBDA {
    if (s < next.steps) multiply_step<t, s>(next, next_sums);
  });
  if (last.steps == 0) return;
  if (TileShape<t>::kWhole || last.steps == kSteps)
    finish<t, true>(last, last_sums);
  else
    finish<t, false>(last, last_sums);
}

// --- products ---

/// Weights that are asked for while tiles are multiplied: of the next span, or of the next panels.
struct NextWeights {
  const u8* first = nullptr;  ///< of row 0
  i64 row_bytes = 0, span_bytes = 0;
  int row = 0, rows = 0, at_once = 0;
};

LLM_INLINE void fetch(NextWeights& next) {
  for (int i = 0; i < next.at_once && next.row < next.rows; ++i, ++next.row) {
    const u8* p = next.first + next.row * next.row_bytes;
    for (i64 b = 0; b < next.span_bytes; b += 64) fetch_far(p + b);
    fetch_far(p + next.span_bytes - 1);
  }
}

template <class T>
NextWeights next_weights(const LinearArgs& args, i64 row, i64 panels_rows, i64 row_end, i64 k0, i64 items) {
  const bool same_rows = k0 + kSpan < args.k;
  const i64 first = same_rows ? row : row + panels_rows, rest = row_end - first;
  if (rest <= 0) return {};
  const i64 k = same_rows ? k0 + kSpan : 0, n = args.k - k < kSpan ? args.k - k : kSpan;
  constexpr i64 kElems = i64{T::traits.block} * T::kParts;  // of a block of the file
  const int rows = static_cast<int>(rest < panels_rows ? rest : panels_rows);
  return {.first = weight_row(args, first) + k / kElems * T::kBytes,
          .row_bytes = static_cast<i64>(args.w_row_bytes),
          .span_bytes = n / kElems * T::kBytes,
          .rows = rows,
          .at_once = static_cast<int>((rows + items - 1) / items)};
}

/// Columns [0, n_cols) of the table with the panels' rows over elements [k0, k0 + n).
template <class T>
void multiply_span(const LinearArgs& args, i64 n_cols, i64 row, i64 panels, i64 row_end, i64 k0, i64 n,
                   int tile_columns, TileScratch& s) {
  constexpr PanelTraits t = T::traits;
  using Shape = TileShape<t>;
  const i64 groups = (n_cols + tile_columns - 1) / tile_columns;
  const i64 parts = (n + Shape::kItemElems - 1) / Shape::kItemElems;
  NextWeights next = next_weights<T>(args, row, panels * kPanelRows, row_end, k0, groups * panels * parts);
  Item items[2];  ///< in turns
  int turn = 0;
  for (i64 g = 0; g < groups; ++g) {
    const i64 c0 = g * tile_columns, left = n_cols - c0;
    Group& group = s.groups[g % 2];
    prepare<t>(args, s.places + c0, k0, n, static_cast<int>(left < tile_columns ? left : tile_columns), tile_columns,
               group);
    for (i64 p = 0; p < panels && row + p * kPanelRows < row_end; ++p) {
      const i64 first_row = row + p * kPanelRows, rows = row_end - first_row;
      for (i64 part = 0; part < parts; ++part) {
        const i64 element = part * Shape::kItemElems, steps = (n - element) / Shape::kStepElems;
        const int other = 1 - turn;
        items[turn] = {.group = &group,
                       .panel = &s.panels[p],
                       .row = first_row,
                       .present = rows < kPanelRows ? (1u << rows) - 1 : 0xffffffff,
                       .k = k0 + element,
                       .element = static_cast<int>(element),
                       .steps = static_cast<int>(steps < kSteps ? steps : kSteps),
                       .last = k0 + element + Shape::kItemElems >= args.k,
                       .acc = s.acc[g * panels + p]};
        fetch(next);
        run<t>(items[turn], s.sums[turn], items[other], s.sums[other]);
        turn = other;
      }
    }
  }
  run<t>({}, nullptr, items[1 - turn], s.sums[1 - turn]);
}

/// Below these, unpacking in the order of tiles costs more than they save (docs/performance.md).
template <class T>
constexpr i64 fewest_columns() {
  using Shape = TileShape<T::traits>;
  if (Shape::kFloats) return 33;
  if (!Shape::kWhole) return T::traits.max_abs < 128 ? 12 : 17;
  return !Shape::kPlanes ? 7 : Shape::kNarrow ? 9 : 11;
}

/// The panels' rows over all of k. False: tiles would not give the right bits, and nothing was written.
template <class T>
bool multiply_panels(const LinearArgs& args, i64 n_cols, i64 row, i64 panels, i64 row_end, int tile_columns,
                     TileScratch& s) {
  const u8* rows[kMostPanels * kPanelRows];  // missing rows repeat the last one and are not written
  for (i64 r = 0; r < panels * kPanelRows; ++r) rows[r] = weight_row(args, row + r < row_end ? row + r : row_end - 1);
  for (i64 k0 = 0; k0 < args.k; k0 += kSpan) {
    const i64 n = args.k - k0 < kSpan ? args.k - k0 : kSpan;
    for (int p = 0; p < panels && row + p * kPanelRows < row_end; ++p)
      if (!unpack<T>(rows + p * kPanelRows, k0, n, s.panels[p])) return false;
    multiply_span<T>(args, n_cols, row, panels, row_end, k0, n, tile_columns, s);
  }
  return true;
}

/// T: how the storage type is unpacked; `base`: multiplies the rows that tiles cannot.
template <class T>
void gemm_tiles(const LinearArgs& args, i64 row_begin, i64 row_end, std::byte* scratch, LinearFn base) {
  using Shape = TileShape<T::traits>;
  auto& s = *reinterpret_cast<TileScratch*>(scratch);
  for (i64 c0 = 0; c0 < args.n_cols; c0 += kCallColumns) {
    const i64 n_cols = args.n_cols - c0 < kCallColumns ? args.n_cols - c0 : kCallColumns;
    const i64 groups = (n_cols + kGroup - 1) / kGroup, panels = Shape::panels(n_cols);
    const int tile_columns = static_cast<int>((n_cols + groups - 1) / groups);  // as even as can be
    const auto find_places = [&] {
      for (i64 c = 0; c < n_cols; ++c) s.places[c] = {column(args, c0 + c), output(args, c0 + c)};
    };
    find_places();
    tiles::configure(Shape::config(tile_columns));
    for (i64 row = row_begin; row < row_end; row += panels * kPanelRows) {
      if (multiply_panels<T>(args, n_cols, row, panels, row_end, tile_columns, s) || c0 != 0) continue;
      const i64 end = row + panels * kPanelRows;
      base(args, row, end < row_end ? end : row_end, scratch);
      find_places();  // the scratch was used
    }
    tiles::release();
  }
}

}  // namespace llm::cpu::LLM_ISA::quant
