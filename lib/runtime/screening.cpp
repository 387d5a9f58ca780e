#include "runtime/screening.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "model/stored_weight.h"
#include "tensor/decode.h"

namespace llm {
namespace {

bool is_non_finite(float f) { return (std::bit_cast<std::uint32_t>(f) & 0x7f800000u) == 0x7f800000u; }

bool is_screened(const ValueInfo& value) {
  if (value.kind != ValueKind::Weight || info(value.type.dtype).quantized()) return false;
  return value.type.shape.rows() == 1 || value.name.find("ffn_gate_inp") != std::string::npos;
}

void screen(const GgufFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> stored(tensor.type.bytes());
  file.read(tensor, stored);
  std::vector<float> values(static_cast<std::size_t>(tensor.type.shape.elements()));
  decode(tensor.type.dtype, stored.data(), values.data(), tensor.type.shape.elements());
  const auto bad = first_non_finite(values);
  if (!bad) return;
  const std::string found = std::isnan(values[*bad]) ? "NaN" : "infinite";
  file.fail(tensor, "element " + std::to_string(*bad) + " is " + found + "; all must be finite");
}

/// A router's table names its experts.
void screen_routes(const GgufFile& file, const TensorInfo& tensor, std::int64_t experts) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tensor.type.shape.elements()));
  file.read(tensor, std::as_writable_bytes(std::span(ids)));
  const auto bad = std::ranges::find_if(ids, [&](std::int32_t id) { return id < 0 || id >= experts; });
  if (bad == ids.end()) return;
  file.fail(tensor, "element " + std::to_string(bad - ids.begin()) + " is " + std::to_string(*bad) +
                        ", which is none of " + std::to_string(experts) + " experts");
}

}  // namespace

std::optional<std::size_t> first_non_finite(std::span<const float> values) {
  // Whole chunks without a branch per value, so that the common case runs at memory speed.
  constexpr std::size_t kChunk = 1024;
  for (std::size_t begin = 0; begin < values.size(); begin += kChunk) {
    const std::span<const float> chunk = values.subspan(begin, std::min(kChunk, values.size() - begin));
    unsigned bad = 0;
    for (const float f : chunk) bad |= static_cast<unsigned>(is_non_finite(f));
    if (bad == 0) continue;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      if (is_non_finite(chunk[i])) return begin + i;
    }
  }
  return std::nullopt;
}

void screen_small_weights(const GgufFile& file, std::span<const LoraAdapter> adapters, const Graph& graph) {
  for (const ValueInfo& value : graph.values()) {
    if (!is_screened(value)) continue;
    const StoredWeight w = find_weight(value.name, file, adapters);
    if (w.tensor) screen(*w.file, *w.tensor);
  }
  for (const Node& node : graph.nodes()) {
    if (!std::holds_alternative<Route>(node.op) || node.in.size() != 3) continue;
    const StoredWeight table = find_weight(graph.info(node.in[1]).name, file, adapters);
    if (table.tensor) screen_routes(*table.file, *table.tensor, graph.info(node.in[0]).type.shape[0]);
  }
}

}  // namespace llm
