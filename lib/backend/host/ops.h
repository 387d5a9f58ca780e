// One small function per operation on plain pointers, one row or one head each, over the type that sums are taken in:
// double in the reference backend, where this is the meaning of the operations, float in backends that are meant to be
// fast. Everything stored is f32.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <tuple>
#include <utility>

#include "backend/backend.h"
#include "base/half.h"
#include "graph/op.h"
#include "tensor/decode.h"
#include "tensor/tensor.h"

namespace llm::host {

inline float widen(float x) { return x; }
inline float widen(Half x) { return to_float(x); }
inline float widen(BFloat16 x) { return to_float(x); }

/// Sum of a[i] * b[i], in 16 interleaved partial sums: a form that compilers turn into vector instructions.
template <class Acc, class A, class B>
Acc dot(const A* a, const B* b, std::int64_t n) {
  constexpr int kLanes = 16;
  Acc lanes[kLanes] = {};
  const std::int64_t whole = n - n % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += static_cast<Acc>(widen(a[i + j])) * static_cast<Acc>(widen(b[i + j]));
  }
  for (std::int64_t i = whole; i < n; ++i)
    lanes[i - whole] += static_cast<Acc>(widen(a[i])) * static_cast<Acc>(widen(b[i]));
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

/// w may be null.
template <class Acc>
void rms_norm(const float* x, const float* w, float* y, std::int64_t n, float eps) {
  const Acc factor = 1 / std::sqrt(dot<Acc>(x, x, n) / static_cast<Acc>(n) + static_cast<Acc>(eps));
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * factor * (w ? Acc(w[i]) : Acc(1)));
}

/// The variance is that of the differences from the mean: a mean far from 0 costs no digits. w and bias may be null.
template <class Acc>
void layer_norm(const float* x, const float* w, const float* bias, float* y, std::int64_t n, float eps) {
  Acc sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  const Acc mean = sum / static_cast<Acc>(n);
  for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const Acc factor = 1 / std::sqrt(squares / static_cast<Acc>(n) + static_cast<Acc>(eps));
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = static_cast<float>((x[i] - mean) * factor * (w ? Acc(w[i]) : Acc(1)) + (bias ? Acc(bias[i]) : Acc(0)));
}

/// The norm is that of the sum as stored, so that the fused form equals Add followed by RmsNorm.
template <class Acc>
void add_rms_norm(const float* a, const float* b, const float* w, float* sum, float* y, std::int64_t n, float eps) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
  rms_norm<Acc>(sum, w, y, n, eps);
}

template <class Acc>
Acc sigmoid(Acc x) {
  return 1 / (1 + std::exp(-x));
}
template <class Acc>
Acc silu(Acc x) {
  return x / (1 + std::exp(-x));
}
template <class Acc>
Acc softplus(Acc x) {
  return std::max(x, Acc(0)) + std::log1p(std::exp(-std::abs(x)));
}
/// The tanh form of the Gaussian error linear unit (arXiv:1606.08415, section 2), which models are trained with.
template <class Acc>
Acc gelu(Acc x) {
  const Acc inner = std::numbers::sqrt2_v<Acc> * std::numbers::inv_sqrtpi_v<Acc> * (x + Acc(0.044715) * x * x * x);
  return x * (1 + std::tanh(inner)) / 2;
}

/// Of the whole Glu: the other factor is clamped, too. NaN stays NaN.
template <class Acc>
Acc clamped_silu(Acc gate, Acc up) {
  constexpr Acc kLimit = kClampedSiluLimit;
  const Acc g = gate > kLimit ? kLimit : gate;
  return g / (1 + std::exp(-Acc(kClampedSiluSlope) * g)) * ((up > kLimit ? kLimit : up < -kLimit ? -kLimit : up) + 1);
}

/// Glu::limit and gate_limit; NaN stays NaN.
template <class Acc>
Acc limited_silu(Acc gate, Acc up, Acc gate_limit, Acc limit) {
  const Acc g = silu(gate);
  return (g > gate_limit ? gate_limit : g) * (up > limit ? limit : up < -limit ? -limit : up);
}

template <class Acc>
Acc activated(const Glu& op, Acc gate, Acc up) {
  switch (op.activation) {
    case Activation::Silu:
      return op.limit > 0 ? limited_silu(gate, up, Acc(op.gate_limit), Acc(op.limit)) : silu(gate) * up;
    case Activation::Gelu:
      return gelu(gate) * up;
    case Activation::ClampedSilu:
      return clamped_silu(gate, up);
    case Activation::Relu:
      return (gate < 0 ? Acc(0) : gate) * up;  // NaN stays NaN
    case Activation::Sigmoid:
      return sigmoid(gate) * up;
    case Activation::Softplus:
      return softplus(gate) * up;
    case Activation::Identity:
      return gate * up;
  }
  return 0;
}

template <class Acc>
void glu(const Glu& op, const float* gate, const float* up, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = static_cast<float>(activated(op, static_cast<Acc>(gate[i]), static_cast<Acc>(up[i])));
}
/// All of a row by one gate.
template <class Acc>
void glu_of_one(const Glu& op, float gate, const float* up, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = static_cast<float>(activated(op, static_cast<Acc>(gate), static_cast<Acc>(up[i])));
}

template <class Acc>
Acc xielu(const XieluCurve& c, Acc x) {
  if (x > 0) return c.positive * x * x + c.slope * x;
  return c.negative * (std::expm1(x < c.below ? x : Acc(c.below)) - x) + c.slope * x;
}

template <class Acc>
void activate(const Activate& op, const float* x, float* y, std::int64_t n) {
  const auto f = [&](Acc v) -> Acc {
    switch (op.function) {
      case Nonlinearity::Gelu:
        return gelu(v);
      case Nonlinearity::SquaredRelu:
        return v < 0 ? Acc(0) : v * v;  // NaN stays NaN
      case Nonlinearity::Clamp:
        return v > op.limit ? Acc(op.limit) : v < -op.limit ? -Acc(op.limit) : v;
      case Nonlinearity::Xielu:
        return xielu(op.xielu, v);
      case Nonlinearity::Sigmoid:
        return sigmoid(v);
    }
    return 0;
  };
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(f(static_cast<Acc>(x[i])));
}

template <class Acc>
Acc soft_capped(Acc x, Acc cap) {
  return cap * std::tanh(x / cap);
}

template <class Acc>
Acc position_scale(const PositionScale& op, std::int32_t position) {
  const std::int64_t lengths = (std::int64_t{position} + op.offset) / op.length;
  return 1 + static_cast<Acc>(op.slope) * std::log1p(static_cast<Acc>(lengths));
}

/// One head; `table` holds cos and sin of each pair.
template <class Acc>
void rope_head(const Rope& op, const float* x, const float* table, float* y, std::int64_t head_dim) {
  const int pairs = op.n_rot / 2;
  const bool halves = op.pairing == RopePairing::Halves;
  for (int i = 0; i < pairs; ++i) {
    const int first = halves ? i : 2 * i;
    const int second = halves ? i + pairs : 2 * i + 1;
    const Acc cos = table[2 * i], sin = table[2 * i + 1], a = x[first], b = x[second];
    y[first] = static_cast<float>(a * cos - b * sin);
    y[second] = static_cast<float>(a * sin + b * cos);
  }
  std::copy(x + op.n_rot, x + head_dim, y + op.n_rot);
}

/// Stores a row of a cache. A block of a quantised type that holds NaN or an infinity becomes NaN as a whole: rounded
/// to integers it would look like any other.
void store_cache_row(DType, const float* x, std::byte* row, std::int64_t n);

/// Keys or values of one layer's paged cache: the layout of HostCache.
struct CacheRows {
  const std::byte* data = nullptr;
  DType type = DType::F32;
  std::int64_t kv_heads = 0, head_dim = 0;
  int stride = 1;  ///< of keys alone: of so many positions the last one has a row

  std::size_t row_bytes() const { return TensorType{type, {head_dim}}.bytes(); }
  bool has_row(std::int64_t position) const { return (position + 1) % stride == 0; }
  /// A head's row of one position; the rows of a block follow one another.
  std::size_t row_offset(std::int32_t block, std::int64_t position, std::int64_t kv_head) const {
    const std::int64_t in_block = position % kBlockPositions / stride;
    const std::int64_t row = (std::int64_t{block} * kv_heads + kv_head) * kBlockPositions + in_block;
    return static_cast<std::size_t>(row) * row_bytes();
  }
};

/// Rows whose elements can be read in place.
template <class T>
struct PlainRow {
  static const T* read(const CacheRows&, const std::byte* row, float* /*buffer*/) {
    return reinterpret_cast<const T*>(row);
  }
};
/// Rows of all other types.
struct DecodedRow {
  static const float* read(const CacheRows& rows, const std::byte* row, float* buffer) {
    decode(rows.type, row, buffer, rows.head_dim);
    return buffer;
  }
};

/// Keys of a selection, or all, in stretches that lie side by side in one block.
struct KeyStretches {
  std::int64_t next = 0, end = 0;          ///< without a selection
  std::span<const std::int32_t> selected;  ///< ascending positions, -1 behind them

  /// The next stretch; empty behind the last one.
  std::pair<std::int64_t, std::int64_t> take() {
    if (selected.data() == nullptr) {
      const std::int64_t begin = next;
      next = std::min(end, (begin / kBlockPositions + 1) * kBlockPositions);
      return {begin, next};
    }
    if (selected.empty() || selected.front() < 0) return {0, 0};
    const std::int64_t begin = selected.front();
    std::int64_t behind = begin;
    while (!selected.empty() && selected.front() == behind && (behind == begin || behind % kBlockPositions != 0)) {
      ++behind;
      selected = selected.subspan(1);
    }
    return {begin, behind};
  }
};

/// Keys that stand for several positions each and are their own values: the first `n`, or some of them.
struct CompressedKeys {
  CacheRows rows;
  std::int64_t n = 0;
  std::span<const std::int32_t> chosen = {};  ///< if any were chosen: their numbers, -1 behind them
  bool all = true;

  std::int64_t count() const {
    if (all) return n;
    return std::find_if(chosen.begin(), chosen.end(), [](std::int32_t key) { return key < 0; }) - chosen.begin();
  }
  const std::byte* row(std::int64_t i, const std::int32_t* blocks) const {
    const std::int64_t key = all ? i : chosen[static_cast<std::size_t>(i)], position = (key + 1) * rows.stride - 1;
    return rows.data + rows.row_offset(blocks[position / kBlockPositions], position, 0);
  }
};

/// One query head of one token over keys [first_key, end_key), or over those of a selection, and compressed ones.
struct AttentionHead {
  const float* q = nullptr;  ///< [k.head_dim]
  float* y = nullptr;        ///< [v.head_dim]
  CacheRows k, v;
  std::int64_t kv_head = 0;
  float scale = 0, soft_cap = 0;
  float slope = 0;  ///< of ALiBi; 0: none
  std::int64_t first_key = 0, end_key = 0;
  const std::int32_t* blocks = nullptr;         ///< physical block of each logical block of the sequence
  const float* sink = nullptr;                  ///< of this head
  std::span<const std::int32_t> selected = {};  ///< KeyStretches
  CompressedKeys compressed = {};
};

/// A softmax that grows block by block: the sums are rescaled where a block raises the maximum.
template <class Acc>
struct SoftmaxSums {
  Acc max, total;
  Acc* sums;  ///< [v.head_dim]
};

/// `n` keys that lie side by side, at most kBlockPositions, the first at position `begin`, and their values.
template <class Acc, class K, class V>
void add_keys(const AttentionHead& a, const CacheRows& keys, const std::byte* k, const CacheRows& values,
              const std::byte* v, std::int64_t begin, std::int64_t n, SoftmaxSums<Acc>& softmax, float* buffer) {
  Acc scores[kBlockPositions];
  Acc raised = softmax.max;
  for (std::int64_t i = 0; i < n; ++i, k += keys.row_bytes()) {
    scores[i] = static_cast<Acc>(a.scale) * dot<Acc>(a.q, K::read(keys, k, buffer), keys.head_dim);
    if (a.soft_cap > 0) scores[i] = soft_capped(scores[i], static_cast<Acc>(a.soft_cap));
    scores[i] -= static_cast<Acc>(a.slope) * static_cast<Acc>(a.end_key - 1 - (begin + i));
    raised = std::max(raised, scores[i]);
  }
  if (raised > softmax.max) {
    const Acc shrink = std::exp(softmax.max - raised);
    softmax.total *= shrink;
    for (std::int64_t d = 0; d < values.head_dim; ++d) softmax.sums[d] *= shrink;
    softmax.max = raised;
  }
  for (std::int64_t i = 0; i < n; ++i, v += values.row_bytes()) {
    const Acc p = std::exp(scores[i] - softmax.max);
    const auto* const row = V::read(values, v, buffer);
    softmax.total += p;
    for (std::int64_t d = 0; d < values.head_dim; ++d) softmax.sums[d] += p * static_cast<Acc>(widen(row[d]));
  }
}

/// `sums` has v.head_dim elements, `buffer` as many as the wider of k and v.
template <class Acc, class K, class V>
void attention_head(const AttentionHead& a, Acc* sums, float* buffer) {
  SoftmaxSums<Acc> softmax{a.sink ? Acc(*a.sink) : -std::numeric_limits<Acc>::infinity(), a.sink ? Acc(1) : Acc(0),
                           sums};
  std::fill_n(sums, a.v.head_dim, Acc(0));
  KeyStretches stretches{a.first_key, a.end_key, a.selected};
  for (auto [begin, end] = stretches.take(); begin < end; std::tie(begin, end) = stretches.take()) {
    const std::int32_t block = a.blocks[begin / kBlockPositions];
    add_keys<Acc, K, V>(a, a.k, a.k.data + a.k.row_offset(block, begin, a.kv_head), a.v,
                        a.v.data + a.v.row_offset(block, begin, a.kv_head), begin, end - begin, softmax, buffer);
  }
  const CompressedKeys& more = a.compressed;
  const std::int64_t n_more = more.count();
  for (std::int64_t i = 0; i < n_more; ++i) {
    const std::byte* const row = more.row(i, a.blocks);
    add_keys<Acc, K, K>(a, more.rows, row, more.rows, row, 0, 1, softmax, buffer);
  }
  for (std::int64_t d = 0; d < a.v.head_dim; ++d) a.y[d] = static_cast<float>(sums[d] / softmax.total);
}

/// One token's selection among `keys` keys of an index.
struct Selection {
  const float* q = nullptr;        ///< [heads][index.head_dim]
  const float* weights = nullptr;  ///< [heads]; or null
  CacheRows index;
  std::int64_t heads = 0, keys = 0, top_k = 0;
  SelectKeys::Choice choice = SelectKeys::Choice::Positions;
  const std::int32_t* blocks = nullptr;
  std::int32_t* positions = nullptr;  ///< [top_k]
};
/// A key's worth, and where it is: its place among the index's keys.
template <class Acc>
struct ScoredKey {
  Acc score;
  std::int32_t place;
  /// In the order of a selection: all keys differ, so that its first ones are the same however it is sorted.
  bool before(const ScoredKey& other) const {
    return score > other.score || (score == other.score && place < other.place);
  }
};
/// What a token is to attend to, of chosen keys in ascending order, whose places place_of() gives: the positions of
/// each, then those behind the last key that it sees.
template <class Key, class PlaceOf>
void write_selection(std::span<const Key> chosen, const PlaceOf& place_of, std::int64_t stride, std::int64_t seen,
                     std::span<std::int32_t> positions) {
  std::int32_t* to = positions.data();
  for (const Key& key : chosen)
    for (std::int64_t i = 0; i < stride; ++i) *to++ = static_cast<std::int32_t>(place_of(key) * stride + i);
  for (std::int64_t p = seen / stride * stride; p < seen; ++p) *to++ = static_cast<std::int32_t>(p);
  std::fill(to, positions.data() + positions.size(), -1);
}
/// `best` has as many elements as keys may be chosen and one more, `row` index.head_dim.
template <class Acc, class K>
void select_keys(const Selection& s, ScoredKey<Acc>* best, float* row) {
  const auto before = [](const ScoredKey<Acc>& a, const ScoredKey<Acc>& b) { return a.before(b); };
  const auto place_of = [](const ScoredKey<Acc>& key) { return key.place; };
  const bool by_numbers = s.choice == SelectKeys::Choice::Keys;
  const std::int64_t stride = s.index.stride;
  const std::int64_t most = stride == 1 || by_numbers ? s.top_k : (s.top_k + 1) / stride - 1;
  std::int64_t n = 0;
  for (std::int64_t place = 0; place < s.keys / stride; ++place) {
    const std::int64_t p = (place + 1) * stride - 1;
    const std::byte* const bytes = s.index.data + s.index.row_offset(s.blocks[p / kBlockPositions], p, 0);
    const auto* const key = K::read(s.index, bytes, row);
    Acc sum = 0;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const Acc score = dot<Acc>(s.q + h * s.index.head_dim, key, s.index.head_dim);
      sum += (s.weights ? static_cast<Acc>(s.weights[h]) : Acc(1)) * (score > 0 ? score : Acc(0));
    }
    best[n] = {std::isnan(sum) ? -std::numeric_limits<Acc>::infinity() : sum, static_cast<std::int32_t>(place)};
    std::push_heap(best, best + ++n, before);  // the last in the order on top
    if (n > most) std::pop_heap(best, best + n--, before);
  }
  const std::span<const ScoredKey<Acc>> chosen(best, static_cast<std::size_t>(n));
  std::sort(best, best + n, [](const auto& a, const auto& b) { return a.place < b.place; });
  const std::span positions(s.positions, static_cast<std::size_t>(s.top_k));
  if (by_numbers)
    write_selection(chosen, place_of, 1, s.keys / stride, positions);
  else
    write_selection(chosen, place_of, stride, s.keys, positions);
}

/// One token's selection of blocks by one head, s.q; s.weights are not used. `best` has top_k / block elements and one
/// more.
template <class Acc, class K>
void select_blocks(const Selection& s, const SelectBlocks& op, ScoredKey<Acc>* best, float* row) {
  const auto before = [](const ScoredKey<Acc>& a, const ScoredKey<Acc>& b) { return a.before(b); };
  const std::int64_t blocks = (s.keys + op.block - 1) / op.block, most = op.top_k / op.block;
  std::int64_t n = 0;
  for (std::int64_t place = 0; place < blocks; ++place) {
    Acc greatest = -std::numeric_limits<Acc>::infinity();
    for (std::int64_t p = place * op.block; p < std::min(s.keys, (place + 1) * op.block); ++p) {
      const std::byte* const bytes = s.index.data + s.index.row_offset(s.blocks[p / kBlockPositions], p, 0);
      const Acc score = dot<Acc>(s.q, K::read(s.index, bytes, row), s.index.head_dim);
      if (score > greatest) greatest = score;
    }
    if (place + op.local >= blocks) greatest = std::numeric_limits<Acc>::infinity();
    best[n] = {greatest, static_cast<std::int32_t>(place)};
    std::push_heap(best, best + ++n, before);
    if (n > most) std::pop_heap(best, best + n--, before);
  }
  std::sort(best, best + n, [](const auto& a, const auto& b) { return a.place < b.place; });
  std::int32_t* to = s.positions;
  for (const ScoredKey<Acc>& block : std::span(best, static_cast<std::size_t>(n)))
    for (std::int64_t p = block.place * op.block; p < std::min(s.keys, (block.place + std::int64_t{1}) * op.block); ++p)
      *to++ = static_cast<std::int32_t>(p);
  std::fill(to, s.positions + s.top_k, -1);
}

/// Tokens of one sequence: ids [heads, tokens]; the state before and after them, which may be in the same place; a null
/// `from` is zeros.
inline void hash_ids(const HashIds& op, std::span<const std::int32_t> tokens, const float* from, float* to,
                     std::int32_t* ids) {
  const auto n = static_cast<std::int64_t>(op.multipliers.size()), kept = n - 1, last = std::ssize(tokens) - 1;
  std::array<float, kMostMultipliers> before{};
  if (from) std::copy_n(from, kept, before.begin());
  const auto numbered = [&](std::int64_t t) {  // of the token t, the number that a state has
    return t >= 0 ? std::int64_t{tokens[static_cast<std::size_t>(t)]} + 1
                  : static_cast<std::int64_t>(before[static_cast<std::size_t>(kept + t)]);
  };
  const std::int64_t heads = std::ssize(op.sizes), of_each = heads / kept;
  for (std::int64_t t = 0; t <= last; ++t, ids += heads) {
    std::uint64_t mixed = static_cast<std::uint64_t>(tokens[static_cast<std::size_t>(t)]) * op.multipliers[0];
    bool stopped = false;
    for (std::int64_t i = 1; i < n; ++i) {
      const std::int64_t number = stopped ? 0 : numbered(t - i);
      stopped = number == 0 || number - 1 == op.stop;
      const std::int64_t token = stopped ? op.stop : number - 1;
      mixed ^= static_cast<std::uint64_t>(token) * op.multipliers[static_cast<std::size_t>(i)];
      for (std::int64_t h = (i - 1) * of_each; h < i * of_each; ++h) {
        const auto head = static_cast<std::size_t>(h);
        ids[h] = op.offsets[head] + static_cast<std::int32_t>(mixed % static_cast<std::uint64_t>(op.sizes[head]));
      }
    }
  }
  for (std::int64_t i = 0; i < kept; ++i) to[i] = static_cast<float>(numbered(last - kept + 1 + i));
}

/// Tokens of one sequence: x, y [channels, tokens], w [width, channels] or null, where all weights are 1 / width, bias
/// [channels] or null, state [channels, kept()] before and after them, which may be in the same place; a null `from` is
/// zeros.
struct ConvRun {
  Activation activation = Activation::Silu;
  const float* x = nullptr;
  const float* w = nullptr;
  const float* bias = nullptr;
  const float* from = nullptr;
  float* to = nullptr;
  float* y = nullptr;
  std::int64_t channels = 0, width = 0, dilation = 1, tokens = 0;
  std::int64_t kept() const { return (width - 1) * dilation; }
};
/// Of one channel. `line` has kept() + tokens elements.
template <class Acc>
void convolve_channel(const ConvRun& c, std::int64_t channel, float* line) {
  const std::int64_t kept = c.kept();
  for (std::int64_t i = 0; i < kept; ++i) line[i] = c.from ? c.from[i * c.channels + channel] : 0;
  for (std::int64_t t = 0; t < c.tokens; ++t) line[kept + t] = c.x[t * c.channels + channel];
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    Acc sum = 0;
    for (std::int64_t i = 0; i < c.width; ++i)
      sum += (c.w ? static_cast<Acc>(c.w[channel * c.width + i]) : Acc(1)) * line[t + i * c.dilation];
    if (!c.w) sum /= static_cast<Acc>(c.width);
    if (c.bias) sum += static_cast<Acc>(c.bias[channel]);
    c.y[t * c.channels + channel] = static_cast<float>(c.activation == Activation::Silu ? silu(sum) : sum);
  }
  for (std::int64_t i = 0; i < kept; ++i) c.to[i * c.channels + channel] = line[c.tokens + i];
}

/// Tokens of one sequence through a Compress: x and scores [parts * n, tokens], y [n, tokens]; the state [n, 3, parts]
/// before and after them.
struct CompressRun {
  const float *x = nullptr, *scores = nullptr, *places = nullptr;
  const std::int32_t* positions = nullptr;
  float* state = nullptr;
  float* y = nullptr;
  std::int64_t n = 0, parts = 1, stride = 1, tokens = 0;
};
/// What a part of the state has of one element.
template <class Acc>
struct SoftMean {
  Acc greatest = 0, weights = 0, sum = 0;
  void add(Acc score, Acc x) {
    const Acc raised = weights == 0 ? score : std::max(greatest, score);
    const Acc shrink = weights == 0 ? Acc(0) : std::exp(greatest - raised), weight = std::exp(score - raised);
    greatest = raised;
    weights = weights * shrink + weight;
    sum = sum * shrink + weight * x;
  }
};
/// Of element i. The state is f32 after every token, wherever a step ends.
template <class Acc>
void compress_element(const CompressRun& c, std::int64_t i) {
  const auto at = [&](std::int64_t part, std::int64_t what) -> float& { return c.state[(part * 3 + what) * c.n + i]; };
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const std::int64_t place = c.positions[t] % c.stride, width = c.parts * c.n;
    for (std::int64_t part = 0; part < c.parts; ++part) {
      const std::int64_t from = (c.parts - 1 - part) * c.n + i;
      SoftMean<Acc> mean{at(part, 0), at(part, 1), at(part, 2)};
      mean.add(static_cast<Acc>(c.scores[t * width + from]) + static_cast<Acc>(c.places[place * width + from]),
               c.x[t * width + from]);
      at(part, 0) = static_cast<float>(mean.greatest);
      at(part, 1) = static_cast<float>(mean.weights);
      at(part, 2) = static_cast<float>(mean.sum);
    }
    const bool last = place == c.stride - 1;
    c.y[t * c.n + i] = last ? static_cast<float>(static_cast<Acc>(at(0, 2)) / static_cast<Acc>(at(0, 1))) : 0.0f;
    if (!last) continue;
    for (std::int64_t what = 0; what < 3; ++what) {
      at(0, what) = c.parts > 1 ? at(1, what) : 0.0f;
      if (c.parts > 1) at(1, what) = 0;
    }
  }
}

/// One token of a value head.
template <class Acc>
struct DeltaToken {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  const float *alpha = nullptr, *bias = nullptr;  ///< of the head
  std::int64_t decays = 1;                        ///< 1, or dk: each row has its own
  Acc a = 0, rate = 0;
  Acc floor = 0;  ///< GatedDelta::floor
  float* y = nullptr;
};
/// What a state decays by, or one of its rows, by alpha + bias.
template <class Acc>
Acc decay_of(const DeltaToken<Acc>& t, Acc alpha) {
  return std::exp(t.floor < 0 ? t.floor * sigmoid(std::abs(t.a) * alpha) : t.a * softplus(alpha));
}
/// y = x * factor / sqrt(|x|^2 + eps)
template <class Acc>
void unit_row(const float* x, Acc* y, std::int64_t n, float eps, Acc factor) {
  const Acc scale = factor / std::sqrt(dot<Acc>(x, x, n) + static_cast<Acc>(eps));
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * scale;
}
/// `state` [dk][dv] is f32 after every token, wherever a step ends; `work` has 3 * dk + 2 * dv elements.
template <class Acc>
void delta_token(const DeltaToken<Acc>& t, float* state, std::int64_t dk, std::int64_t dv, float eps, Acc* work) {
  Acc *const q = work, *const k = q + dk, *const decay = k + dk, *const d = decay + dk, *const y = d + dv;
  unit_row<Acc>(t.q, q, dk, eps, 1 / std::sqrt(static_cast<Acc>(dk)));
  unit_row<Acc>(t.k, k, dk, eps, 1);
  for (std::int64_t i = 0; i < t.decays; ++i)
    decay[i] = decay_of(t, static_cast<Acc>(t.alpha[i]) + static_cast<Acc>(t.bias[i]));
  std::fill_n(decay + t.decays, dk - t.decays, decay[0]);
  std::fill_n(d, 2 * dv, Acc(0));
  for (std::int64_t i = 0; i < dk; ++i) {
    for (std::int64_t j = 0; j < dv; ++j) d[j] += state[i * dv + j] * decay[i] * k[i];
  }
  for (std::int64_t j = 0; j < dv; ++j) d[j] = t.rate * (t.v[j] - d[j]);
  for (std::int64_t i = 0; i < dk; ++i) {
    for (std::int64_t j = 0; j < dv; ++j) {
      float& s = state[i * dv + j];
      s = static_cast<float>(s * decay[i] + k[i] * d[j]);
      y[j] += s * q[i];
    }
  }
  for (std::int64_t j = 0; j < dv; ++j) t.y[j] = static_cast<float>(y[j]);
}

/// One token of a head of a selective state space, with x [p], b and c [n].
template <class Acc>
struct ScanToken {
  const float *x = nullptr, *b = nullptr, *c = nullptr;
  const float *dt = nullptr, *a = nullptr, *d = nullptr, *bias = nullptr;  ///< of the head
  bool of_elements = false;  ///< dt, d and bias are [p], a [p][n]; else a number each
  float* y = nullptr;
};
/// `state` [n][p] is f32 after every token, wherever a step ends.
template <class Acc>
void scan_token(const ScanToken<Acc>& t, float* state, std::int64_t n, std::int64_t p) {
  for (std::int64_t j = 0; j < p; ++j) {
    const Acc x = t.x[j];
    const std::int64_t own = t.of_elements ? j : 0;
    const Acc step = softplus(static_cast<Acc>(t.dt[own]) + static_cast<Acc>(t.bias[own]));
    Acc y = static_cast<Acc>(t.d[own]) * x;
    for (std::int64_t i = 0; i < n; ++i) {
      float& s = state[i * p + j];
      const Acc decay = std::exp(static_cast<Acc>(t.of_elements ? t.a[j * n + i] : t.a[0]) * step);
      s = static_cast<float>(s * decay + t.b[i] * (step * x));
      y += static_cast<Acc>(s) * t.c[i];
    }
    t.y[j] = static_cast<float>(y);
  }
}

/// Channel i of a sequence's tokens, of `channels`; `from` is the row before them, or null. `to` may be `from`.
inline void shift_channel(const float* x, const float* from, float* to, float* y, std::int64_t channels,
                          std::int64_t tokens, std::int64_t i) {
  float before = from ? from[i] : 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float now = x[t * channels + i];
    y[t * channels + i] = before - now;
    before = now;
  }
  to[i] = before;
}

/// y = x + d * (w + more), where `more` may be null
template <class Acc>
void lerp(const float* x, const float* d, const float* w, const float* more, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const Acc share = static_cast<Acc>(w[i]) + (more ? static_cast<Acc>(more[i]) : Acc(0));
    y[i] = static_cast<float>(x[i] + d[i] * share);
  }
}

/// One token of a head of n elements of a Wkv6.
struct Wkv6Token {
  const float *r = nullptr, *k = nullptr, *v = nullptr, *w = nullptr;
  const float* first = nullptr;  ///< or null
  float* y = nullptr;
};
/// `state` [n][n] is f32 after every token, wherever a step ends; `work` has n elements.
template <class Acc>
void wkv6_token(const Wkv6Token& t, float* state, std::int64_t n, Acc* work) {
  std::fill_n(work, n, Acc(0));
  for (std::int64_t i = 0; i < n; ++i) {
    const Acc rate = std::exp(static_cast<Acc>(t.w[i])), decay = std::exp(-rate);
    const Acc k = t.k[i], r = t.r[i], key = t.first ? k : -std::expm1(-rate) * k;
    for (std::int64_t j = 0; j < n; ++j) {
      float& s = state[i * n + j];
      const Acc v = t.v[j];
      if (t.first) work[j] += (s + t.first[i] * k * v) * r;
      s = static_cast<float>(s * decay + key * v);
      if (!t.first) work[j] += s * r;
    }
  }
  const Acc scale = t.first ? Acc(1) : 1 / std::sqrt(static_cast<Acc>(n));
  for (std::int64_t j = 0; j < n; ++j) t.y[j] = static_cast<float>(work[j] * scale);
}

/// One token of a head of n elements of a Wkv7.
struct Wkv7Token {
  const float *r = nullptr, *k = nullptr, *v = nullptr, *w = nullptr, *a = nullptr;
  const float *k_k = nullptr, *k_a = nullptr, *r_k = nullptr;
  const float *v_first = nullptr, *mix = nullptr;  ///< or null
  float *y = nullptr, *own = nullptr;
};
/// What elements of the state change by.
template <class Acc>
struct Wkv7Parts {
  Acc *removed, *key, *value, *seen, *y;  ///< [n]
  Wkv7Parts(Acc* work, std::int64_t n)
      : removed(work), key(removed + n), value(key + n), seen(value + n), y(seen + n) {}
};
/// Gives the sum that `own` multiplies the value by.
template <class Acc>
Acc wkv7_parts(const Wkv7Token& t, std::int64_t n, const Wkv7Parts<Acc>& p) {
  Acc square = 0, own = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    p.removed[i] = static_cast<Acc>(t.k[i]) * t.k_k[i];
    square += p.removed[i] * p.removed[i];
  }
  const Acc length = std::sqrt(std::max(square, static_cast<Acc>(kLeastWkvKey)));
  for (std::int64_t i = 0; i < n; ++i) {
    const Acc v = t.v[i], rate = sigmoid(static_cast<Acc>(t.a[i]));
    p.removed[i] /= length;
    p.key[i] = t.k[i] * (1 + (rate - 1) * t.k_a[i]);
    p.value[i] = t.mix ? v + (t.v_first[i] - v) * sigmoid(static_cast<Acc>(t.mix[i])) : v;
    own += t.r[i] * p.key[i] * t.r_k[i];
  }
  return own;
}
/// `state` [n][n] is f32 after every token, wherever a step ends; `work` has 5 * n elements.
template <class Acc>
void wkv7_token(const Wkv7Token& t, float* state, std::int64_t n, Acc* work) {
  const Wkv7Parts<Acc> p(work, n);
  const Acc own = wkv7_parts<Acc>(t, n, p);
  std::fill_n(p.seen, 2 * n, Acc(0));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) p.seen[j] += state[i * n + j] * p.removed[i];
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const Acc decay = std::exp(-static_cast<Acc>(kWkvDecay) * sigmoid(static_cast<Acc>(t.w[i])));
    const Acc added = sigmoid(static_cast<Acc>(t.a[i])) * p.removed[i];
    for (std::int64_t j = 0; j < n; ++j) {
      float& s = state[i * n + j];
      s = static_cast<float>(s * decay - added * p.seen[j] + p.key[i] * p.value[j]);
      p.y[j] += static_cast<Acc>(s) * t.r[i];
    }
  }
  for (std::int64_t j = 0; j < n; ++j) {
    t.y[j] = static_cast<float>(p.y[j]);
    t.own[j] = static_cast<float>(own * p.value[j]);
  }
}

/// The gate of one expert. `top` is the largest logit, `all` the sum of the exponentials of all logits less that.
template <class Acc>
Acc gate_of(Gating gating, Acc logit, Acc top, Acc all) {
  switch (gating) {
    case Gating::Softmax:
      return std::exp(logit - top) / all;
    case Gating::Sigmoid:
      return sigmoid(logit);
    case Gating::RootSoftplus:
      return std::sqrt(softplus(logit));
  }
  return 0;
}

/// The sum of the `count` largest of n scores.
template <class Acc>
Acc sum_of_best(const Acc* scores, std::int64_t n, int count) {
  Acc sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t better = 0;
    for (std::int64_t j = 0; j < n; ++j) better += scores[j] > scores[i] || (scores[j] == scores[i] && j < i) ? 1 : 0;
    if (better < count) sum += scores[i];
  }
  return sum;
}

/// Makes the scores NaN of the experts in groups that are not used: a bias may give any other one, -infinity too.
template <class Acc>
void leave_groups_out(const Route& op, Acc* scores, std::int64_t n_experts) {
  const std::int64_t n = n_experts / op.groups;
  for (int left = op.groups; left > op.groups_used; --left) {
    int worst = -1;
    Acc least = 0;
    for (int g = 0; g < op.groups; ++g) {
      if (std::isnan(scores[g * n])) continue;
      const Acc score = sum_of_best(scores + g * n, n, op.group_best);
      if (worst < 0 || score <= least) worst = g, least = score;
    }
    if (worst < 0) return;  // logits that are NaN
    std::fill_n(scores + worst * n, n, std::numeric_limits<Acc>::quiet_NaN());
  }
}

/// RouteWeights::NearBest of the expert in `slot`.
template <class Acc>
Acc near_best(const float* logits, std::int64_t n_experts, const std::int32_t* ids, int slot) {
  const Acc top = logits[ids[slot]];
  Acc sum = 0;
  for (std::int32_t e = 0; e < n_experts; ++e) {
    if (std::find(ids, ids + slot, e) != ids + slot) continue;
    const Acc l = logits[e];
    const bool far = (top - l) / std::max(std::abs(l), top) > static_cast<Acc>(kNearBest);  // not of 0 / 0
    if (!far) sum += std::exp(l - top);
  }
  return 1 / sum;
}

/// The gates of one token's experts.
template <class Acc>
struct TokenGates {
  TokenGates(const Route& op, const float* logits, std::int64_t n) : gating(op.gating), logits(logits), experts(n) {
    top = *std::max_element(logits, logits + n);
    for (std::int64_t e = 0; e < n; ++e) all += std::exp(static_cast<Acc>(logits[e]) - top);
  }
  Acc operator()(std::int64_t e) const { return gate_of(gating, static_cast<Acc>(logits[e]), top, all); }
  Gating gating;
  const float* logits;
  std::int64_t experts;
  Acc top = 0, all = 0;
};

/// Where nothing is added to the gates, experts are chosen by their logits, so that equal logits give equal choices
/// whatever the gate's precision; a score that is NaN counts as the smallest. `bias` may be null; `scores` has as many
/// elements as there are experts.
template <class Acc>
void choose_experts(const Route& op, const TokenGates<Acc>& gate, const float* bias, std::int32_t* ids, Acc* scores) {
  const bool by_logits = bias == nullptr && op.groups == 1;
  for (std::int64_t e = 0; e < gate.experts; ++e)
    scores[e] = by_logits ? static_cast<Acc>(gate.logits[e]) : gate(e) + (bias ? static_cast<Acc>(bias[e]) : 0);
  if (op.groups > 1) leave_groups_out(op, scores, gate.experts);
  for (int slot = 0; slot < op.top_k; ++slot) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < gate.experts; ++e) {
      if (std::find(ids, ids + slot, e) != ids + slot) continue;
      if (best < 0 || scores[e] > scores[best] || (std::isnan(scores[best]) && !std::isnan(scores[e]))) best = e;
    }
    ids[slot] = best;
  }
}

/// The weights of the experts `ids`.
template <class Acc>
void weigh_experts(const Route& op, const TokenGates<Acc>& gate, const std::int32_t* ids, float* weights) {
  const float* const logits = gate.logits;
  if (std::any_of(logits, logits + gate.experts, [](float l) { return std::isnan(l); })) {
    std::fill_n(weights, op.top_k, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (op.weights == RouteWeights::NearBest) {
    for (int slot = 0; slot < op.top_k; ++slot)
      weights[slot] = static_cast<float>(near_best<Acc>(logits, gate.experts, ids, slot) * static_cast<Acc>(op.scale));
    return;
  }
  Acc total = 1;
  if (op.weights == RouteWeights::Renormalized) {
    total = static_cast<Acc>(kLeastGates);
    for (int slot = 0; slot < op.top_k; ++slot) total += gate(ids[slot]);
  }
  for (int slot = 0; slot < op.top_k; ++slot)
    weights[slot] = static_cast<float>(gate(ids[slot]) / total * static_cast<Acc>(op.scale));
}

/// One token.
template <class Acc>
void route_token(const Route& op, const float* logits, const float* bias, std::int64_t n_experts, std::int32_t* ids,
                 float* weights, Acc* scores) {
  const TokenGates<Acc> gates(op, logits, n_experts);
  choose_experts(op, gates, bias, ids, scores);
  weigh_experts(op, gates, ids, weights);
}

/// The results of a StreamWeights for one row of x, of m vectors; write and mix may be null.
template <class Acc>
void stream_weights(const StreamWeights& op, const float* x, const float* scales, const float* biases, std::int64_t m,
                    float* read, float* write, float* mix) {
  const auto z = [&](std::int64_t of, std::int64_t i) {
    return static_cast<Acc>(x[i]) * static_cast<Acc>(scales[of]) + static_cast<Acc>(biases[i]);
  };
  const auto eps = static_cast<Acc>(op.eps);
  for (std::int64_t i = 0; i < m; ++i) read[i] = static_cast<float>(sigmoid(z(0, i)) + eps);
  if (write == nullptr) return;
  for (std::int64_t i = 0; i < m; ++i) write[i] = static_cast<float>(std::tanh(z(1, m + i) / 2));
  Acc shares[kMostStreams * kMostStreams];  // [from][to]
  for (std::int64_t from = 0; from < m; ++from) {
    Acc* const row = shares + from * m;
    for (std::int64_t to = 0; to < m; ++to) row[to] = z(2, 2 * m + from * m + to);
    const Acc top = *std::max_element(row, row + m);
    Acc sum = 0;
    for (std::int64_t to = 0; to < m; ++to) sum += row[to] = std::exp(row[to] - top);
    for (std::int64_t to = 0; to < m; ++to) row[to] = row[to] / sum + eps;
  }
  const auto divide = [&](std::int64_t first, std::int64_t step) {
    Acc sum = eps;
    for (std::int64_t i = 0; i < m; ++i) sum += shares[first + i * step];
    for (std::int64_t i = 0; i < m; ++i) shares[first + i * step] /= sum;
  };
  for (int turn = 0; turn < op.iterations; ++turn) {
    for (std::int64_t from = 0; turn > 0 && from < m; ++from) divide(from * m, 1);
    for (std::int64_t to = 0; to < m; ++to) divide(to, m);
  }
  for (std::int64_t to = 0; to < m; ++to)
    for (std::int64_t from = 0; from < m; ++from) mix[to * m + from] = static_cast<float>(shares[from * m + to]);
}

/// One row of StreamMix, StreamAdd and GaussianTop.
template <class Acc>
void mix_row(const float* x, const float* w, std::int64_t n, std::int64_t m, std::int64_t k, float* y) {
  for (std::int64_t j = 0; j < k; ++j) {
    for (std::int64_t e = 0; e < n; ++e) {
      Acc sum = 0;
      for (std::int64_t i = 0; i < m; ++i) sum += static_cast<Acc>(w[j * m + i]) * x[i * n + e];
      y[j * n + e] = static_cast<float>(sum);
    }
  }
}
/// w may be null.
template <class Acc>
void spread_row(const StreamAdd& op, const float* x, const float* y, const float* w, std::int64_t n, std::int64_t m,
                float* to) {
  for (std::int64_t i = 0; i < m; ++i) {
    const Acc factor = i < op.first ? Acc(0) : 1 + (w ? static_cast<Acc>(w[i]) : Acc(0));
    for (std::int64_t e = 0; e < n; ++e)
      to[i * n + e] = i < op.first ? x[i * n + e] : static_cast<float>(x[i * n + e] + factor * y[e]);
  }
}
/// y [n] of x and gate [m][n].
template <class Acc>
void stream_mean(const float* x, const float* gate, std::int64_t n, std::int64_t m, float* y) {
  for (std::int64_t e = 0; e < n; ++e) {
    Acc sum = 0;
    for (std::int64_t i = e; i < n * m; i += n) sum += static_cast<Acc>(x[i]) * sigmoid(static_cast<Acc>(gate[i]));
    y[e] = static_cast<float>(sum / static_cast<Acc>(m));
  }
}
/// y [n] of x [m][n] and `last`.
template <class Acc>
void stream_blend(const StreamBlend& op, const float* x, const float* last, const float* w, std::int64_t n,
                  std::int64_t m, float* y) {
  const auto vector = [&](std::int64_t i) { return i < m ? x + i * n : last; };
  const auto score = [&](std::int64_t i) {
    const Acc squares = dot<Acc>(vector(i), vector(i), n) / static_cast<Acc>(n);
    return dot<Acc>(vector(i), w, n) / std::sqrt(squares + static_cast<Acc>(op.eps));
  };
  Acc shares[kMostBlended + 1];
  for (std::int64_t i = 0; i <= m; ++i) shares[i] = score(i);
  const Acc best = *std::max_element(shares, shares + m + 1);
  Acc total = 0;
  for (std::int64_t i = 0; i <= m; ++i) total += shares[i] = std::exp(shares[i] - best);
  for (std::int64_t e = 0; e < n; ++e) {
    Acc sum = 0;
    for (std::int64_t i = 0; i <= m; ++i) sum += shares[i] * vector(i)[e];
    y[e] = static_cast<float>(sum / total);
  }
}
template <class Acc>
float match_gate(const float* a, const float* b, std::int64_t n) {
  const Acc s = dot<Acc>(a, b, n) / std::sqrt(static_cast<Acc>(n));
  const Acc root = std::sqrt(std::max(std::abs(s), static_cast<Acc>(kLeastMatch)));
  return static_cast<float>(sigmoid(s > 0 ? root : s < 0 ? -root : s));
}
template <class Acc>
void gaussian_top(const float* x, float* y, std::int64_t n, float deviations) {
  Acc sum = 0, squares = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  const Acc mean = sum / static_cast<Acc>(n);
  for (std::int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const Acc cut = mean + static_cast<Acc>(deviations) * std::sqrt(squares / static_cast<Acc>(n - 1));
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] < cut ? 0.0f : static_cast<float>(x[i] - cut);  // NaN stays NaN
}

/// One token: the sum over the slots of weights[slot] * x[slot][i], in the order of the slots.
template <class Acc>
void combine_token(const float* x, const float* weights, std::int64_t top_k, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    Acc sum = 0;
    for (std::int64_t slot = 0; slot < top_k; ++slot) sum += static_cast<Acc>(weights[slot]) * x[slot * n + i];
    y[i] = static_cast<float>(sum);
  }
}

}  // namespace llm::host
