// Which of the two forms of a product serves a number of columns, and the functions made of them. All forms give the
// same bits (quant_linear.h).
#pragma once

#include "backend/cpu/kernels/quant_gemm.h"
#include "backend/cpu/kernels/quant_gemv.h"
#include "backend/cpu/kernels/quant_linear.h"
#include "backend/cpu/kernels/quant_portable.h"

#ifdef LLM_QUANT_SIMD

namespace llm::cpu::LLM_ISA::quant {

/// `Stream` and `Panel` unpack the same storage type.
template <class Stream, class Panel>
void linear(const LinearArgs& args, i64 row_begin, i64 row_end, std::byte* scratch) {
  if (stream<Stream, kStreamColumns<Stream>>(args, row_begin, row_end, scratch)) return;
  gemm<Panel>(args, row_begin, row_end, scratch);
}

}  // namespace llm::cpu::LLM_ISA::quant

#endif

/// Defines linear_<name>: `stream` and `panel` of namespace quant, or for the portable set linear_plain<block, ...>.
#ifdef LLM_QUANT_SIMD
#define LLM_DEFINE_LINEAR(name, stream, panel, ...)                                                              \
  void linear_##name(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) { \
    quant::linear<quant::stream, quant::panel>(args, row_begin, row_end, scratch);                               \
  }
/// The same for a type that is unpacked by pieces.
#define LLM_DEFINE_LINEAR_PIECES(name, weights, ...)                                                                   \
  void linear_##name(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) {       \
    quant::linear<quant::StreamOf<quant::weights>, quant::PanelOf<quant::weights>>(args, row_begin, row_end, scratch); \
  }
#else
#define LLM_DEFINE_LINEAR(name, stream, panel, ...)                                                              \
  void linear_##name(const LinearArgs& args, std::int64_t row_begin, std::int64_t row_end, std::byte* scratch) { \
    linear_plain<__VA_ARGS__>(args, row_begin, row_end, scratch);                                                \
  }
#define LLM_DEFINE_LINEAR_PIECES(name, weights, ...) LLM_DEFINE_LINEAR(name, , , __VA_ARGS__)
#endif
