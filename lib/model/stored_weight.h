// Where the weights of a model's graphs lie: whole tensors of its file or of its adapters, or rows of one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gguf/file.h"
#include "model/lora.h"

namespace llm {

/// Rows of a matrix, or elements of a vector: what files keep of several products in one tensor.
struct RowRange {
  std::int64_t first = 0, n = 0;
};
/// "blk.0.attn_qkv.weight[3072+1024]": these rows of a tensor as a weight of their own.
std::string rows_name(std::string_view tensor, RowRange);
/// "blk.0.attn_qkv.weight", of such a name and of itself.
std::string_view tensor_of(std::string_view weight);

struct StoredWeight {
  const GgufFile* file = nullptr;
  std::optional<TensorInfo> tensor = {};  ///< as if the rows were a tensor; nothing: nowhere
};
StoredWeight find_weight(std::string_view graph_name, const GgufFile& model, std::span<const LoraAdapter> adapters);

}  // namespace llm
