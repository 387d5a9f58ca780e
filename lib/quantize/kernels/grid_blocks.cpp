// Types whose rows of elements come from a grid: IQ1, IQ2, IQ3. A group of elements has the scale d (2 s + 1) with a
// whole number s.
//
// First the best scale of each group is found by trying some, then d so that the multiples round well, then the
// multiples around each scale by their error; after that d and the multiples are improved in turn. Every trial finds
// the nearest rows of the grid again.
#include <bit>

#include "quantize/kernels/grid.h"
#include "quantize/kernels/quantizers.h"
#include "quantize/kernels/shrinking.h"
#include "quantize/kernels/tile.h"
#include "tensor/blocks.h"
#include "tensor/pack.h"

namespace llm::quantizers::LLM_ISA {
namespace {

/// How signs are stored: eight bits for eight elements, seven of which an even number is negative, or in the levels.
enum class Signs { Eight, Seven, InLevels };
/// Whose elements share a shift of the levels by 1/8 or -1/8.
enum class Shifts { None, PerGroup, PerRow };

/// What a type is made of. kUnit: what d is multiplied with in the formula of the type.
template <class Block_, class Book_, int kGroup_, int kTopMultiple_, Signs kSigns_, Shifts kShifts_,
          Undo kUndo_ = Undo::Half>
struct Format {
  using Block = Block_;
  using Book = Book_;
  static constexpr int kElems = Book::kElems;
  static constexpr int kRows = kBlock / kElems;
  static constexpr int kGroups = kBlock / kGroup_;
  static constexpr int kRowsPerGroup = kRows / kGroups;
  static constexpr int kTopMultiple = kTopMultiple_;
  static constexpr Signs kSigns = kSigns_;
  static constexpr Shifts kShifts = kShifts_;
  static constexpr Undo kUndo = kUndo_;
  static constexpr int kRounds = kShifts == Shifts::None ? 2 : 1;  ///< of improvement; with shifts each costs twice
};

/// A block ready to be searched.
template <class F>
struct Work {
  Rows<F::kElems> rows;
  std::uint8_t signs[kBlock / 8];  ///< bit set: the element is negative
  float rms[F::kGroups], energy[F::kGroups];
  float factor;
};

/// What a block becomes. The shift of a row is that of its levels.
template <class F>
struct Choice {
  Half d;
  float unit;                  ///< of the scales: d in the type's formula, among the normalised elements
  float multiple[F::kGroups];  ///< s of the scale (2 s + 1) * unit
  float scale[F::kGroups];
  float cost[F::kGroups];
  alignas(64) float shift[F::kRows];
  std::int16_t row[F::kRows];
};

/// Seven signs: where an odd number is negative, the element that costs least to be turned is.
inline void make_signs_even(float* magnitude, const float* w, std::uint8_t& signs) {
  if (std::popcount(signs) % 2 == 0) return;
  int least = 0;
  for (int i = 1; i < 8; ++i) least = w[i] * magnitude[i] < w[least] * magnitude[least] ? i : least;
  magnitude[least] = -magnitude[least];
  signs = static_cast<std::uint8_t>(signs ^ (1 << least));
}

template <class F>
void load_block(const float* x, const float* w, Work<F>& work) {
  work.factor = normalizing_factor(x, kBlock);
  alignas(64) float scaled[kBlock];
  for (int i = 0; i < kBlock; ++i) scaled[i] = x[i] * work.factor;
  for (int g = 0; g < F::kGroups; ++g) {
    float sum = 0, squares = 0;
    for (int i = g * (kBlock / F::kGroups); i < (g + 1) * (kBlock / F::kGroups); ++i) {
      sum += w[i] * scaled[i] * scaled[i];
      squares += scaled[i] * scaled[i];
    }
    work.energy[g] = sum;
    work.rms[g] = __builtin_sqrtf(squares * (F::kGroups / 256.0f));
  }
  if constexpr (F::kSigns != Signs::InLevels) {
    for (int e = 0; e < kBlock / 8; ++e) {
      unsigned signs = 0;
      for (int i = 0; i < 8; ++i) {
        signs |= (scaled[8 * e + i] < 0 ? 1u : 0u) << i;
        scaled[8 * e + i] = __builtin_fabsf(scaled[8 * e + i]);
      }
      work.signs[e] = static_cast<std::uint8_t>(signs);
      if constexpr (F::kSigns == Signs::Seven) make_signs_even(scaled + 8 * e, w + 8 * e, work.signs[e]);
    }
  }
  for (int r = 0; r < F::kRows; ++r) {
    for (int i = 0; i < F::kElems; ++i) {
      work.rows.x[i][r] = scaled[r * F::kElems + i];
      work.rows.w[i][r] = w[r * F::kElems + i];
    }
  }
}

/// What the nearest rows for the scales of `out` cost, with the better shift where there is one.
template <class F>
void evaluate(const Work<F>& work, const typename F::Book& book, Choice<F>& out) {
  alignas(64) float row_scale[F::kRows], cost[F::kRows];
  for (int r = 0; r < F::kRows; ++r) row_scale[r] = out.scale[r / F::kRowsPerGroup];
  for (float& s : out.shift) s = F::kShifts == Shifts::None ? 0.0f : 0.125f;
  grid_costs(work.rows, book, row_scale, out.shift, cost);
  if constexpr (F::kShifts != Shifts::None) {
    alignas(64) float other[F::kRows], other_cost[F::kRows];
    for (float& s : other) s = -0.125f;
    grid_costs(work.rows, book, row_scale, other, other_cost);
    constexpr int kShared = F::kShifts == Shifts::PerGroup ? F::kRowsPerGroup : 1;
    for (int r = 0; r < F::kRows; r += kShared) {
      float gain = 0;
      for (int k = r; k < r + kShared; ++k) gain += cost[k] - other_cost[k];
      if (!(gain > 0)) continue;
      for (int k = r; k < r + kShared; ++k) {
        cost[k] = other_cost[k];
        out.shift[k] = other[k];
      }
    }
  }
  for (int g = 0; g < F::kGroups; ++g) {
    out.cost[g] = 0;
    for (int k = 0; k < F::kRowsPerGroup; ++k) out.cost[g] += cost[g * F::kRowsPerGroup + k];
  }
}

template <class F>
void find_rows(const Work<F>& work, const typename F::Book& book, Choice<F>& c) {
  alignas(64) float row_scale[F::kRows];
  for (int r = 0; r < F::kRows; ++r) row_scale[r] = c.scale[r / F::kRowsPerGroup];
  nearest_rows(work.rows, book, row_scale, c.shift, c.row);
}

template <class F>
void copy_group(const Choice<F>& from, int g, Choice<F>& to) {
  to.multiple[g] = from.multiple[g];
  to.scale[g] = from.scale[g];
  to.cost[g] = from.cost[g];
  for (int r = g * F::kRowsPerGroup; r < (g + 1) * F::kRowsPerGroup; ++r) to.shift[r] = from.shift[r];
}

/// Sums of w x q and w q q, where an element is a scale times q, and of the squared error itself, which costs are too
/// coarse for once it is small beside the elements.
struct Sums {
  float xq, qq, error;
  float best_scale() const { return qq > 0 && xq > 0 ? xq / qq : 0; }
};

template <class F, class Element, class Row, int n>
Sums group_sums(const Work<F>& work, const Grid<Row, n>& grid, const Choice<F>& c, int g) {
  Sums sums = {};
  for (int r = g * F::kRowsPerGroup; r < (g + 1) * F::kRowsPerGroup; ++r) {
    const Row row = grid.rows[c.row[r]];
    for (int i = 0; i < F::kElems; ++i) {
      const float x = work.rows.x[i][r], w = work.rows.w[i][r];
      const float q = static_cast<float>(static_cast<Element>(row >> (8 * i))) + c.shift[r];
      const float off = x - c.scale[g] * q;
      sums.xq += w * x * q;
      sums.qq += w * q * q;
      sums.error += w * off * off;
    }
  }
  return sums;
}

/// Of a block, whose elements are the unit times a multiple and q.
template <class F, class Element, class Row, int n>
Sums block_sums(const Work<F>& work, const Grid<Row, n>& grid, const Choice<F>& c) {
  Sums sums = {};
  for (int g = 0; g < F::kGroups; ++g) {
    const Sums of_group = group_sums<F, Element>(work, grid, c, g);
    const float multiple = 2 * c.multiple[g] + 1;
    sums.xq += multiple * of_group.xq;
    sums.qq += multiple * multiple * of_group.qq;
    sums.error += of_group.error;
  }
  return sums;
}

/// A scale for each group: the best of some, in units of the root of its mean square, and then what suits the rows that
/// it gives.
template <class F, class Element, class Row, int n, int kTrials>
void first_scales(const Work<F>& work, const typename F::Book& book, const Grid<Row, n>& grid,
                  const float (&trials)[kTrials], float (&scale)[F::kGroups]) {
  Choice<F> best = {}, trial = {};
  for (float& c : best.cost) c = 3e38f;
  for (const float factor : trials) {
    for (int g = 0; g < F::kGroups; ++g) trial.scale[g] = factor * work.rms[g];
    evaluate(work, book, trial);
    for (int g = 0; g < F::kGroups; ++g) {
      if (trial.cost[g] < best.cost[g]) copy_group(trial, g, best);
    }
  }
  find_rows(work, book, best);
  for (int g = 0; g < F::kGroups; ++g) scale[g] = group_sums<F, Element>(work, grid, best, g).best_scale();
}

template <class F>
float nearest_multiple(float scale, float unit) {
  if (unit == 0) return 0;
  const float multiple = (scale / unit - 1) * 0.5f;
  const float clamped = multiple < 0 ? 0 : multiple > F::kTopMultiple ? F::kTopMultiple : multiple;
  return (clamped + 0x1.8p23f) - 0x1.8p23f;
}

/// Of the units that bring the largest scale to the largest multiple or near it, the one that rounds best, as if a
/// group's error grew with the square of how far its scale is off.
template <class F>
float first_unit(const Work<F>& work, const float (&scale)[F::kGroups]) {
  float largest = 0;
  for (const float s : scale) largest = s > largest ? s : largest;
  float best = 0, best_cost = 3e38f;
  for (int k = 0; k < 16 && largest > 0; ++k) {
    const float unit = largest / ((2 * F::kTopMultiple + 1) * (1.05f - 0.025f * static_cast<float>(k)));
    float cost = 0;
    for (int g = 0; g < F::kGroups; ++g) {
      const float off = scale[g] > 0 ? (2 * nearest_multiple<F>(scale[g], unit) + 1) * unit / scale[g] - 1 : 0;
      cost += work.energy[g] * off * off;
    }
    best = cost < best_cost ? unit : best;
    best_cost = cost < best_cost ? cost : best_cost;
  }
  return best;
}

/// The multiples around `near` that leave the least error.
template <class F>
void choose_multiples(const Work<F>& work, const typename F::Book& book, const float (&near)[F::kGroups],
                      Choice<F>& best) {
  for (float& c : best.cost) c = 3e38f;
  Choice<F> trial = {};
  for (const float step : {0.0f, -1.0f, 1.0f}) {
    for (int g = 0; g < F::kGroups; ++g) {
      const float multiple = near[g] + step;
      trial.multiple[g] = multiple < 0 ? 0 : multiple > F::kTopMultiple ? F::kTopMultiple : multiple;
      trial.scale[g] = (2 * trial.multiple[g] + 1) * best.unit;
    }
    evaluate(work, book, trial);
    for (int g = 0; g < F::kGroups; ++g) {
      if (trial.cost[g] < best.cost[g]) copy_group(trial, g, best);
    }
  }
}

/// `kUnit` d stands in the type's formula.
template <class F>
void set_unit(const Work<F>& work, float unit, float k_unit, Choice<F>& c) {
  c.d = stored_half(unit / k_unit, 1.0f / work.factor);
  c.unit = loaded_half(c.d, work.factor) * k_unit;
}

/// Makes d larger, so that elements are nearer to as large as they were (shrinking.h).
template <class F>
void undo_shrinking(const Work<F>& work, float error, float k_unit, Choice<F>& c) {
  float energy = 0;
  for (const float e : work.energy) energy += e;
  set_unit(work, c.unit * growth<F::kUndo>(error, energy), k_unit, c);
}

/// pack(choice, signs, block) stores what was chosen.
template <class F, class Element, class Row, int n, int kTrials, class Pack>
void quantize_grid(const Source& s, std::byte* dst, const Grid<Row, n>& grid, float k_unit,
                   const float (&trials)[kTrials], const Pack& pack) {
  typename F::Book book;
  book.template fill<Element>(grid);
  for (std::int64_t i = 0; i < s.blocks; ++i) {
    Work<F> work;
    load_block<F>(s.x + i * kBlock, s.weights + i % s.blocks_per_row * kBlock, work);
    float scale[F::kGroups], near[F::kGroups];
    first_scales<F, Element>(work, book, grid, trials, scale);
    Choice<F> best = {};
    set_unit(work, first_unit(work, scale), k_unit, best);
    for (int g = 0; g < F::kGroups; ++g) near[g] = nearest_multiple<F>(scale[g], best.unit);
    choose_multiples(work, book, near, best);
    find_rows(work, book, best);
    Sums sums = block_sums<F, Element>(work, grid, best);
    for (int round = 0; round < F::kRounds && sums.best_scale() > 0; ++round) {
      Choice<F> next = {};
      set_unit(work, sums.best_scale(), k_unit, next);
      for (int g = 0; g < F::kGroups; ++g) {
        near[g] = nearest_multiple<F>((2 * best.multiple[g] + 1) * best.unit, next.unit);
      }
      choose_multiples(work, book, near, next);
      find_rows(work, book, next);
      const Sums next_sums = block_sums<F, Element>(work, grid, next);
      if (!(next_sums.error < sums.error)) break;
      best = next;
      sums = next_sums;
    }
    undo_shrinking(work, sums.error, k_unit, best);
    typename F::Block block;
    pack(best, work.signs, block);
    put(dst + i * static_cast<std::int64_t>(sizeof block), 0, block);
  }
}

template <class F>
void integers(const float (&multiple)[F::kGroups], std::uint8_t (&out)[F::kGroups]) {
  for (int g = 0; g < F::kGroups; ++g) out[g] = static_cast<std::uint8_t>(multiple[g]);
}

template <class F>
void pack_multiples(const Choice<F>& c, std::uint8_t* packed) {
  std::uint8_t s[F::kGroups];
  integers<F>(c.multiple, s);
  pack_pairs_of_nibbles(s, packed);
}

using BookIQ2_XXS = Book<8, 3, 256>;
using BookIQ2_XS = Book<8, 3, 512>;
using BookIQ2_S = Book<8, 3, 1024>;
using BookIQ3_XXS = Book<4, 8, 256>;
using BookIQ3_S = Book<4, 8, 512>;
using BookIQ1 = Book<8, 3, 2048>;

// The last is for elements of one magnitude, which the lowest level expresses.
constexpr float kTrialsIQ2[] = {0.030f, 0.034f, 0.038f, 0.042f, 0.046f, 0.050f,
                                0.054f, 0.059f, 0.064f, 0.070f, 0.077f, 0.125f};
constexpr float kTrialsIQ3[] = {0.024f, 0.027f, 0.030f, 0.033f, 0.036f, 0.039f, 0.042f, 0.045f, 0.049f, 0.053f, 0.25f};
constexpr float kTrialsIQ1[] = {0.9f, 1.1f, 1.3f};

/// IQ2_XXS and IQ3_XXS: four times seven signs and the multiple of 32 elements.
template <class F>
SignsAndScale signs_and_multiple(const Choice<F>& c, const std::uint8_t* signs, int group) {
  SignsAndScale word = static_cast<std::uint32_t>(c.multiple[group]) << 28;
  for (int k = 0; k < 4; ++k) word |= static_cast<std::uint32_t>(signs[4 * group + k] & 0x7f) << (7 * k);
  return word;
}

}  // namespace

void quantize_iq2_xxs(const Source& s, std::byte* dst) {
  using F = Format<BlockIQ2_XXS, BookIQ2_XXS, 32, 15, Signs::Seven, Shifts::None>;
  quantize_grid<F, std::uint8_t>(s, dst, kGridIQ2_XXS, 0.125f, kTrialsIQ2,
                                 [](const Choice<F>& c, const std::uint8_t* signs, BlockIQ2_XXS& b) {
                                   b.d = c.d;
                                   for (int g = 0; g < 8; ++g) {
                                     const SignsAndScale word = signs_and_multiple(c, signs, g);
                                     const std::int16_t* row = c.row + 4 * g;
                                     b.qs[4 * g] = static_cast<std::uint16_t>(row[0] | (row[1] << 8));
                                     b.qs[4 * g + 1] = static_cast<std::uint16_t>(row[2] | (row[3] << 8));
                                     b.qs[4 * g + 2] = static_cast<std::uint16_t>(word);
                                     b.qs[4 * g + 3] = static_cast<std::uint16_t>(word >> 16);
                                   }
                                 });
}

void quantize_iq2_xs(const Source& s, std::byte* dst) {
  using F = Format<BlockIQ2_XS, BookIQ2_XS, 16, 15, Signs::Seven, Shifts::None>;
  quantize_grid<F, std::uint8_t>(s, dst, kGridIQ2_XS, 0.125f, kTrialsIQ2,
                                 [](const Choice<F>& c, const std::uint8_t* signs, BlockIQ2_XS& b) {
                                   b.d = c.d;
                                   pack_multiples(c, b.scales);
                                   for (int r = 0; r < 32; ++r) {
                                     b.qs[r] = static_cast<std::uint16_t>(c.row[r] | ((signs[r] & 0x7f) << 9));
                                   }
                                 });
}

void quantize_iq2_s(const Source& s, std::byte* dst) {
  using F = Format<BlockIQ2_S, BookIQ2_S, 16, 15, Signs::Eight, Shifts::None, Undo::Whole>;
  quantize_grid<F, std::uint8_t>(s, dst, kGridIQ2_S, 0.125f, kTrialsIQ2,
                                 [](const Choice<F>& c, const std::uint8_t* signs, BlockIQ2_S& b) {
                                   b.d = c.d;
                                   pack_multiples(c, b.scales);
                                   __builtin_memcpy(b.signs, signs, sizeof b.signs);
                                   for (int i = 0; i < 8; ++i) {
                                     int high = 0;
                                     for (int k = 0; k < 4; ++k) high |= (c.row[4 * i + k] >> 8) << (2 * k);
                                     b.qh[i] = static_cast<std::uint8_t>(high);
                                   }
                                   for (int r = 0; r < 32; ++r) b.qs[r] = static_cast<std::uint8_t>(c.row[r]);
                                 });
}

void quantize_iq3_xxs(const Source& s, std::byte* dst) {
  using F = Format<BlockIQ3_XXS, BookIQ3_XXS, 32, 15, Signs::Seven, Shifts::None>;
  quantize_grid<F, std::uint8_t>(s, dst, kGridIQ3_XXS, 0.25f, kTrialsIQ3,
                                 [](const Choice<F>& c, const std::uint8_t* signs, BlockIQ3_XXS& b) {
                                   b.d = c.d;
                                   for (int r = 0; r < 64; ++r) b.qs[r] = static_cast<std::uint8_t>(c.row[r]);
                                   for (int g = 0; g < 8; ++g) {
                                     const SignsAndScale word = signs_and_multiple(c, signs, g);
                                     __builtin_memcpy(b.signs + 4 * g, &word, sizeof word);
                                   }
                                 });
}

void quantize_iq3_s(const Source& s, std::byte* dst) {
  using F = Format<BlockIQ3_S, BookIQ3_S, 32, 15, Signs::Eight, Shifts::None>;
  static constexpr float kTrials[] = {0.10f, 0.11f, 0.12f, 0.13f, 0.14f, 0.15f, 0.16f, 0.17f, 0.185f, 0.20f, 1.0f};
  quantize_grid<F, std::uint8_t>(s, dst, kGridIQ3_S, 1.0f, kTrials,
                                 [](const Choice<F>& c, const std::uint8_t* signs, BlockIQ3_S& b) {
                                   b.d = c.d;
                                   pack_multiples(c, b.scales);
                                   __builtin_memcpy(b.signs, signs, sizeof b.signs);
                                   for (int i = 0; i < 8; ++i) {
                                     int high = 0;
                                     for (int k = 0; k < 8; ++k) high |= (c.row[8 * i + k] >> 8) << k;
                                     b.qh[i] = static_cast<std::uint8_t>(high);
                                   }
                                   for (int r = 0; r < 64; ++r) b.qs[r] = static_cast<std::uint8_t>(c.row[r]);
                                 });
}

void quantize_iq1_s(const Source& s, std::byte* dst) {
  using F = Format<BlockIQ1_S, BookIQ1, 32, 7, Signs::InLevels, Shifts::PerGroup>;
  quantize_grid<F, std::int8_t>(s, dst, kGridIQ1, 1.0f, kTrialsIQ1,
                                [](const Choice<F>& c, const std::uint8_t*, BlockIQ1_S& b) {
                                  b.d = c.d;
                                  for (int g = 0; g < 8; ++g) {
                                    int h = (static_cast<int>(c.multiple[g]) << 12) | (c.shift[4 * g] < 0 ? 0x8000 : 0);
                                    for (int k = 0; k < 4; ++k) h |= (c.row[4 * g + k] >> 8) << (3 * k);
                                    b.qh[g] = static_cast<std::uint16_t>(h);
                                  }
                                  for (int r = 0; r < 32; ++r) b.qs[r] = static_cast<std::uint8_t>(c.row[r]);
                                });
}

void quantize_iq1_m(const Source& s, std::byte* dst) {
  using F = Format<BlockIQ1_M, BookIQ1, 16, 7, Signs::InLevels, Shifts::PerRow>;
  quantize_grid<F, std::int8_t>(s, dst, kGridIQ1, 1.0f, kTrialsIQ1,
                                [](const Choice<F>& c, const std::uint8_t*, BlockIQ1_M& b) {
                                  std::uint8_t multiples[16], high[32];
                                  integers<F>(c.multiple, multiples);
                                  pack_iq1_m_scales(c.d, multiples, b);
                                  for (int r = 0; r < 32; ++r) {
                                    b.qs[r] = static_cast<std::uint8_t>(c.row[r]);
                                    high[r] = static_cast<std::uint8_t>((c.row[r] >> 8) | (c.shift[r] < 0 ? 8 : 0));
                                  }
                                  pack_pairs_of_nibbles(high, b.qh);
                                });
}

}  // namespace llm::quantizers::LLM_ISA
