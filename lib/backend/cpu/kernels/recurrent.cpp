#include "backend/cpu/kernels/recurrent.h"

#include "backend/cpu/kernels/vec.h"

namespace llm::cpu::LLM_ISA {

namespace {

constexpr int kLanes = 16;

/// `n` channels from `channel` on, at most kLanes.
void convolve(const ShortConvArgs& a, std::int64_t channel, int n) {
  alignas(64) float taps[kMaxConvWidth][kLanes] = {};
  F32x16 rows[kMaxConvWidth];  // the last ones, the newest at the end
  const int width = static_cast<int>(a.width);
  for (int i = 0; i < n; ++i) {
    for (int t = 0; t < width; ++t) taps[t][i] = a.w[(channel + i) * a.width + t];
  }
  for (int t = 0; t + 1 < width; ++t)
    rows[t + 1] = a.from == nullptr ? zero() : load_first(a.from + t * a.channels + channel, n);
  const F32x16 bias = a.bias == nullptr ? zero() : load_first(a.bias + channel, n);
  for (std::int64_t token = 0; token < a.tokens; ++token) {
    const std::int64_t at = token * a.channels + channel;
    for (int t = 0; t + 1 < width; ++t) rows[t] = rows[t + 1];
    rows[width - 1] = load_first(a.x + at, n);
    F32x16 sum = rows[0] * load(taps[0]);
    for (int t = 1; t < width; ++t) sum = fma(rows[t], load(taps[t]), sum);
    if (a.bias != nullptr) sum = sum + bias;
    store_first(a.y + at, n, a.silu ? sum * sigmoid(sum) : sum);
  }
  for (int t = 0; t + 1 < width; ++t) store_first(a.to + t * a.channels + channel, n, rows[t + 1]);
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
  bool whole() const { return n[kVectors - 1] == kLanes; }
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

/// f(row, index of its sum) for the rows of the tile.
template <class F>
[[gnu::always_inline]] inline void each_row(std::int64_t dk, const F& f) {
  std::int64_t i = 0;
  for (; i + kSums <= dk; i += kSums) unroll<kSums>([&](auto s) { f(i + s.value, s); });
  if (i < dk) f(i, Index<0>{});
  if (i + 1 < dk) f(i + 1, Index<1>{});
  if (i + 2 < dk) f(i + 2, Index<2>{});
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

/// S^T k, but for what Decay::seen() makes of it.
template <class Decay>
void read_tile(const float* tile, const float* k, const Decay& decay, std::int64_t dk, Row& y) {
  Sums sums;
  each_row(dk, [&](std::int64_t i, auto s) {
    const F32x16 factor = decay.key(k, i);
    unroll<kVectors>([&](auto c) {
      F32x16& sum = sums.of[s.value][c.value];
      sum = fma(load(tile + i * kDeltaColumns + c.value * kLanes), factor, sum);
    });
  });
  sums.total(y);
}

/// Whole rows of a tile, `width` apart, as they are and as they become; these may be the same.
struct StateRows {
  const float* from;
  float* to;
  std::int64_t width;
};
/// S = decay S + k d^T, then S^T q
template <class Decay>
void write_rows(const StateRows& rows, const float* k, const float* q, const Decay& decay, const Row& d,
                std::int64_t dk, Row& y) {
  Sums sums;
  each_row(dk, [&](std::int64_t i, auto s) {
    const F32x16 key = set1(k[i]), query = set1(q[i]);
    unroll<kVectors>([&](auto c) {
      const std::int64_t at = i * rows.width + c.value * kLanes;
      const F32x16 state = fma(key, d[c.value], load(rows.from + at) * decay.row(i, c.value));
      store(rows.to + at, state);
      F32x16& sum = sums.of[s.value][c.value];
      sum = fma(state, query, sum);
    });
  });
  sums.total(y);
}

template <class Decay>
void delta_token(const GatedDeltaArgs& a, std::int64_t t, const Columns& columns, std::int64_t begin, float* tile,
                 const Decay& decay) {
  const F32x16 rate = set1(a.gates[t * a.ld_gates + 1]);
  const float* const k = a.k + t * a.ld_key;
  Row v, seen, d, y;
  columns.load_row(a.v + t * a.ld_v + begin, v);
  read_tile(tile, k, decay, a.dk, seen);
  unroll<kVectors>([&](auto c) { d[c.value] = rate * (v[c.value] - decay.seen(seen[c.value])); });
  write_rows({tile, tile, kDeltaColumns}, k, a.q + t * a.ld_key, decay, d, a.dk, y);
  columns.store_row(a.y + t * a.ld_y + begin, y);
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
    write_rows({tile, tile, kDeltaColumns}, b, c_row, ElementDecays{decays, step}, d, a.n, y);
    unroll<kVectors>([&](auto c) { y[c.value] = fma(skip[c.value], x[c.value], y[c.value]); });
    columns.store_row(a.y + t * a.ld_y + begin, y);
  }
  store_tile(tile, a.n, a.p, columns, a.to + begin);
}

}  // namespace

void short_conv(const ShortConvArgs& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; c += kLanes)
    convolve(a, c, static_cast<int>(end - c < kLanes ? end - c : kLanes));
}

void gated_delta(const GatedDeltaArgs& a, std::int64_t begin, std::byte* scratch) {
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

void selective_scan(const SelectiveScanArgs& a, std::int64_t begin, std::byte* scratch) {
  if (a.a != nullptr) return scan_elements(a, begin, reinterpret_cast<float*>(scratch));
  float* const tile = reinterpret_cast<float*>(scratch);
  const Columns columns(a.p, begin);
  const F32x16 skip = set1(*a.skips);
  const bool in_place = a.tokens == 1 && a.from != nullptr && columns.whole();
  if (!in_place) load_tile(at_column(a.from, begin), a.n, a.p, columns, tile);
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const float* const gates = a.gates + t * a.ld_gates;
    const OneDecay decay{set1(gates[0])};
    const F32x16 step = set1(gates[1]);
    const float *const b = a.b + t * a.ld_in, *const c_row = a.c + t * a.ld_in;
    Row x, d, y;
    columns.load_row(a.x + t * a.ld_in + begin, x);
    unroll<kVectors>([&](auto c) { d[c.value] = step * x[c.value]; });
    if (in_place)
      write_rows({a.from + begin, a.to + begin, a.p}, b, c_row, decay, d, a.n, y);
    else
      write_rows({tile, tile, kDeltaColumns}, b, c_row, decay, d, a.n, y);
    unroll<kVectors>([&](auto c) { y[c.value] = fma(skip, x[c.value], y[c.value]); });
    columns.store_row(a.y + t * a.ld_y + begin, y);
  }
  if (!in_place) store_tile(tile, a.n, a.p, columns, a.to + begin);
}

}  // namespace llm::cpu::LLM_ISA
