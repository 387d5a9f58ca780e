#include "model/stored_weight.h"

#include <charconv>

#include "base/error.h"

namespace llm {
namespace {

std::optional<RowRange> rows_in(std::string_view weight) {
  const std::size_t begin = weight.rfind('[');
  if (!weight.ends_with(']') || begin == std::string_view::npos) return std::nullopt;
  const std::string_view text = weight.substr(begin + 1, weight.size() - begin - 2);
  RowRange rows;
  const auto plus = std::from_chars(text.data(), text.data() + text.size(), rows.first);
  if (plus.ec != std::errc() || plus.ptr == text.data() + text.size() || *plus.ptr != '+') return std::nullopt;
  const auto end = std::from_chars(plus.ptr + 1, text.data() + text.size(), rows.n);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() ? std::optional(rows) : std::nullopt;
}

TensorInfo rows_of(TensorInfo t, RowRange rows) {
  const bool vector = t.type.shape.n_dims() == 1;
  const std::uint64_t row_bytes = vector ? TensorType{t.type.dtype, {1}}.bytes() : t.type.row_bytes();
  t.data_offset += static_cast<std::uint64_t>(rows.first) * row_bytes;
  t.type.shape = vector ? Shape{rows.n} : Shape{t.type.shape[0], rows.n};
  return t;
}

}  // namespace

std::string rows_name(std::string_view tensor, RowRange rows) {
  return std::string(tensor) + "[" + std::to_string(rows.first) + "+" + std::to_string(rows.n) + "]";
}

std::string_view tensor_of(std::string_view weight) {
  return rows_in(weight) ? weight.substr(0, weight.rfind('[')) : weight;
}

StoredWeight find_weight(std::string_view graph_name, const GgufFile& model, std::span<const LoraAdapter> adapters) {
  StoredWeight found{.file = &model};
  const std::string_view name = tensor_of(graph_name);
  const TensorInfo* tensor = model.tensors().find(name);
  for (const LoraAdapter& adapter : adapters) {
    const TensorInfo* const half = adapter.find_in_graph(name);
    if (half == nullptr) continue;
    found.file = &adapter.file();
    tensor = half;
    break;
  }
  if (tensor == nullptr) return found;
  const auto rows = rows_in(graph_name);
  found.tensor = rows ? rows_of(*tensor, *rows) : *tensor;
  return found;
}

}  // namespace llm
