// Checks, weights and the choice of an instruction set; the searches are in kernels/.
#include "quantize/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/instruction_sets.h"
#include "quantize/kernels/kernels.h"
#include "tensor/quantize.h"

namespace llm {
namespace {

/// A row at a time as whole numbers, which is vectorised: what is not finite has all bits of the exponent set.
void check_source(const float* src, std::int64_t rows, std::int64_t n) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* x = src + row * n;
    std::uint32_t all_set = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      all_set |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(x[i]) & kInfinity) == kInfinity);
    }
    if (all_set == 0) continue;
    const auto i = std::find_if_not(x, x + n, [](float v) { return std::isfinite(v); }) - x;
    throw Error(ErrorKind::Numeric, "element " + std::to_string(i) + " of row " + std::to_string(row) + " is " +
                                        std::to_string(x[i]) + ", and only finite values can be quantised");
  }
}

void check_importance(const float* importance, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isfinite(importance[i]) && importance[i] >= 0) continue;
    throw Error(ErrorKind::Numeric, "the importance of column " + std::to_string(i) + " is " +
                                        std::to_string(importance[i]) + ", and must be finite and not negative");
  }
}

/// Importance brought near 1 by a power of two. Beside a column that outweighs its neighbours beyond what the sums of
/// the searches can resolve, these count a little more than they should; and where none matters, all do.
std::vector<float> row_weights(const float* importance, std::int64_t n) {
  std::vector<float> w(static_cast<std::size_t>(n), 1.0f);
  const float largest = importance == nullptr ? 0.0f : *std::max_element(importance, importance + n);
  if (largest == 0) return w;
  int exponent;
  std::frexp(largest, &exponent);
  constexpr std::int64_t kNeighbours = 32;
  constexpr float kLeast = 0x1p-14f;
  for (std::int64_t i = 0; i < n; i += kNeighbours) {
    const std::int64_t end = std::min(i + kNeighbours, n);
    const float least = std::ldexp(*std::max_element(importance + i, importance + end), 1 - exponent) * kLeast;
    for (std::int64_t k = i; k < end; ++k) {
      w[static_cast<std::size_t>(k)] = std::max(std::ldexp(importance[k], 1 - exponent), least) + 0x1p-40f;
    }
  }
  return w;
}

struct QuantizerSet {
  std::string_view name;
  quantizers::BlocksFn (*of)(DType);
};

// The slowest first. All give the same bytes. The portable one's vectors are NEON's registers on ARM64.
const QuantizerSet kSets[] = {
    {"portable", quantizers::quantizer_portable},
#if defined(LLM_HAS_ISA_avx2)
    {"avx2", quantizers::quantizer_avx2},
#endif
#if defined(LLM_HAS_ISA_avx512)
    {"avx512", quantizers::quantizer_avx512},
#endif
};

/// The last one that the program's instruction set includes.
const QuantizerSet& choose_set() {
  const InstructionSet& set = choose_instruction_set();
  return *std::find_if(std::rbegin(kSets), std::rend(kSets),
                       [&](const QuantizerSet& s) { return includes(set, s.name); });
}

}  // namespace

void quantize(DType t, const float* src, std::byte* dst, std::int64_t rows, std::int64_t n, const float* importance) {
  check(n % info(t).block_elems == 0, "only whole blocks are quantised");
  if (rows == 0 || n == 0) return;
  check_source(src, rows, n);
  if (importance != nullptr) check_importance(importance, n);
  static const QuantizerSet& set = choose_set();
  const quantizers::BlocksFn quantizer = set.of(t);
  if (quantizer == nullptr) return encode(t, src, dst, rows * n);
  const std::vector<float> weights = row_weights(importance, n);
  const std::int64_t blocks_per_row = n / info(t).block_elems;
  quantizer({src, weights.data(), rows * blocks_per_row, blocks_per_row}, dst);
}

bool needs_importance(DType t) {
  const std::string_view type = name(t);
  return type.starts_with("IQ1") || type.starts_with("IQ2") || type == "IQ3_XXS";
}

}  // namespace llm
