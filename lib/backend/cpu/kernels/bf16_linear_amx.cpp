// Products of BF16 weights with BF16 activations by tiles (amx_tiles.h), for the set amx alone. However many columns
// and rows are multiplied together, a sum over k is, from s = 0 on and in blocks of 32 elements, ascending:
//   even, odd = 16 fused multiply-adds each, from 0, of a block's elements 2i and 2i + 1, ascending
//   s = s + (even + odd)
// each rounded to nearest even, subnormal operands and results as zero: what TDPBF16PS does (Intel's Software
// Developer's Manual, volume 2).
//
// Weights are the first operand, which has the order of the file. Up to two groups of 16 columns are multiplied with
// them as they lie there, if they fill their tiles: 32 rows are read side by side, each at ascending addresses. For
// more columns stretches of weights are copied first, since a file's rows are not aligned and their distance puts all
// of them into one set of the first cache; while a stretch is multiplied, the next one is asked for. Activations are
// the second operand, brought into its order when they are rounded.
#include "backend/cpu/kernels/amx_tiles.h"
#include "backend/cpu/kernels/float_linear.h"
#include "backend/cpu/kernels/quant_columns.h"
#include "backend/cpu/kernels/quant_vec.h"
#include "backend/cpu/kernels/vec.h"
#include "base/half.h"

namespace llm::cpu::LLM_ISA {
namespace bf16_tiles {

using i64 = std::int64_t;
using u8 = std::uint8_t;

inline constexpr i64 kBlock = 32;  ///< elements of k in a tile
inline constexpr i64 kGroup = 16;  ///< rows of weights in a tile, and columns
inline constexpr i64 kLine = 64, kTileBytes = kGroup * kLine;
inline constexpr i64 kSpan = 256, kFewSpan = 2048;  ///< elements of k of a stretch, with many columns and with few
inline constexpr i64 kStretchRows = 2 * kGroup;     ///< of weights, multiplied with two groups of columns at a time
inline constexpr i64 kFewGroups = 2;                ///< of columns, up to which weights are not copied
inline constexpr i64 kCallColumns = 512;            ///< columns whose sums are kept at a time
inline constexpr i64 kRows = 256;                   ///< rows of weights whose sums with them are
inline constexpr i64 kGatherColumns = 256;          ///< columns that are gathered at a time

/// Weights [row][32], activations [k / 2][column][2] or sums [row][column].
struct alignas(kLine) Tile {
  u8 bytes[kTileBytes];
};
struct Scratch {
  Tile weights[kFewSpan / kBlock][2];
  Tile columns[kGatherColumns / kGroup * kSpan / kBlock];
  Tile sums[kCallColumns / kGroup][kRows / kGroup];
};
static_assert(sizeof(Scratch) <= kScratchBytes && kFewGroups * kFewSpan <= kGatherColumns / kGroup * kSpan);

LLM_INLINE i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
LLM_INLINE i64 blocks_of(i64 n) { return (n + kBlock - 1) / kBlock; }

/// Where the group of 16 activation rows that `row` is in begins: its tiles, ascending in k, in 16 row_bytes.
LLM_INLINE std::size_t group_offset(const ActLayout& layout, i64 row) {
  return static_cast<std::size_t>(row / kGroup * kGroup) * layout.row_bytes;
}
LLM_INLINE const Tile* group_of(const LinearArgs& args, i64 row) {
  return reinterpret_cast<const Tile*>(args.act + group_offset(*args.layout, row));
}

/// Elements [k0, k0 + n) of the columns from c0 on, at most 16, of any rows of the activations.
LLM_INLINE void gather(const LinearArgs& args, i64 c0, i64 k0, i64 n, Tile* to) {
  const i64 columns = smaller(args.n_cols - c0, kGroup), pairs = blocks_of(n) * kBlock / 2;
  for (i64 c = 0; c < columns; ++c) {
    const i64 row = args.act_rows[c0 + c];
    const u8* from = group_of(args, row)[k0 / kBlock].bytes + row % kGroup * 4;
    u8* out = to->bytes + c * 4;
    for (i64 pair = 0; pair < pairs; ++pair) __builtin_memcpy(out + pair * kLine, from + pair * kLine, 4);
  }
}

/// Rows [row, row + rows) of the weights, at most 32, over elements [k0, k0 + n).
struct Stretch {
  i64 row = 0, rows = 0, k0 = 0, n = 0;
};

/// Where the tiles of a stretch are: of the rows from 16 h on and of block b at first + h * half + b * block.
struct Weights {
  const u8* first;
  i64 half, block, row_bytes;
};

LLM_INLINE Weights in_file(const LinearArgs& args, const Stretch& s) {
  const i64 row_bytes = static_cast<i64>(args.w_row_bytes);
  return {weight_row(args, s.row) + s.k0 * 2, kGroup * row_bytes, kLine, row_bytes};
}

/// Missing rows repeat the last one; the last block is filled up with zeros.
[[gnu::noinline]] inline Weights copy(const LinearArgs& args, const Stretch& s, Tile (*to)[2]) {
  const i64 whole = s.n / kBlock;
  const auto rest = static_cast<__mmask32>((1u << (s.n - whole * kBlock)) - 1);
  for (i64 r = 0; r < kStretchRows; ++r) {
    const u8* from = weight_row(args, s.row + smaller(r, s.rows - 1)) + s.k0 * 2;
    u8* line = to[0][r / kGroup].bytes + r % kGroup * kLine;
    for (i64 b = 0; b < whole; ++b, line += 2 * kTileBytes)
      _mm512_store_si512(line, _mm512_loadu_si512(from + b * kLine));
    if (rest != 0) _mm512_store_si512(line, _mm512_maskz_loadu_epi16(rest, from + whole * kLine));
  }
  return {to[0][0].bytes, kTileBytes, 2 * kTileBytes, kLine};
}

/// Weights that are asked for while others are multiplied: with each block, that of each of these rows.
struct Ahead {
  const u8* first = nullptr;
  i64 rows = 0, row_bytes = 0;
};

/// Adds the products of a stretch with `groups` groups of columns, whose tiles are at x, to their sums.
template <int groups>
[[gnu::noinline]] void multiply(const Weights& weights, i64 blocks, bool first, const Tile* const* x, Tile* const* sums,
                                Ahead ahead) {
  quant::repeat<groups>([&](auto g) LLM_LAMBDA {
    quant::repeat<2>([&](auto h) LLM_LAMBDA {
      if (first)
        tiles::zero<2 * g + h>();
      else
        tiles::load<2 * g + h>(sums[g] + h, kLine);
    });
  });
  const u8 *low = weights.first, *high = low + weights.half;
  const i64 step = weights.block, row_bytes = weights.row_bytes;
  const Tile *x0 = x[0], *x1 = x[groups - 1];
  for (i64 b = 0; b < blocks; ++b) {
    for (i64 r = 0; r < ahead.rows; ++r) quant::fetch_far(ahead.first + r * ahead.row_bytes + b * kLine);
    tiles::load<6>(low + b * step, row_bytes);
    tiles::load<4>(x0 + b, kLine);
    tiles::dot_bf16<0, 6, 4>();
    tiles::load<7>(high + b * step, row_bytes);
    tiles::dot_bf16<1, 7, 4>();
    if constexpr (groups == 2) {
      tiles::load<5>(x1 + b, kLine);
      tiles::dot_bf16<2, 6, 5>();
      tiles::dot_bf16<3, 7, 5>();
    }
  }
  quant::repeat<groups>([&](auto g) LLM_LAMBDA {
    quant::repeat<2>([&](auto h) LLM_LAMBDA { tiles::store<2 * g + h>(sums[g] + h, kLine); });
  });
}

/// In place: element [i][j] to [j][i].
LLM_INLINE void transpose(__m512 (&m)[16]) {
  const auto wide = [](__m512 a) { return _mm512_castps_pd(a); };
  __m512 t[16];
  quant::repeat<8>([&](auto i) LLM_LAMBDA {
    t[2 * i] = _mm512_unpacklo_ps(m[2 * i], m[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(m[2 * i], m[2 * i + 1]);
  });
  quant::repeat<8>([&](auto n) LLM_LAMBDA {  // m[i + j] has the columns j, 4 + j, 8 + j, 12 + j of rows i ... i + 3
    constexpr int i = n / 2 * 4, j = n % 2;
    m[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(wide(t[i + j]), wide(t[i + 2 + j])));
    m[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(wide(t[i + j]), wide(t[i + 2 + j])));
  });
  quant::repeat<4>([&](auto j) LLM_LAMBDA {
    const __m512 a = _mm512_shuffle_f32x4(m[j], m[4 + j], 0x88), b = _mm512_shuffle_f32x4(m[8 + j], m[12 + j], 0x88);
    const __m512 c = _mm512_shuffle_f32x4(m[j], m[4 + j], 0xdd), d = _mm512_shuffle_f32x4(m[8 + j], m[12 + j], 0xdd);
    m[j] = _mm512_shuffle_f32x4(a, b, 0x88);
    m[4 + j] = _mm512_shuffle_f32x4(c, d, 0x88);
    m[8 + j] = _mm512_shuffle_f32x4(a, b, 0xdd);
    m[12 + j] = _mm512_shuffle_f32x4(c, d, 0xdd);
  });
}

/// The sums of rows [row, row + rows), at most 16, and of the columns from c0 on.
[[gnu::noinline]] inline void put(const LinearArgs& args, const Tile& sums, i64 row, i64 rows, i64 c0) {
  __m512 m[16];
  quant::repeat<16>([&](auto i) LLM_LAMBDA { m[i] = _mm512_load_ps(sums.bytes + i * kLine); });
  transpose(m);
  const auto present = static_cast<__mmask16>(rows < kGroup ? (1u << rows) - 1 : 0xffff);
  const i64 columns = smaller(args.n_cols - c0, kGroup);
  for (i64 c = 0; c < columns; ++c) _mm512_mask_storeu_ps(output(args, c0 + c) + row, present, m[c]);
}

/// Columns [c0, c0 + 16 groups), as far as there are, of which the sums fit into the scratch.
class Product {
 public:
  Product(const LinearArgs& args, i64 c0, i64 n_cols, Scratch& s)
      : args_(args), s_(s), c0_(c0), groups_((n_cols + kGroup - 1) / kGroup), span_(few() ? kFewSpan : kSpan) {}

  void run(i64 row_begin, i64 row_end) {
    // Few columns are done with rows before the next ones are read, unless they would be gathered again each time.
    const i64 rows = few() && args_.act_rows == nullptr ? kStretchRows : kRows;
    for (i64 row = row_begin; row < row_end; row += rows) {
      row_begin_ = row;
      row_end_ = smaller(row + rows, row_end);
      for (i64 k0 = 0; k0 < args_.k; k0 += span_) {
        if (args_.act_rows != nullptr) gather_columns(k0);
        for (i64 r = row; r < row_end_; r += kStretchRows) multiply_stretch(stretch(r, k0));
      }
      for (i64 g = 0; g < groups_; ++g)
        for (i64 r = row; r < row_end_; r += kGroup)
          put(args_, *sums(g, r), r, smaller(row_end_ - r, kGroup), c0_ + g * kGroup);
    }
  }

 private:
  bool few() const { return groups_ <= kFewGroups; }
  Stretch stretch(i64 row, i64 k0) const {
    return {row, smaller(row_end_ - row, kStretchRows), k0, smaller(args_.k - k0, span_)};
  }
  Stretch after(const Stretch& s) const {
    if (s.row + kStretchRows < row_end_) return stretch(s.row + kStretchRows, s.k0);
    return s.k0 + span_ < args_.k ? stretch(row_begin_, s.k0 + span_) : Stretch{};
  }
  Tile* gathered(i64 g) const { return s_.columns + g * (span_ / kBlock); }
  void gather_columns(i64 k0) {
    for (i64 g = 0; g < groups_; ++g) gather(args_, c0_ + g * kGroup, k0, smaller(args_.k - k0, span_), gathered(g));
  }
  const Tile* columns(i64 g, i64 k0) const {
    return args_.act_rows != nullptr ? gathered(g) : group_of(args_, c0_ + g * kGroup) + k0 / kBlock;
  }
  Tile* sums(i64 g, i64 row) const { return &s_.sums[g][(row - row_begin_) / kGroup]; }

  /// What is asked for while the pair of groups from g on is multiplied: its share of the rows.
  Ahead ahead(const Stretch& next, i64 g) const {
    const i64 pairs = (groups_ + 1) / 2, share = (kStretchRows + pairs - 1) / pairs, row = g / 2 * share;
    if (row >= next.rows) return {};
    const Weights w = in_file(args_, next);
    return {w.first + row * w.row_bytes, smaller(share, next.rows - row), w.row_bytes};
  }

  void multiply_stretch(const Stretch& s) {
    const bool whole = s.rows == kStretchRows && s.n % kBlock == 0;
    const Weights w = few() && whole ? in_file(args_, s) : copy(args_, s, s_.weights);
    const Stretch next = few() ? Stretch{} : after(s);
    for (i64 g = 0; g < groups_; g += 2) {
      const i64 second = g + 1 < groups_ ? g + 1 : g;
      const Tile* x[] = {columns(g, s.k0), columns(second, s.k0)};
      Tile* to[] = {sums(g, s.row), sums(second, s.row)};
      const auto product = second == g ? multiply<1> : multiply<2>;
      product(w, blocks_of(s.n), s.k0 == 0, x, to, ahead(next, g));
    }
  }

  const LinearArgs& args_;
  Scratch& s_;
  i64 c0_, groups_, span_;
  i64 row_begin_ = 0, row_end_ = 0;
};

inline tiles::Config config() {
  tiles::Config c;
  for (int tile = 0; tile < tiles::kTiles; ++tile) {
    c.rows[tile] = kGroup;
    c.row_bytes[tile] = kLine;
  }
  return c;
}

}  // namespace bf16_tiles

void round_rows_bf16(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout, std::int64_t row_begin,
                     std::int64_t row_end) {
  using namespace bf16_tiles;
  for (i64 row = row_begin; row < row_end; ++row) {
    const float* from = x + row * ldx;
    std::byte* to = act + group_offset(layout, row) + row % kGroup * 4;
    for (i64 k = 0; k < blocks_of(layout.k) * kBlock; k += 16) {
      const i64 n = layout.k - k < 0 ? 0 : smaller(layout.k - k, 16);
      alignas(32) BFloat16 rounded[16];
      store(rounded, load_first(from + k, static_cast<int>(n)));
      for (int i = 0; i < 8; ++i) __builtin_memcpy(to + (k / 2 + i) * kLine, rounded + 2 * i, 4);
    }
  }
}

void linear_bf16(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {
  using namespace bf16_tiles;
  const i64 most = args.act_rows != nullptr ? kGatherColumns : kCallColumns;
  tiles::configure(config());
  for (i64 c = 0; c < args.n_cols; c += most)
    Product(args, c, smaller(args.n_cols - c, most), *reinterpret_cast<Scratch*>(scratch)).run(row_begin, row_end);
  tiles::release();
}

}  // namespace llm::cpu::LLM_ISA
