#include "backend/cpu/kernels/recurrent.h"

#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA {

namespace {

constexpr int kLanes = 16;

using Taps = float[kMaxConvWidth][kLanes];
/// Of kLanes channels with four each, which is what most models have.
void load_four_taps(const float* w, Taps& taps) {
  F32x16 even[2], odd[2], tap[4];
  for (int half = 0; half < 2; ++half)
    deinterleave(load(w + 2 * half * kLanes), load(w + (2 * half + 1) * kLanes), even[half], odd[half]);
  deinterleave(even[0], even[1], tap[0], tap[2]);
  deinterleave(odd[0], odd[1], tap[1], tap[3]);
  for (int t = 0; t < 4; ++t) store(taps[t], tap[t]);
}
void load_taps(const ShortConvArgs& a, std::int64_t channel, int n, Taps& taps) {
  const float* const w = a.w + channel * a.width;
  if (a.width == 4 && n == kLanes) return load_four_taps(w, taps);
  for (int i = 0; i < n; ++i) {
    for (int t = 0; t < static_cast<int>(a.width); ++t) taps[t][i] = w[i * a.width + t];
  }
}

/// `n` channels from `channel` on, at most kLanes.
void convolve(const ShortConvArgs& a, std::int64_t channel, int n) {
  alignas(64) Taps taps = {};
  load_taps(a, channel, n, taps);
  F32x16 rows[kMaxConvWidth];  // the last ones, the newest at the end
  const int width = static_cast<int>(a.width), dilation = static_cast<int>(a.dilation);
  const int kept = static_cast<int>(a.kept());
  for (int t = 0; t < kept; ++t)
    rows[t + 1] = a.from == nullptr ? zero() : load_first(a.from + t * a.channels + channel, n);
  const F32x16 bias = a.bias == nullptr ? zero() : load_first(a.bias + channel, n);
  for (std::int64_t token = 0; token < a.tokens; ++token) {
    const std::int64_t at = token * a.channels + channel;
    for (int t = 0; t < kept; ++t) rows[t] = rows[t + 1];
    rows[kept] = load_first(a.x + at, n);
    F32x16 sum = rows[0] * load(taps[0]);
    for (int t = 1; t < width; ++t) sum = fma(rows[t * dilation], load(taps[t]), sum);
    if (a.bias != nullptr) sum = sum + bias;
    store_first(a.y + at, n, a.silu ? sum * sigmoid(sum) : sum);
  }
  for (int t = 0; t < kept; ++t) store_first(a.to + t * a.channels + channel, n, rows[t + 1]);
}

/// What a part of a state holds of kLanes elements.
struct SoftMeans {
  F32x16 greatest = zero(), weights = zero(), sum = zero();
  void load_from(const float* state, std::int64_t n, int lanes) {
    greatest = load_first(state, lanes);
    weights = load_first(state + n, lanes);
    sum = load_first(state + 2 * n, lanes);
  }
  void store_to(float* state, std::int64_t n, int lanes) const {
    store_first(state, lanes, greatest);
    store_first(state + n, lanes, weights);
    store_first(state + 2 * n, lanes, sum);
  }
  /// All elements of a state have weights, or none has.
  void add(F32x16 score, F32x16 x, bool first) {
    const F32x16 raised = first ? score : max(greatest, score);
    const F32x16 shrink = first ? zero() : exp(greatest - raised), weight = exp(score - raised);
    greatest = raised;
    weights = fma(weights, shrink, weight);
    sum = fma(sum, shrink, weight * x);
  }
};

/// `lanes` elements from `element` on, at most kLanes.
void compress_elements(const CompressArgs& a, std::int64_t element, int lanes) {
  constexpr int kMostParts = 2;
  SoftMeans part[kMostParts];
  const int parts = static_cast<int>(a.parts);
  for (int p = 0; p < parts && a.from != nullptr; ++p) part[p].load_from(a.from + p * 3 * a.n + element, a.n, lanes);
  const std::int64_t width = a.parts * a.n;
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const std::int64_t position = a.positions[t], place = position % a.stride;
    for (int p = 0; p < parts; ++p) {
      const std::int64_t at = (parts - 1 - p) * a.n + element;
      // A row's own part goes on from the one before, of which there is none in the first row.
      const bool first = place == 0 && (p == parts - 1 || position == 0);
      const F32x16 score = load_first(a.scores + t * width + at, lanes);
      part[p].add(score + load_first(a.places + place * width + at, lanes), load_first(a.x + t * width + at, lanes),
                  first);
    }
    const bool last = place == a.stride - 1;
    store_first(a.y + t * a.n + element, lanes, last ? part[0].sum / part[0].weights : zero());
    if (!last) continue;
    part[0] = parts > 1 ? part[1] : SoftMeans();
    part[1] = SoftMeans();
  }
  for (int p = 0; p < parts; ++p) part[p].store_to(a.to + p * 3 * a.n + element, a.n, lanes);
}

constexpr int kVectors = kDeltaColumns / kLanes;
/// A row of the tile that a task works on: the columns of one element of k.
using Row = F32x16[kVectors];
constexpr int kSums = 4;

/// Columns that lie behind the last one are zero, in the tile and in what is read.
struct Columns {
  int n[kVectors];
  Columns(std::int64_t dv, std::int64_t begin) {
    for (int c = 0; c < kVectors; ++c) {
      const std::int64_t left = dv - begin - c * kLanes;
      n[c] = static_cast<int>(left < 0 ? 0 : left > kLanes ? kLanes : left);
    }
  }
  void load_row(const float* from, Row& row) const {
    for (int c = 0; c < kVectors; ++c) row[c] = n[c] > 0 ? load_first(from + c * kLanes, n[c]) : zero();
  }
  void store_row(float* to, const Row& row) const {
    for (int c = 0; c < kVectors; ++c) {
      if (n[c] > 0) store_first(to + c * kLanes, n[c], row[c]);
    }
  }
};

/// One sum of every fourth row for each column, until they are added.
struct Sums {
  F32x16 of[kSums][kVectors];
  Sums() {
    unroll<kSums>([&](auto s) { unroll<kVectors>([&](auto c) { of[s.value][c.value] = zero(); }); });
  }
  void total(Row& y) const {
    unroll<kVectors>(
        [&](auto c) { y[c.value] = (of[0][c.value] + of[1][c.value]) + (of[2][c.value] + of[3][c.value]); });
  }
};

/// Of rows, from a multiple of kSums on, or of columns.
struct Range {
  std::int64_t begin, end;
};
/// f(row, index of its sum)
template <class F>
[[gnu::always_inline]] inline void each_row(Range r, const F& f) {
  std::int64_t i = r.begin;
  for (; i + kSums <= r.end; i += kSums) unroll<kSums>([&](auto s) { f(i + s.value, s); });
  if (i < r.end) f(i, Index<0>{});
  if (i + 1 < r.end) f(i + 1, Index<1>{});
  if (i + 2 < r.end) f(i + 2, Index<2>{});
}

/// The columns of a state [rows][width], zeros where there is none.
void load_tile(const float* from, std::int64_t rows, std::int64_t width, const Columns& columns, float* tile) {
  for (std::int64_t i = 0; i < rows; ++i) {
    Row row;
    unroll<kVectors>([&](auto c) { row[c.value] = zero(); });
    if (from != nullptr) columns.load_row(from + i * width, row);
    unroll<kVectors>([&](auto c) { store(tile + i * kDeltaColumns + c.value * kLanes, row[c.value]); });
  }
}
void store_tile(const float* tile, std::int64_t rows, std::int64_t width, const Columns& columns, float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    Row row;
    unroll<kVectors>([&](auto c) { row[c.value] = load(tile + i * kDeltaColumns + c.value * kLanes); });
    columns.store_row(to + i * width, row);
  }
}
const float* at_column(const float* state, std::int64_t begin) { return state == nullptr ? nullptr : state + begin; }

/// Of all rows of a state, or of each its own.
struct OneDecay {
  F32x16 all;
  F32x16 key(const float* k, std::int64_t i) const { return set1(k[i]); }
  F32x16 row(std::int64_t, int) const { return all; }
  F32x16 seen(F32x16 sum) const { return all * sum; }
};
struct RowDecays {
  const float* of;
  F32x16 key(const float* k, std::int64_t i) const { return set1(k[i] * of[i]); }
  F32x16 row(std::int64_t i, int) const { return set1(of[i]); }
  F32x16 seen(F32x16 sum) const { return sum; }
};
/// Of each element: exp(a * step), with a tile of a.
struct ElementDecays {
  const float* a;
  const Row& step;
  F32x16 row(std::int64_t i, int c) const { return exp(load(a + i * kDeltaColumns + c * kLanes) * step[c]); }
};

/// Rows of a tile as they are and as they become, which may be the same, `width` apart.
struct TileRows {
  const float* from;
  float* to;
  std::int64_t width = kDeltaColumns;
  void ahead(std::int64_t) const {}
};
/// In a state as it lies in memory, from which the rows that come next are asked for.
constexpr std::int64_t kBlockRows = 16;
struct StateRows {
  const float* from;
  float* to;
  std::int64_t width;
  void ahead(std::int64_t at) const { prefetch(from + kBlockRows * width + at); }
};
/// Adds the rows' part of S^T k, but for what Decay::seen() makes of it.
template <class Rows, class Decay>
void read_rows(const Rows& rows, Range range, const float* k, const Decay& decay, Sums& sums) {
  each_row(range, [&](std::int64_t i, auto s) {
    const F32x16 factor = decay.key(k, i);
    unroll<kVectors>([&](auto c) {
      F32x16& sum = sums.of[s.value][c.value];
      const std::int64_t at = i * rows.width + c.value * kLanes;
      rows.ahead(at);
      sum = fma(load(rows.from + at), factor, sum);
    });
  });
}
/// S = decay S + k d^T, and adds the rows' part of S^T q
template <class Rows, class Decay>
void write_rows(const Rows& rows, Range range, const float* k, const float* q, const Decay& decay, const Row& d,
                Sums& sums) {
  each_row(range, [&](std::int64_t i, auto s) {
    const F32x16 key = set1(k[i]), query = set1(q[i]);
    unroll<kVectors>([&](auto c) {
      const std::int64_t at = i * rows.width + c.value * kLanes;
      rows.ahead(at);
      const F32x16 state = fma(key, d[c.value], load(rows.from + at) * decay.row(i, c.value));
      store(rows.to + at, state);
      F32x16& sum = sums.of[s.value][c.value];
      sum = fma(state, query, sum);
    });
  });
}

/// Whole tiles side by side in a state as it lies in memory, for one token: a tile's rows would be read in strides, and
/// memory wants them in the order of its addresses. So the rows are taken in blocks, of each one tile after another.
constexpr int kMostTiles = 4;
class TilesInState {
 public:
  TilesInState(const float* from, float* to, Range columns, std::int64_t rows, std::int64_t width)
      : from_(from + columns.begin),
        to_(to + columns.begin),
        rows_(rows),
        width_(width),
        tiles_(static_cast<int>((columns.end - columns.begin) / kDeltaColumns)) {}

  int tiles() const { return tiles_; }
  /// f(tile, its rows, which of them)
  template <class F>
  void each_block(const F& f) const {
    for (std::int64_t first = 0; first < rows_; first += kBlockRows) {
      const Range block{first, first + kBlockRows < rows_ ? first + kBlockRows : rows_};
      for (int t = 0; t < tiles_; ++t) {
        const std::int64_t at = t * kDeltaColumns;
        f(t, StateRows{from_ + at, to_ + at, width_}, block);
      }
    }
  }

 private:
  const float* from_;
  float* to_;
  std::int64_t rows_, width_;
  int tiles_;
};

template <class Decay>
void new_value(const Row& v, F32x16 rate, const Decay& decay, const Row& seen, Row& d) {
  unroll<kVectors>([&](auto c) { d[c.value] = rate * (v[c.value] - decay.seen(seen[c.value])); });
}

template <class Decay>
void delta_token(const GatedDeltaArgs& a, std::int64_t t, const Columns& columns, std::int64_t begin, float* tile,
                 const Decay& decay) {
  const float* const k = a.k + t * a.ld_key;
  const TileRows rows{tile, tile};
  Row v, seen, d, y;
  columns.load_row(a.v + t * a.ld_v + begin, v);
  Sums read, written;
  read_rows(rows, {0, a.dk}, k, decay, read);
  read.total(seen);
  new_value(v, set1(a.gates[t * a.ld_gates + 1]), decay, seen, d);
  write_rows(rows, {0, a.dk}, k, a.q + t * a.ld_key, decay, d, written);
  written.total(y);
  columns.store_row(a.y + t * a.ld_y + begin, y);
}

void delta_tile(const GatedDeltaArgs& a, std::int64_t begin, std::byte* scratch) {
  float* const tile = reinterpret_cast<float*>(scratch);  // stays in the first cache while the tokens pass
  const Columns columns(a.dv, begin);
  load_tile(at_column(a.from, begin), a.dk, a.dv, columns, tile);
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    if (a.decays != nullptr)
      delta_token(a, t, columns, begin, tile, RowDecays{a.decays + t * a.ld_gates});
    else
      delta_token(a, t, columns, begin, tile, OneDecay{set1(a.gates[t * a.ld_gates])});
  }
  store_tile(tile, a.dk, a.dv, columns, a.to + begin);
}

template <class Decay>
void delta_in_state(const GatedDeltaArgs& a, Range of, const Decay& decay) {
  const TilesInState state(a.from, a.to, of, a.dk, a.dv);
  Sums read[kMostTiles], written[kMostTiles];
  Row d[kMostTiles];
  state.each_block([&](int t, const StateRows& rows, Range r) { read_rows(rows, r, a.k, decay, read[t]); });
  for (int t = 0; t < state.tiles(); ++t) {
    Row v, seen;
    unroll<kVectors>([&](auto c) { v[c.value] = load(a.v + of.begin + t * kDeltaColumns + c.value * kLanes); });
    read[t].total(seen);
    new_value(v, set1(a.gates[1]), decay, seen, d[t]);
  }
  state.each_block(
      [&](int t, const StateRows& rows, Range r) { write_rows(rows, r, a.k, a.q, decay, d[t], written[t]); });
  for (int t = 0; t < state.tiles(); ++t) {
    Row y;
    written[t].total(y);
    unroll<kVectors>([&](auto c) { store(a.y + of.begin + t * kDeltaColumns + c.value * kLanes, y[c.value]); });
  }
}

/// Each element of x with a step of its own.
void scan_elements(const SelectiveScanArgs& a, std::int64_t begin, float* tile) {
  const Columns columns(a.p, begin);
  float* const decays = tile + a.n * kDeltaColumns;  // a, as the tile lies
  for (std::int64_t i = 0; i < a.n; ++i) {
    for (std::int64_t j = 0; j < kDeltaColumns; ++j)
      decays[i * kDeltaColumns + j] = begin + j < a.p ? a.a[(begin + j) * a.n + i] : 0;
  }
  Row skip;
  columns.load_row(a.skips + begin, skip);
  load_tile(at_column(a.from, begin), a.n, a.p, columns, tile);
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const float *const b = a.b + t * a.ld_in, *const c_row = a.c + t * a.ld_in;
    Row step, x, d, y;
    columns.load_row(a.gates + t * a.ld_gates + begin, step);
    columns.load_row(a.x + t * a.ld_in + begin, x);
    unroll<kVectors>([&](auto c) { d[c.value] = step[c.value] * x[c.value]; });
    Sums sums;
    write_rows(TileRows{tile, tile}, {0, a.n}, b, c_row, ElementDecays{decays, step}, d, sums);
    sums.total(y);
    unroll<kVectors>([&](auto c) { y[c.value] = fma(skip[c.value], x[c.value], y[c.value]); });
    columns.store_row(a.y + t * a.ld_y + begin, y);
  }
  store_tile(tile, a.n, a.p, columns, a.to + begin);
}

void scan_tile(const SelectiveScanArgs& a, std::int64_t begin, float* tile) {
  const Columns columns(a.p, begin);
  const F32x16 skip = set1(*a.skips);
  load_tile(at_column(a.from, begin), a.n, a.p, columns, tile);
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const float* const gates = a.gates + t * a.ld_gates;
    const F32x16 step = set1(gates[1]);
    const float *const b = a.b + t * a.ld_in, *const c_row = a.c + t * a.ld_in;
    Row x, d, y;
    columns.load_row(a.x + t * a.ld_in + begin, x);
    unroll<kVectors>([&](auto c) { d[c.value] = step * x[c.value]; });
    Sums sums;
    write_rows(TileRows{tile, tile}, {0, a.n}, b, c_row, OneDecay{set1(gates[0])}, d, sums);
    sums.total(y);
    unroll<kVectors>([&](auto c) { y[c.value] = fma(skip, x[c.value], y[c.value]); });
    columns.store_row(a.y + t * a.ld_y + begin, y);
  }
  store_tile(tile, a.n, a.p, columns, a.to + begin);
}

void scan_in_state(const SelectiveScanArgs& a, Range of) {
  const TilesInState state(a.from, a.to, of, a.n, a.p);
  const OneDecay decay{set1(a.gates[0])};
  const F32x16 step = set1(a.gates[1]), skip = set1(*a.skips);
  Sums sums[kMostTiles];
  Row x[kMostTiles], d[kMostTiles];
  for (int t = 0; t < state.tiles(); ++t) {
    unroll<kVectors>([&](auto c) {
      x[t][c.value] = load(a.x + of.begin + t * kDeltaColumns + c.value * kLanes);
      d[t][c.value] = step * x[t][c.value];
    });
  }
  state.each_block([&](int t, const StateRows& rows, Range r) { write_rows(rows, r, a.b, a.c, decay, d[t], sums[t]); });
  for (int t = 0; t < state.tiles(); ++t) {
    Row y;
    sums[t].total(y);
    unroll<kVectors>([&](auto c) {
      store(a.y + of.begin + t * kDeltaColumns + c.value * kLanes, fma(skip, x[t][c.value], y[c.value]));
    });
  }
}

enum class WkvKind { First, Linear, Removing };
/// What one token has for each row of the state.
struct WkvRow {
  const float *r, *k, *decays, *first, *removed, *added;
  WkvRow(const WkvArgs& a, std::int64_t t)
      : r(a.r + t * a.ld_r),
        k(a.k + t * a.ld_k),
        decays(a.decays + t * a.ld_made),
        first(at_column(a.first, t * a.ld_made)),
        removed(at_column(a.removed, t * a.ld_made)),
        added(at_column(a.added, t * a.ld_made)) {}
};
/// The rows as they become, and their part of y.
template <WkvKind kind, class Rows>
void wkv_rows(const Rows& rows, Range range, const WkvRow& of, const Row& v, const Row& seen, Sums& sums) {
  each_row(range, [&](std::int64_t i, auto s) {
    const F32x16 key = set1(of.k[i]), query = set1(of.r[i]), decay = set1(of.decays[i]);
    F32x16 other = zero();
    if constexpr (kind == WkvKind::First) other = set1(of.first[i]);
    if constexpr (kind == WkvKind::Removing) other = set1(of.added[i]);
    unroll<kVectors>([&](auto c) {
      const std::int64_t at = i * rows.width + c.value * kLanes;
      rows.ahead(at);
      const F32x16 before = load(rows.from + at);
      F32x16 state = before * decay;
      if constexpr (kind == WkvKind::Removing) state = fma(other, seen[c.value], state);
      state = fma(key, v[c.value], state);
      store(rows.to + at, state);
      F32x16& sum = sums.of[s.value][c.value];
      sum = fma(kind == WkvKind::First ? fma(other, v[c.value], before) : state, query, sum);
    });
  });
}
void removed_total(const Sums& read, Row& seen) {
  read.total(seen);
  unroll<kVectors>([&](auto c) { seen[c.value] = zero() - seen[c.value]; });
}

template <WkvKind kind>
void wkv_tile(const WkvArgs& a, std::int64_t begin, float* tile) {
  const Columns columns(a.n, begin);
  load_tile(at_column(a.from, begin), a.n, a.n, columns, tile);
  const TileRows rows{tile, tile};
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const WkvRow of(a, t);
    Row v, seen, y;
    columns.load_row(a.v + t * a.ld_v + begin, v);
    if constexpr (kind == WkvKind::Removing) {
      Sums read;
      read_rows(rows, {0, a.n}, of.removed, OneDecay{zero()}, read);
      removed_total(read, seen);
    }
    Sums sums;
    wkv_rows<kind>(rows, {0, a.n}, of, v, seen, sums);
    sums.total(y);
    unroll<kVectors>([&](auto c) { y[c.value] = y[c.value] * set1(a.scale); });
    columns.store_row(a.y + t * a.ld_y + begin, y);
  }
  store_tile(tile, a.n, a.n, columns, a.to + begin);
}

template <WkvKind kind>
void wkv_in_state(const WkvArgs& a, Range columns) {
  const TilesInState state(a.from, a.to, columns, a.n, a.n);
  const WkvRow of(a, 0);
  Sums read[kMostTiles], sums[kMostTiles];
  Row v[kMostTiles], seen[kMostTiles];
  if constexpr (kind == WkvKind::Removing)
    state.each_block(
        [&](int t, const StateRows& rows, Range r) { read_rows(rows, r, of.removed, OneDecay{zero()}, read[t]); });
  for (int t = 0; t < state.tiles(); ++t) {
    unroll<kVectors>([&](auto c) { v[t][c.value] = load(a.v + columns.begin + t * kDeltaColumns + c.value * kLanes); });
    if constexpr (kind == WkvKind::Removing) removed_total(read[t], seen[t]);
  }
  state.each_block([&](int t, const StateRows& rows, Range r) { wkv_rows<kind>(rows, r, of, v[t], seen[t], sums[t]); });
  for (int t = 0; t < state.tiles(); ++t) {
    Row y;
    sums[t].total(y);
    unroll<kVectors>(
        [&](auto c) { store(a.y + columns.begin + t * kDeltaColumns + c.value * kLanes, y[c.value] * set1(a.scale)); });
  }
}

/// Of one token whose state there is, and of whole tiles.
bool is_in_state(std::int64_t tokens, const float* from, Range columns) {
  return tokens == 1 && from != nullptr && (columns.end - columns.begin) % kDeltaColumns == 0;
}
/// f(columns of at most so many)
template <class F>
void each_part(Range columns, std::int64_t most, const F& f) {
  for (std::int64_t c = columns.begin; c < columns.end; c += most)
    f(Range{c, c + most < columns.end ? c + most : columns.end});
}

template <WkvKind kind>
void wkv_columns(const WkvArgs& a, Range columns, float* tile) {
  if (!is_in_state(a.tokens, a.from, columns))
    return each_part(columns, kDeltaColumns, [&](Range c) { wkv_tile<kind>(a, c.begin, tile); });
  each_part(columns, kMostTiles * kDeltaColumns, [&](Range c) { wkv_in_state<kind>(a, c); });
}

}  // namespace

void short_conv(const ShortConvArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; c += kLanes)
    convolve(a, c, static_cast<int>(end - c < kLanes ? end - c : kLanes));
}

void compress(const CompressArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; c += kLanes)
    compress_elements(a, c, static_cast<int>(end - c < kLanes ? end - c : kLanes));
}

void gated_delta(const GatedDeltaArgs& a, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  if (!is_in_state(a.tokens, a.from, {begin, end}))
    return each_part({begin, end}, kDeltaColumns, [&](Range c) { delta_tile(a, c.begin, scratch); });
  each_part({begin, end}, kMostTiles * kDeltaColumns, [&](Range c) {
    if (a.decays != nullptr)
      delta_in_state(a, c, RowDecays{a.decays});
    else
      delta_in_state(a, c, OneDecay{set1(a.gates[0])});
  });
}

void selective_scan(const SelectiveScanArgs& a, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  float* const tile = reinterpret_cast<float*>(scratch);
  if (a.a != nullptr) return each_part({begin, end}, kDeltaColumns, [&](Range c) { scan_elements(a, c.begin, tile); });
  if (!is_in_state(a.tokens, a.from, {begin, end}))
    return each_part({begin, end}, kDeltaColumns, [&](Range c) { scan_tile(a, c.begin, tile); });
  each_part({begin, end}, kMostTiles * kDeltaColumns, [&](Range c) { scan_in_state(a, c); });
}

void wkv(const WkvArgs& a, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  float* const tile = reinterpret_cast<float*>(scratch);
  if (a.first != nullptr) return wkv_columns<WkvKind::First>(a, {begin, end}, tile);
  if (a.removed != nullptr) return wkv_columns<WkvKind::Removing>(a, {begin, end}, tile);
  wkv_columns<WkvKind::Linear>(a, {begin, end}, tile);
}

}  // namespace llm::cpu::LLM_ISA
