#include "quantize/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "quantize/kernels/kernels.h"
#include "tensor/quantize.h"

namespace llm {
namespace {

void check_source(const float* src, std::int64_t rows, std::int64_t n) {
  for (std::int64_t i = 0; i < rows * n; ++i) {
    if (std::isfinite(src[i])) continue;
    throw Error(ErrorKind::Numeric, "element " + std::to_string(i % n) + " of row " + std::to_string(i / n) + " is " +
                                        std::to_string(src[i]) + ", and only finite values can be quantised");
  }
}

void check_importance(const float* importance, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isfinite(importance[i]) && importance[i] >= 0) continue;
    throw Error(ErrorKind::Numeric, "the importance of column " + std::to_string(i) + " is " +
                                        std::to_string(importance[i]) + ", and must be finite and not negative");
  }
}

/// Importance brought near 1 by a power of two; columns without any keep a little, so that no block is without.
std::vector<float> row_weights(const float* importance, std::int64_t n) {
  std::vector<float> w(static_cast<std::size_t>(n), 1.0f);
  const float largest = importance == nullptr ? 0.0f : *std::max_element(importance, importance + n);
  if (largest == 0) return w;
  int exponent;
  std::frexp(largest, &exponent);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::ldexp(importance[i], 1 - exponent) + 0x1p-30f;
  return w;
}

using Choose = quantizers::BlocksFn (*)(DType);

/// The widest instruction set that runs here. Which one it is changes no result.
Choose choose_quantizers() {
#if defined(LLM_HAS_ISA_avx512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("avx512vbmi")) {
    return quantizers::quantizer_avx512;
  }
#endif
#if defined(LLM_HAS_ISA_avx2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return quantizers::quantizer_avx2;
#endif
  return quantizers::quantizer_portable;
}

}  // namespace

void quantize(DType t, const float* src, std::byte* dst, std::int64_t rows, std::int64_t n, const float* importance) {
  check(n % info(t).block_elems == 0, "only whole blocks are quantised");
  check_source(src, rows, n);
  if (importance != nullptr) check_importance(importance, n);
  static const Choose choose = choose_quantizers();
  const quantizers::BlocksFn quantizer = choose(t);
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
