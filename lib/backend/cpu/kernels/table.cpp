// The table of this instruction set; of one with a base (cmake/kernels.cmake) what differs from the base's.
#include <iterator>

#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/kernels/elementwise.h"
#include "backend/cpu/kernels/float_linear.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/quant_linear.h"
#include "backend/cpu/kernels/recurrent.h"
#include "tensor/dtype.h"

#define LLM_TEXT_OF(x) #x
#define LLM_TEXT(x) LLM_TEXT_OF(x)
#define LLM_JOIN_OF(a, b) a##b
#define LLM_JOIN(a, b) LLM_JOIN_OF(a, b)

namespace llm::cpu {

#if defined(LLM_ISA_amx)

const Kernels& kernels_amx() {
  static const Kernels table = [] {
    Kernels k = kernels_avx512bf16();
    k.isa = LLM_TEXT(LLM_ISA);
#define LLM_SET_LINEAR(name, type) k.linear[static_cast<int>(DType::type)] = LLM_ISA::linear_##name;
    LLM_QUANT_TYPES(LLM_SET_LINEAR)
#undef LLM_SET_LINEAR
    k.linear[static_cast<int>(DType::BF16)] = LLM_ISA::linear_bf16;
    k.quantize_rows[static_cast<int>(ActFormat::BF16)] = LLM_ISA::round_rows_bf16;
    return k;
  }();
  return table;
}

#elif defined(LLM_ISA_avx512bf16)

const Kernels& kernels_avx512bf16() {
  static const Kernels table = [] {
    Kernels k = kernels_avx512();
    k.isa = LLM_TEXT(LLM_ISA);
    k.linear[static_cast<int>(DType::BF16)] = LLM_ISA::linear_bf16;
    k.quantize_rows[static_cast<int>(ActFormat::BF16)] = LLM_ISA::round_rows_bf16;
    return k;
  }();
  return table;
}

#else

namespace LLM_ISA {
namespace {

static_assert(std::size(Kernels{}.quantize_rows) == kActFormats);

constexpr void set(Kernels& k, DType type, LinearFn f) { k.linear[static_cast<int>(type)] = f; }

/// What multiplies bytes.
constexpr void set_byte_products(Kernels& k) {
#define LLM_SET_LINEAR(name, type) set(k, DType::type, linear_##name);
  LLM_QUANT_TYPES(LLM_SET_LINEAR)
#undef LLM_SET_LINEAR
  k.attention = attention;
  k.attention_chunk = attention_chunk;
  k.attention_merge = attention_merge;
  k.attention_add = attention_add;
  k.attention_finish = attention_finish;
  k.index_scores = index_scores;
}

#if !defined(LLM_ISA_neondotprod)

constexpr void set_linear(Kernels& k) {
  set(k, DType::F32, linear_f32);
  set(k, DType::F16, linear_f16);
  set(k, DType::BF16, linear_bf16);
  set(k, DType::F64, linear_f64);
}

constexpr Kernels make_table() {
  Kernels k{};
  k.isa = LLM_TEXT(LLM_ISA);
  set_linear(k);
  k.quantize_rows[static_cast<int>(ActFormat::F32)] = copy_rows;
  k.quantize_rows[static_cast<int>(ActFormat::BF16)] = round_rows_bf16;
  k.quantize_rows[static_cast<int>(ActFormat::Q8x32)] = quantize_rows_q8x32;
  k.quantize_rows[static_cast<int>(ActFormat::Q8x256)] = quantize_rows_q8x256;
  k.rms_norm = rms_norm;
  k.add_rms_norm = add_rms_norm;
  k.layer_norm = layer_norm;
  k.gelu = gelu;
  k.squared_relu = squared_relu;
  k.exp = exp;
  k.sigmoid = sigmoid;
  k.softplus = softplus;
  k.add = add;
  k.mul = mul;
  k.silu_mul = silu_mul;
  k.gelu_mul = gelu_mul;
  k.clamped_silu_mul = clamped_silu_mul;
  k.relu_mul = relu_mul;
  k.limited_silu_mul = limited_silu_mul;
  k.sigmoid_mul = sigmoid_mul;
  k.softplus_mul = softplus_mul;
  k.scale = scale;
  k.soft_cap = soft_cap;
  k.clamp = clamp;
  k.xielu = xielu;
  k.axpy = axpy;
  k.rope_interleaved = rope_interleaved;
  k.rope_halves = rope_halves;
  k.short_conv = short_conv;
  k.compress = compress;
  k.gated_delta = gated_delta;
  k.selective_scan = selective_scan;
  k.wkv = wkv;
  k.store_row[static_cast<int>(CacheElement::F32)] = store_row_f32;
  k.store_row[static_cast<int>(CacheElement::F16)] = store_row_f16;
  k.store_row[static_cast<int>(CacheElement::BF16)] = store_row_bf16;
  k.store_row[static_cast<int>(CacheElement::F8_E4M3)] = store_row_f8_e4m3;
  set_byte_products(k);
  return k;
}

constexpr Kernels kTable = make_table();

#endif

}  // namespace
}  // namespace LLM_ISA

#if defined(LLM_ISA_neondotprod)

const Kernels& kernels_neondotprod() {
  static const Kernels table = [] {
    Kernels k = kernels_neon();
    k.isa = LLM_TEXT(LLM_ISA);
    LLM_ISA::set_byte_products(k);
    return k;
  }();
  return table;
}

#else

const Kernels& LLM_JOIN(kernels_, LLM_ISA)() { return LLM_ISA::kTable; }

#endif
#endif

}  // namespace llm::cpu
