// Bytes and operations per node.
#include "backend/host/cost.h"

#include <algorithm>
#include <bitset>
#include <limits>
#include <variant>

#include "graph/weight_parts.h"
#include "tensor/dtype.h"

namespace llm::host {
namespace {

constexpr std::int64_t kCountedExperts = 4096;

class Costing {
 public:
  Costing(const Graph& graph, const Node& node, const StepData& step, const StepRows& rows, CacheFormat format,
          const std::int32_t* experts)
      : graph_(graph), node_(node), step_(step), rows_(rows), format_(format), experts_(experts) {}

  NodeCost cost() {
    for (const std::uint32_t id : node_.in) add_operand(id);
    for (const std::uint32_t id : node_.out) add_operand(id);
    std::visit(*this, node_.op);
    return {static_cast<std::uint64_t>(bytes_), static_cast<std::uint64_t>(operations_)};
  }

  void operator()(const Linear& op) {
    const std::int64_t rows = elements(node_.in[0]) / width(node_.in[0]);
    for (std::size_t i = 0; i < op.products.size(); ++i) {
      operations_ += 2 * type(node_.in[1 + i]).shape.elements() * rows;
    }
  }
  void operator()(const ExpertLinear& op) {
    const std::int64_t routes = elements(node_.in[1]);
    for (std::size_t i = 0; i < op.products.size(); ++i) {
      const TensorType& w = type(node_.in[2 + i]);
      operations_ += 2 * w.shape[0] * w.shape[1] * routes;
    }
  }
  void operator()(const Embed&) {}
  void operator()(const KvAppend&) {
    bytes_ += cache_bytes(elements(node_.in[0]), format_.k) / graph_.info(node_.in.back()).cache.stride;
    if (node_.in.size() > 2) bytes_ += cache_bytes(elements(node_.in[1]), format_.v);
  }
  /// Of tokens that see more keys than are selected.
  void operator()(const SelectKeys& op) {
    const CacheType& index = graph_.info(node_.in.back()).cache;
    const std::int64_t heads = type(node_.in[0]).shape[1];
    for (const SequenceSpan& span : step_.sequences) {
      std::int64_t pairs = 0;
      for (std::int64_t keys = span.kv_len - span.n_tokens + 1; keys <= span.kv_len; ++keys)
        pairs += keys > chooses_from(op, index) ? keys / index.stride : 0;
      operations_ += 2 * pairs * heads * (index.head_dim_k + 1);
      bytes_ += span.kv_len > chooses_from(op, index)
                    ? span.kv_len / index.stride * cache_bytes(index.head_dim_k, format_.k)
                    : 0;
    }
  }
  void operator()(const SelectBlocks& op) {
    const CacheType& index = graph_.info(node_.in[1]).cache;
    const std::int64_t heads = type(node_.in[0]).shape[1];
    for (const SequenceSpan& span : step_.sequences) {
      std::int64_t pairs = 0;
      for (std::int64_t keys = span.kv_len - span.n_tokens + 1; keys <= span.kv_len; ++keys)
        pairs += keys > op.top_k ? keys : 0;
      operations_ += 2 * pairs * heads * index.head_dim_k;
      bytes_ += span.kv_len > op.top_k ? span.kv_len * cache_bytes(index.head_dim_k, format_.k) : 0;
    }
  }
  void operator()(const Attention& op) {
    const CacheType& cache = graph_.info(node_.in[1]).cache;
    const bool selected = cache.access == CacheType::Access::Selected;
    const std::int64_t heads = type(node_.in[0]).shape[1],
                       most = selected ? type(node_.in[2]).shape[0] : std::numeric_limits<std::int64_t>::max();
    for (const SequenceSpan& span : step_.sequences) {
      const std::int64_t past = span.kv_len - span.n_tokens;
      std::int64_t pairs = 0;
      for (std::int64_t i = 0; i < span.n_tokens; ++i) pairs += std::min(most, seen(op, past + i + 1));
      operations_ += 2 * pairs * heads * (cache.head_dim_k + cache.head_dim_v);
      const std::int64_t keys = std::min({pairs, std::int64_t{span.kv_len}, seen(op, past + 1) + span.n_tokens - 1});
      bytes_ +=
          keys * cache.kv_heads * (cache_bytes(cache.head_dim_k, format_.k) + cache_bytes(cache.head_dim_v, format_.v));
    }
  }
  void operator()(const CompressedAttention& op) {
    const CacheType &cache = graph_.info(node_.in[1]).cache, &compressed = graph_.info(node_.in[2]).cache;
    const std::int64_t heads = type(node_.in[0]).shape[1], most = node_.in.size() > 4
                                                                      ? type(node_.in[4]).shape[0]
                                                                      : std::numeric_limits<std::int64_t>::max();
    for (const SequenceSpan& span : step_.sequences) {
      std::int64_t pairs = 0;
      for (std::int64_t keys = span.kv_len - span.n_tokens + 1; keys <= span.kv_len; ++keys)
        pairs += seen(op, keys) + std::min(most, keys / compressed.stride);
      operations_ += 4 * pairs * heads * cache.head_dim_k;
      bytes_ += std::min(pairs, seen(op, span.kv_len) + span.n_tokens + span.kv_len / compressed.stride) * 2 *
                cache_bytes(cache.head_dim_k, format_.k);
    }
  }
  void operator()(const Compress&) {
    const RecurrentType& state = graph_.info(node_.in[4]).recurrent;
    operations_ += 30 * elements(node_.in[0]);
    bytes_ += 2 * std::ssize(step_.sequences) * static_cast<std::int64_t>(state.bytes());
  }
  void operator()(const ShortConv&) {
    const RecurrentType& state = graph_.info(node_.in[2]).recurrent;
    operations_ += 2 * type(node_.in[1]).shape[0] * elements(node_.in[0]);
    bytes_ += 2 * std::ssize(step_.sequences) * static_cast<std::int64_t>(state.bytes());
  }
  void operator()(const WindowMean& op) {
    const RecurrentType& state = graph_.info(node_.in[1]).recurrent;
    operations_ += op.width * elements(node_.in[0]);
    bytes_ += 2 * std::ssize(step_.sequences) * static_cast<std::int64_t>(state.bytes());
  }
  /// Of every element of the state a token multiplies and adds three times, and scales it once.
  void operator()(const GatedDelta&) {
    const RecurrentType& state = graph_.info(node_.in[5]).recurrent;
    operations_ += 7 * state.shape.elements() * rows_.tokens;
    bytes_ += 2 * std::ssize(step_.sequences) * static_cast<std::int64_t>(state.bytes());
  }
  /// Of every element of the state a token multiplies and adds twice, and scales it once.
  void operator()(const SelectiveScan&) {
    const RecurrentType& state = graph_.info(node_.in[5]).recurrent;
    operations_ += 5 * state.shape.elements() * rows_.tokens;
    bytes_ += 2 * std::ssize(step_.sequences) * static_cast<std::int64_t>(state.bytes());
  }
  void operator()(const TokenShift&) {
    operations_ += elements(node_.in[0]);
    bytes_ += 2 * std::ssize(step_.sequences) * static_cast<std::int64_t>(graph_.info(node_.in[1]).recurrent.bytes());
  }
  void operator()(const Lerp&) { operations_ += 2 * type(node_.in[2]).shape[1] * elements(node_.in[0]); }
  /// Of every element of the state a token multiplies and adds: what it reads, what it writes and what it removes, or
  /// what a first token is worth more; and it scales it once, or for the removal multiplies and adds again.
  void operator()(const Wkv6&) { add_wkv(4, 7); }
  void operator()(const Wkv7&) { add_wkv(8, 9); }
  void operator()(const Combine&) { operations_ += 2 * elements(node_.in[0]); }
  void operator()(const StreamMean&) { operations_ += 12 * elements(node_.in[0]); }
  void operator()(const StreamBlend&) { operations_ += 6 * elements(node_.in[0]); }
  void operator()(const MatchGate&) { operations_ += 2 * elements(node_.in[0]); }
  void operator()(const LayerNorm&) { operations_ += 6 * elements(node_.in[0]); }
  void operator()(const RmsNorm&) { operations_ += 4 * elements(node_.in[0]); }
  void operator()(const AddRmsNorm&) { operations_ += 5 * elements(node_.in[0]); }
  void operator()(const Rope&) { operations_ += 3 * elements(node_.in[0]); }
  void operator()(const Reshape&) { bytes_ = 0; }
  void operator()(const Slice&) { bytes_ = 2 * elements(node_.out[0]) * 4; }
  void operator()(const Rows&) { bytes_ = (2 * elements(node_.out[0]) + rows_.outputs) * 4; }
  template <class Other>
  void operator()(const Other&) {
    for (const std::uint32_t id : node_.out) operations_ += elements(id);
  }

 private:
  void add_wkv(std::size_t state, std::int64_t operations) {
    const RecurrentType& s = graph_.info(node_.in[state]).recurrent;
    operations_ += operations * s.shape.elements() * rows_.tokens;
    bytes_ += 2 * std::ssize(step_.sequences) * static_cast<std::int64_t>(s.bytes());
  }
  const TensorType& type(std::uint32_t id) const { return graph_.info(id).type; }
  std::int64_t width(std::uint32_t id) const { return std::max<std::int64_t>(1, type(id).shape[0]); }
  static std::int64_t cache_bytes(std::int64_t elements, DType t) {
    return elements / info(t).block_elems * info(t).block_bytes;
  }
  template <class Op>
  static std::int64_t seen(const Op& op, std::int64_t keys) {
    const auto last = static_cast<std::int32_t>(keys - 1);
    return keys - op.window.first_key(last);
  }

  std::int64_t elements(std::uint32_t id) const {
    const ValueInfo& v = graph_.info(id);
    const std::int64_t capacity = v.rows == RowSpace::Tokens    ? graph_.bucket().tokens
                                  : v.rows == RowSpace::Outputs ? graph_.bucket().outputs
                                                                : 1;
    return v.type.shape.elements() / capacity * rows_.count(v.rows);
  }

  /// Activations, and of weights the parts that are read.
  void add_operand(std::uint32_t id) {
    const ValueInfo& v = graph_.info(id);
    if (outlives_step(v.kind)) return;
    if (v.kind != ValueKind::Weight) {
      bytes_ += elements(id) * 4;
    } else {
      const WeightParts parts = weight_parts(graph_, node_, id);
      bytes_ += static_cast<std::int64_t>(parts.bytes) * parts_read(parts.n);
    }
  }

  std::int64_t parts_read(std::int64_t n) const {
    if (std::holds_alternative<ExpertLinear>(node_.op)) return experts_read(n, elements(node_.in[1]));
    return std::holds_alternative<Embed>(node_.op) ? std::min(n, elements(node_.in[1])) : n;
  }

  std::int64_t experts_read(std::int64_t n_experts, std::int64_t routes) const {
    if (experts_ == nullptr || n_experts > kCountedExperts) return std::min(n_experts, routes);
    std::bitset<kCountedExperts> read;
    for (std::int64_t i = 0; i < routes; ++i) read.set(static_cast<std::size_t>(experts_[i]));
    return static_cast<std::int64_t>(read.count());
  }

  const Graph& graph_;
  const Node& node_;
  const StepData& step_;
  const StepRows& rows_;
  CacheFormat format_;
  const std::int32_t* experts_;
  std::int64_t bytes_ = 0, operations_ = 0;
};

}  // namespace

NodeCost node_cost(const Graph& graph, const Node& node, const StepData& step, const StepRows& rows, CacheFormat format,
                   const std::int32_t* experts) {
  return Costing(graph, node, step, rows, format, experts).cost();
}

}  // namespace llm::host
