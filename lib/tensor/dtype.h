// Storage types of tensors and their traits, generated from dtypes.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace llm {

enum class DType : std::uint8_t {
#define LLM_DTYPE(name, id, elems, block, use, activation) name,
#include "tensor/dtypes.def"
#undef LLM_DTYPE
};

enum class DTypeUse : std::uint8_t { Weight, Data, Cache };

/// How the activations of a product with a weight of some type are stored (tensor/activation.h defines the quantised
/// ones).
enum class ActFormat : std::uint8_t {
  F32,     ///< as they are
  BF16,    ///< rounded to nearest even
  Q8x32,   ///< int8, one f32 scale per 32 elements
  Q8x256,  ///< int8, one f32 scale per 256 elements
};
inline constexpr int kActFormats = 4;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::optional<std::uint32_t> gguf_id;  ///< none of a type that only caches have
  std::uint32_t block_elems;             ///< elements per block; a row is a whole number of blocks
  std::uint32_t block_bytes;
  DTypeUse use;
  ActFormat activation;
  bool quantized() const { return block_elems > 1; }
};

/// All storage types in the order of dtypes.def; indexable by static_cast<size_t>(DType).
std::span<const DTypeInfo> dtypes();
const DTypeInfo& info(DType);
inline std::string_view name(DType t) { return info(t).name; }
std::string_view name(ActFormat);

std::optional<DType> dtype_from_gguf(std::uint32_t gguf_id);
std::optional<DType> dtype_from_name(std::string_view name);

/// Why a type id of a file cannot be used, in words: a type removed from the format, one of another program's, or an
/// unknown number. Call only where dtype_from_gguf() gives nothing.
std::string explain_unsupported_gguf_type(std::uint32_t gguf_id);

/// What other programs keep under the type's id in blocks of another size, in words; empty for most types. For files
/// whose tensors do not lie where their types say.
std::string_view other_use_of_gguf_id(DType);

}  // namespace llm
