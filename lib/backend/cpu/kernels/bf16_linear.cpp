// Products of BF16 weights with BF16 activations.
#include "backend/cpu/kernels/float_linear.h"
#include "backend/cpu/kernels/float_tile.h"

namespace llm::cpu::LLM_ISA {

namespace {

/// Out of line: no arithmetic may be moved to where subnormals count.
[[gnu::noinline]] void multiply(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end) {
  floats::linear<BFloat16>(a, row_begin, row_end);
}

}  // namespace

void round_rows_bf16(const float* x, std::int64_t ldx, std::byte* act, const ActLayout& layout, std::int64_t row_begin,
                     std::int64_t row_end) {
  constexpr int kStep = floats::Form<BFloat16>::kRegister;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const float* from = x + row * ldx;
    auto* to = reinterpret_cast<BFloat16*>(act + static_cast<std::size_t>(row) * layout.row_bytes);
    for (std::int64_t k = 0; k < layout.k; k += kStep) {
      const int n = static_cast<int>(layout.k - k < kStep ? layout.k - k : kStep), second = n > 16 ? n - 16 : 0;
      store(to + k, load_first(from + k, n - second));
      store(to + k + 16, load_first(from + k + (n - second), second));
    }
  }
}

void linear_bf16(const LinearArgs& a, std::int64_t row_begin, std::int64_t row_end, std::byte*) {
  const SubnormalsAsZero mode;
  multiply(a, row_begin, row_end);
}

}  // namespace llm::cpu::LLM_ISA
