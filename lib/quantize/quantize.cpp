#include "quantize/quantize.h"

#include <cmath>
#include <string>

#include "base/error.h"
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

}  // namespace

void quantize(DType t, const float* src, std::byte* dst, std::int64_t rows, std::int64_t n, const float* importance) {
  check(n % info(t).block_elems == 0, "only whole blocks are quantised");
  check_source(src, rows, n);
  if (importance != nullptr) check_importance(importance, n);
  encode(t, src, dst, rows * n);
}

bool needs_importance(DType t) {
  const std::string_view type = name(t);
  return type.starts_with("IQ1") || type.starts_with("IQ2") || type == "IQ3_XXS";
}

}  // namespace llm
