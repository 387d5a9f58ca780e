// Unpacks the grids while this is compiled.
#include "tensor/codebooks.h"

namespace llm {
namespace {

#include "tensor/codebooks.inc"

constexpr std::int8_t kLevelsIQ2[] = {8, 25, 43};
constexpr std::int8_t kLevelsIQ3_XXS[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::int8_t kLevelsIQ3_S[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr std::int8_t kLevelsIQ1[] = {-1, 0, 1};

template <class Row, int n>
constexpr Grid<Row, n> unpack(const std::uint16_t (&packed)[n], const std::int8_t* levels) {
  constexpr unsigned kElems = sizeof(Row);
  constexpr unsigned kBits = kElems == 8 ? 2 : 3;
  Grid<Row, n> grid{};
  for (int r = 0; r < n; ++r) {
    for (unsigned i = 0; i < kElems; ++i) {
      const int level = levels[(packed[r] >> (kBits * i)) & ((1u << kBits) - 1)];
      grid.rows[r] |= static_cast<Row>(static_cast<std::uint8_t>(level)) << (8 * i);
    }
  }
  return grid;
}

}  // namespace

constinit const Grid<std::uint64_t, 256> kGridIQ2_XXS = unpack<std::uint64_t>(kPackedIQ2_XXS, kLevelsIQ2);
constinit const Grid<std::uint64_t, 512> kGridIQ2_XS = unpack<std::uint64_t>(kPackedIQ2_XS, kLevelsIQ2);
constinit const Grid<std::uint64_t, 1024> kGridIQ2_S = unpack<std::uint64_t>(kPackedIQ2_S, kLevelsIQ2);
constinit const Grid<std::uint32_t, 256> kGridIQ3_XXS = unpack<std::uint32_t>(kPackedIQ3_XXS, kLevelsIQ3_XXS);
constinit const Grid<std::uint32_t, 512> kGridIQ3_S = unpack<std::uint32_t>(kPackedIQ3_S, kLevelsIQ3_S);
constinit const Grid<std::uint64_t, 2048> kGridIQ1 = unpack<std::uint64_t>(kPackedIQ1, kLevelsIQ1);

}  // namespace llm
