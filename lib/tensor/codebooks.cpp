// Unpacks the grids while this is compiled.
#include "tensor/codebooks.h"

namespace llm {
namespace {

#include "tensor/codebooks.inc"

template <class Row, int n>
constexpr Grid<Row, n> unpack(const std::uint16_t (&packed)[n], const std::int8_t* levels) {
  using G = Grid<Row, n>;
  G grid{};
  for (int r = 0; r < n; ++r) {
    grid.levels[r] = packed[r];
    for (int i = 0; i < G::kElems; ++i) {
      const int level = levels[(packed[r] >> (G::kLevelBits * i)) & ((1 << G::kLevelBits) - 1)];
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
