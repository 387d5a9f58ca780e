// The nearest row of a grid, exactly, for all rows of elements of a block side by side.
//
// The error of a row is a sum over its elements, so it is what one half of its elements costs plus what the other half
// does. A half takes few values: all of them are priced first, and a row then costs one addition. A lane is a row of
// elements.
#pragma once

#include "quantize/kernels/lanes.h"
#include "tensor/codebooks.h"

namespace llm::quantizers::LLM_ISA {

inline constexpr int kBlock = 256;  ///< elements

/// A block's elements as rows of N, transposed: column r is row r.
template <int N>
struct Rows {
  static constexpr int kRows = kBlock / N;
  alignas(64) float x[N][kRows];
  alignas(64) float w[N][kRows];
};

/// A grid sorted by the second halves of its rows.
template <int N, int kLevels, int kRows>
struct Book {
  static constexpr int kElems = N;
  static constexpr int kHalf = N / 2;
  static constexpr int kHalves = kHalf == 4 ? kLevels * kLevels * kLevels * kLevels : kLevels * kLevels;
  float level[kLevels];
  std::int16_t begin[kHalves + 1];  ///< rows with second half h are at begin[h] .. begin[h + 1]
  std::int16_t first[kRows];        ///< first half of the row there
  std::int16_t row[kRows];          ///< its number in the grid

  /// Element is how a byte of the grid is read.
  template <class Element, class Row>
  void fill(const Grid<Row, kRows>& grid) {
    bool seen[256] = {};
    for (const Row& r : grid.rows) {
      for (int i = 0; i < N; ++i) seen[static_cast<std::uint8_t>(r >> (8 * i))] = true;
    }
    int index_of[256], n = 0;
    for (int value = -128; value < 256; ++value) {  // ascending as Element
      const auto byte = static_cast<std::uint8_t>(value);
      if (static_cast<int>(static_cast<Element>(byte)) != value || !seen[byte]) continue;
      level[n] = static_cast<float>(value);
      index_of[byte] = n++;
    }
    const auto half = [&](Row r, int which) {
      int h = 0;
      for (int i = kHalf - 1; i >= 0; --i) {
        h = h * kLevels + index_of[static_cast<std::uint8_t>(r >> (8 * (kHalf * which + i)))];
      }
      return h;
    };
    int second[kRows];
    for (int r = 0; r < kRows; ++r) second[r] = half(grid.rows[r], 1);
    int at = 0;
    for (int h = 0; h < kHalves; ++h) {
      begin[h] = static_cast<std::int16_t>(at);
      for (int r = 0; r < kRows; ++r) {
        if (second[r] != h) continue;
        first[at] = static_cast<std::int16_t>(half(grid.rows[r], 0));
        row[at++] = static_cast<std::int16_t>(r);
      }
    }
    begin[kHalves] = static_cast<std::int16_t>(at);
  }
};

/// What all values of kHalf neighbouring elements cost, from element `from` on: sum of w (s g - x)^2 - w x^2, where g
/// is a level and the shift.
template <class B>
void price_halves(const Rows<B::kElems>& rows, int from, int c, const B& book, Floats scale, Floats shift,
                  Floats (&price)[B::kHalves]) {
  constexpr int kLevels = static_cast<int>(sizeof(book.level) / sizeof(float));
  int n = 1;
  price[0] = Floats{};
  for (int i = B::kHalf - 1; i >= 0; --i) {  // the last element counts most
    const Floats x = load(&rows.x[from + i][c]), w = load(&rows.w[from + i][c]);
    Floats element[kLevels];
    for (int k = 0; k < kLevels; ++k) {
      const Floats value = scale * (book.level[k] + shift);
      element[k] = w * value * (value - (x + x));
    }
    for (int h = n - 1; h >= 0; --h) {
      for (int k = kLevels - 1; k >= 0; --k) price[h * kLevels + k] = price[h] + element[k];
    }
    n *= kLevels;
  }
}

/// What the nearest row of the grid costs, for each row of elements with its scale and shift. Which one that is is
/// asked less often: nearest_rows(). Vectors are searched two by two, because one would wait for its own comparisons.
template <class B>
void grid_costs(const Rows<B::kElems>& rows, const B& book, const float* scale, const float* shift, float* cost) {
  for (int c = 0; c < Rows<B::kElems>::kRows; c += 2 * kLanes) {
    Floats first[2][B::kHalves], second[2][B::kHalves];
    for (int v = 0; v < 2; ++v) {
      const int at = c + v * kLanes;
      price_halves(rows, 0, at, book, load(scale + at), load(shift + at), first[v]);
      price_halves(rows, B::kHalf, at, book, load(scale + at), load(shift + at), second[v]);
    }
    Floats best[2] = {all(3e38f), all(3e38f)};
    for (int h = 0; h < B::kHalves; ++h) {
      Floats least[2] = {all(3e38f), all(3e38f)};
      for (int at = book.begin[h]; at < book.begin[h + 1]; ++at) {
        least[0] = lesser(first[0][book.first[at]], least[0]);
        least[1] = lesser(first[1][book.first[at]], least[1]);
      }
      best[0] = lesser(second[0][h] + least[0], best[0]);
      best[1] = lesser(second[1][h] + least[1], best[1]);
    }
    store(cost + c, best[0]);
    store(cost + c + kLanes, best[1]);
  }
}

/// The nearest row of the grid: the first half among those that its second half goes with.
template <class B>
void nearest_rows(const Rows<B::kElems>& rows, const B& book, const float* scale, const float* shift,
                  std::int16_t* nearest) {
  for (int c = 0; c < Rows<B::kElems>::kRows; c += kLanes) {
    Floats first[B::kHalves], second[B::kHalves];
    price_halves(rows, 0, c, book, load(scale + c), load(shift + c), first);
    price_halves(rows, B::kHalf, c, book, load(scale + c), load(shift + c), second);
    Floats best = all(3e38f), best_first = {};
    Ints best_half = {};
    for (int h = 0; h < B::kHalves; ++h) {
      Floats least = all(3e38f);
      for (int at = book.begin[h]; at < book.begin[h + 1]; ++at) least = lesser(first[book.first[at]], least);
      const Floats total = second[h] + least;
      best_half = total < best ? Ints{} + h : best_half;
      best_first = total < best ? least : best_first;
      best = lesser(total, best);
    }
    for (int l = 0; l < kLanes; ++l) {
      int at = book.begin[best_half[l]];
      while (first[book.first[at]][l] != best_first[l]) ++at;
      nearest[c + l] = book.row[at];
    }
  }
}

}  // namespace llm::quantizers::LLM_ISA
