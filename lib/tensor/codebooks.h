// The tables that the IQ, MXFP4 and NVFP4 types choose their elements from. No code: kernels compiled for other
// instruction sets include this.
#pragma once

#include <cstdint>

namespace llm {

/// A row holds neighbouring elements, the first in the lowest byte.
template <class Row, int n>
struct Grid {
  static constexpr int kElems = sizeof(Row);
  static constexpr int kLevelBits = kElems == 8 ? 2 : 3;
  Row rows[n];
  std::uint16_t levels[n];  ///< element i of the row is level number (levels >> (kLevelBits * i)) % 2^kLevelBits
};

extern const Grid<std::uint64_t, 256> kGridIQ2_XXS;  ///< 8 magnitudes
extern const Grid<std::uint64_t, 512> kGridIQ2_XS;
extern const Grid<std::uint64_t, 1024> kGridIQ2_S;
extern const Grid<std::uint32_t, 256> kGridIQ3_XXS;  ///< 4 magnitudes
extern const Grid<std::uint32_t, 512> kGridIQ3_S;
extern const Grid<std::uint64_t, 2048> kGridIQ1;  ///< 8 int8; IQ1_S and IQ1_M

inline constexpr std::int8_t kLevelsIQ2[] = {8, 25, 43};
inline constexpr std::int8_t kLevelsIQ3_XXS[] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr std::int8_t kLevelsIQ3_S[] = {1, 3, 5, 7, 9, 11, 13, 15};
inline constexpr std::int8_t kLevelsIQ1[] = {-1, 0, 1};

/// IQ4_NL and IQ4_XS
inline constexpr std::int8_t kValuesIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of a float of a sign, 2 bits of exponent and 1 of mantissa. MXFP4 and NVFP4
inline constexpr std::int8_t kValuesE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace llm
