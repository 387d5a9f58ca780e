#include "graph/graph.h"

#include <algorithm>
#include <unordered_map>

namespace llm {
namespace {

/// FNV-1a over text and numbers: stable between runs, so that hashes can be printed and compared.
class Hash {
 public:
  void add(std::string_view text) {
    for (char c : text) byte(static_cast<unsigned char>(c));
    byte(0xff);
  }
  void add(std::uint64_t n) {
    for (int i = 0; i < 8; ++i) byte(static_cast<unsigned char>(n >> (8 * i)));
  }
  void add(const TensorType& t) {
    add(static_cast<std::uint64_t>(t.dtype));
    for (int i = 0; i < Shape::kMaxDims; ++i) add(static_cast<std::uint64_t>(t.shape[i]));
  }
  void add(const Bucket& b) {
    add(static_cast<std::uint64_t>(b.tokens));
    add(static_cast<std::uint64_t>(b.sequences));
    add(static_cast<std::uint64_t>(b.outputs));
  }
  std::uint64_t value() const { return value_; }

 private:
  void byte(unsigned char c) { value_ = (value_ ^ c) * 0x100000001b3ull; }
  std::uint64_t value_ = 0xcbf29ce484222325ull;
};

void add_op(Hash& h, const Node& n) {
  h.add(name(n.op));
  h.add(attributes(n.op));
}

}  // namespace

std::string_view name(RecurrentType::Part part) {
  switch (part) {
    case RecurrentType::Part::Conv:
      return "conv";
    case RecurrentType::Part::ConvKeys:
      return "conv_keys";
    case RecurrentType::Part::ConvValues:
      return "conv_values";
    case RecurrentType::Part::Delta:
      return "delta";
    case RecurrentType::Part::Scan:
      return "scan";
    case RecurrentType::Part::Mean:
      return "mean";
    case RecurrentType::Part::Hash:
      return "hash";
    case RecurrentType::Part::ConvHash:
      return "conv_hash";
    case RecurrentType::Part::Compress:
      return "compress";
    case RecurrentType::Part::CompressIndex:
      return "compress_index";
    case RecurrentType::Part::Shift:
      return "shift";
    case RecurrentType::Part::ShiftFfn:
      return "shift_ffn";
    case RecurrentType::Part::Wkv:
      return "wkv";
  }
  return "";
}

std::string_view name(CacheType::Part part) {
  switch (part) {
    case CacheType::Part::KeysValues:
      return "cache";
    case CacheType::Part::Index:
      return "index";
    case CacheType::Part::Compressed:
      return "compressed";
  }
  return "";
}

std::int64_t chooses_from(const SelectKeys& op, const CacheType& index) {
  return op.choice == SelectKeys::Choice::Positions ? op.top_k : (op.top_k + std::int64_t{1}) * index.stride - 1;
}

std::uint32_t Graph::add_value(ValueInfo info) {
  values_.push_back(std::move(info));
  return static_cast<std::uint32_t>(values_.size() - 1);
}

void Graph::add_node(Node node) { nodes_.push_back(std::move(node)); }

std::uint64_t Graph::hash() const {
  Hash h;
  h.add(bucket_);
  for (const Node& n : nodes_) {
    add_op(h, n);
    for (std::uint32_t v : n.in) {
      h.add(values_[v].name), h.add(values_[v].type);
      if (values_[v].streamed) h.add("streamed");
    }
    for (std::uint32_t v : n.out) h.add(values_[v].name), h.add(values_[v].type);
  }
  for (std::uint32_t v : outputs_) h.add(values_[v].name);
  return h.value();
}

std::vector<LayerRange> layer_ranges(const Graph& g) {
  std::vector<LayerRange> ranges;
  const auto nodes = g.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (ranges.empty() || ranges.back().layer != nodes[i].layer) ranges.push_back({nodes[i].layer, i, i});
    ranges.back().end = i + 1;
  }
  return ranges;
}

std::vector<std::uint32_t> range_values(const Graph& g, const LayerRange& range) {
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(g.values().size(), false);
  auto visit = [&](std::uint32_t v) {
    if (!seen[v]) order.push_back(v);
    seen[v] = true;
  };
  for (std::size_t i = range.begin; i < range.end; ++i) {
    for (std::uint32_t v : g.nodes()[i].in) visit(v);
    for (std::uint32_t v : g.nodes()[i].out) visit(v);
  }
  return order;
}

std::uint64_t structural_hash(const Graph& g, const LayerRange& range) {
  std::unordered_map<std::uint32_t, std::uint64_t> number;
  for (std::uint32_t v : range_values(g, range)) number.emplace(v, number.size());
  Hash h;
  h.add(g.bucket());
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const Node& n = g.nodes()[i];
    add_op(h, n);
    if (const auto* map = std::get_if<Map>(&n.op)) h.add(reinterpret_cast<std::uintptr_t>(map->function.get()));
    for (const auto* list : {&n.in, &n.out}) {
      h.add(list->size());
      for (std::uint32_t v : *list) {
        const ValueInfo& info = g.info(v);
        h.add(number.at(v));
        h.add(static_cast<std::uint64_t>(info.kind));
        h.add(static_cast<std::uint64_t>(info.input));
        h.add(static_cast<std::uint64_t>(info.rows));
        h.add(info.type);
        for (int d : {info.cache.kv_heads, info.cache.head_dim_k, info.cache.head_dim_v, info.cache.stride})
          h.add(static_cast<std::uint64_t>(d));
        h.add(static_cast<std::uint64_t>(info.cache.part));
        h.add(static_cast<std::uint64_t>(info.cache.access));
        if (info.kind == ValueKind::Recurrent) h.add({DType::F32, info.recurrent.shape});
      }
    }
  }
  return h.value();
}

}  // namespace llm
