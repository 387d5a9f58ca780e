// Weights in place, the paged cache, and the check of a step before it runs.
#include "backend/host/host.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "base/machine.h"

namespace llm::host {
namespace {

std::size_t checked_product(std::size_t a, std::size_t b) {
  const auto product = checked_mul(a, b);
  if (!product) throw Error(ErrorKind::Memory, "the cache does not fit in this machine's address space");
  return *product;
}

/// Of one side; where keys are alone there are no values.
std::size_t block_bytes(int kv_heads, int head_dim, DType type) {
  check(kv_heads > 0 && head_dim >= 0, "a cache has heads and dimensions");
  check(std::find(kCacheTypes.begin(), kCacheTypes.end(), type) != kCacheTypes.end(), "a cache's type is one of them");
  check(head_dim % static_cast<int>(info(type).block_elems) == 0, "heads are whole blocks of the cache's type");
  const std::size_t rows = checked_product(static_cast<std::size_t>(kv_heads), std::size_t{kBlockPositions});
  return checked_product(rows, TensorType{type, {head_dim}}.bytes());
}

}  // namespace

void add_contents(MemoryShare& share, std::span<const Graph> graphs,
                  const std::function<std::uint64_t(const TensorType&)>& weight_bytes) {
  std::unordered_set<std::string_view> counted;
  for (const Graph& graph : graphs) {
    for (const Node& node : graph.nodes()) {
      for (const std::uint32_t id : node.in) {
        const ValueInfo& v = graph.info(id);
        const auto counted_already = [&](const CacheType& c) { return c == v.cache || share_place(c, v.cache); };
        if (v.kind == ValueKind::Cache && std::none_of(share.caches.begin(), share.caches.end(), counted_already))
          share.caches.push_back(v.cache);
        if (v.kind == ValueKind::Recurrent && std::ranges::find(share.recurrent, v.recurrent) == share.recurrent.end())
          share.recurrent.push_back(v.recurrent);
        if (v.kind == ValueKind::Weight && !v.streamed && counted.insert(v.name).second)
          share.weights += weight_bytes(v.type);
      }
    }
  }
}

MemoryShare machine_memory(std::span<const Graph> graphs, std::uint64_t workspace) {
  MemoryShare share{.name = "CPU", .available = available_memory(), .workspace = workspace};
  add_contents(share, graphs, [](const TensorType& type) { return type.bytes(); });
  return share;
}

HostWeights::HostWeights(const WeightSource& source, std::span<const WeightPlan> plans) {
  by_name_.reserve(plans.size());
  for (const WeightPlan& plan : plans) {
    const std::size_t bytes = plan.type.bytes();
    if (const auto mapped = source.mapped(plan.name)) {
      check(mapped->size() >= bytes, "a weight's mapped bytes cover its type");
      by_name_[plan.name] = mapped->data();
      continue;
    }
    Pages& copy = converted_.emplace_back(bytes);
    source.read(plan.name, 0, {copy.data(), bytes});
    by_name_[plan.name] = copy.data();
  }
}

const std::byte* HostWeights::data(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) {
    throw Error(ErrorKind::Internal, {.file = {}, .subject = tensor_subject(name), .problem = "used but not loaded"});
  }
  return found->second;
}

bool share_place(CacheType a, const CacheType& b) {
  a.layer = b.layer;
  return a.fleeting() && a == b;
}

HostCache::HostCache(const StateRequest& r) : format_(r.format), n_blocks_(r.n_blocks), n_slots_(r.n_slots) {
  check(n_blocks_ > 0, "a cache has blocks");
  const auto blocks = static_cast<std::size_t>(n_blocks_);
  layers_.reserve(r.caches.size());
  for (const CacheType& type : r.caches) {
    const Place place{type.layer, type.part};
    check(type.head_dim_k > 0 && type.keys_alone() == (type.head_dim_v == 0),
          "a cache has keys, and values if it is not of keys alone");
    const std::size_t k_bytes = block_bytes(type.kv_heads, type.head_dim_k, format_.k);
    const std::size_t v_bytes = block_bytes(type.kv_heads, type.head_dim_v, format_.v);
    check(!by_place_.contains(place) && !fleeting_.contains(place), "one cache of each part per layer");
    if (type.fleeting()) {
      fleeting_.insert(place);
      continue;
    }
    by_place_[place] = layers_.size();
    layers_.push_back({type, k_bytes, v_bytes, Pages(checked_product(k_bytes, blocks), PageUse::Sparse),
                       Pages(checked_product(v_bytes, blocks), PageUse::Sparse)});
  }
  check(r.recurrent.empty() || n_slots_ > 0, "recurrent states have slots");
  for (const RecurrentType& type : r.recurrent)
    states_.push_back({type, Pages(checked_product(type.bytes(), static_cast<std::size_t>(n_slots_)))});
}

std::byte* HostCache::recurrent(const RecurrentType& type) const {
  const auto found = std::ranges::find(states_, type, &States::type);
  check(found != states_.end(), "the layer has a state");
  return found->slots.data();
}

std::size_t HostCache::bytes_per_slot() const {
  std::size_t bytes = 0;
  for (const States& s : states_) bytes += s.type.bytes();
  return bytes;
}

std::vector<std::span<std::byte>> HostCache::slot_parts(std::int32_t slot) const {
  check(slot >= 0 && slot < n_slots_, "a slot of the states");
  std::vector<std::span<std::byte>> parts;
  for (const States& s : states_)
    parts.emplace_back(s.slots.data() + static_cast<std::size_t>(slot) * s.type.bytes(), s.type.bytes());
  return parts;
}

void HostCache::read_slot(std::int32_t slot, std::span<std::byte> dst) const {
  check(dst.size() == bytes_per_slot(), "room for a slot");
  for (const std::span<std::byte> part : slot_parts(slot)) {
    std::ranges::copy(part, dst.begin());
    dst = dst.subspan(part.size());
  }
}

void HostCache::write_slot(std::int32_t slot, std::span<const std::byte> src) {
  check(src.size() == bytes_per_slot(), "the bytes of a slot");
  for (const std::span<std::byte> part : slot_parts(slot)) {
    std::ranges::copy(src.first(part.size()), part.begin());
    src = src.subspan(part.size());
  }
}

void HostCache::keep_fleeting_in(CacheKeeper& keeper) {
  kept_ = dynamic_cast<const HostCache*>(&keeper);
  check(kept_ != nullptr && typeid(*kept_) == typeid(*this) && kept_->n_blocks_ == n_blocks_ &&
            kept_->format_.k == format_.k && kept_->format_.v == format_.v,
        "rows that are used in place lie as those of this cache");
  for (const Place& place : fleeting_) (void)kept_->layer(place);
}

const HostCache::Layer& HostCache::layer(Place place) const {
  if (fleeting_.contains(place)) {
    check(kept_ != nullptr, "what is fleeting is kept somewhere");
    return kept_->layer(place);
  }
  const auto found = by_place_.find(place);
  check(found != by_place_.end(), "the layer has a cache");
  return layers_[found->second];
}

std::byte* HostCache::k(int number, CacheType::Part part) const { return layer({number, part}).k.data(); }
std::byte* HostCache::v(int number, CacheType::Part part) const { return layer({number, part}).v.data(); }

std::size_t HostCache::bytes_per_block() const {
  std::size_t bytes = 0;
  for (const Layer& layer : layers_) bytes += layer.k_block_bytes + layer.v_block_bytes;
  return bytes;
}

std::vector<std::span<std::byte>> HostCache::parts(std::int32_t block) const {
  check(block >= 0 && block < n_blocks_, "a block of the cache");
  const auto b = static_cast<std::size_t>(block);
  std::vector<std::span<std::byte>> parts;
  for (const Layer& layer : layers_) {
    parts.emplace_back(layer.k.data() + b * layer.k_block_bytes, layer.k_block_bytes);
    parts.emplace_back(layer.v.data() + b * layer.v_block_bytes, layer.v_block_bytes);
  }
  return parts;
}

template <class F>
void HostCache::for_each_head(const CacheSlice& s, F&& f) const {
  const Layer& l = layer({s.layer, s.part});
  check(s.block >= 0 && s.block < n_blocks_ && 0 <= s.begin && s.begin <= s.end && s.end <= kBlockPositions,
        "positions of a block of the cache");
  const auto heads = static_cast<std::size_t>(l.type.kv_heads);
  const auto one_side = [&](Side side, const Pages& pages, std::size_t bytes, DType type, int head_dim) {
    const std::size_t head_bytes = bytes / heads, row_bytes = head_bytes / kBlockPositions;
    std::byte* const block = pages.data() + static_cast<std::size_t>(s.block) * bytes;
    for (std::size_t h = 0; h < heads; ++h)
      f(side, HeadPart{type, head_dim, block + h * head_bytes, l.type.access},
        h * static_cast<std::size_t>(s.end - s.begin) * row_bytes);
  };
  one_side(Side::Keys, l.k, l.k_block_bytes, format_.k, l.type.head_dim_k);
  if (l.type.head_dim_v > 0) one_side(Side::Values, l.v, l.v_block_bytes, format_.v, l.type.head_dim_v);
}

void HostCache::read_rows(const CacheSlice& s, std::byte* k, std::byte* v) const {
  for_each_head(s, [&](Side side, const HeadPart& part, std::size_t offset) {
    get(side, part, (side == Side::Keys ? k : v) + offset, s.begin, s.end);
  });
}

void HostCache::write_rows(const CacheSlice& s, const std::byte* k, const std::byte* v) {
  for_each_head(s, [&](Side side, const HeadPart& part, std::size_t offset) {
    put(side, part, (side == Side::Keys ? k : v) + offset, s.begin, s.end);
  });
}

void HostCache::get(Side, const HeadPart& part, std::byte* rows, std::int32_t begin, std::int32_t end) const {
  const std::size_t row = TensorType{part.type, {part.head_dim}}.bytes();
  std::memcpy(rows, part.data + static_cast<std::size_t>(begin) * row, static_cast<std::size_t>(end - begin) * row);
}

void HostCache::put(Side, const HeadPart& part, const std::byte* rows, std::int32_t begin, std::int32_t end) {
  const std::size_t row = TensorType{part.type, {part.head_dim}}.bytes();
  std::memcpy(part.data + static_cast<std::size_t>(begin) * row, rows, static_cast<std::size_t>(end - begin) * row);
}

void HostCache::copy_block(std::int32_t from, std::int32_t to) {
  const auto source = parts(from), target = parts(to);
  if (from == to) return;
  for (std::size_t i = 0; i < source.size(); ++i) std::ranges::copy(source[i], target[i].begin());
}

void HostCache::read_block(std::int32_t block, std::span<std::byte> dst) const {
  check(dst.size() == bytes_per_block(), "room for a block");
  for (const std::span<std::byte> part : parts(block)) {
    std::ranges::copy(part, dst.begin());
    dst = dst.subspan(part.size());
  }
}

void HostCache::write_block(std::int32_t block, std::span<const std::byte> src) {
  check(src.size() == bytes_per_block(), "the bytes of a block");
  for (const std::span<std::byte> part : parts(block)) {
    std::ranges::copy(src.first(part.size()), part.begin());
    src = src.subspan(part.size());
  }
}

}  // namespace llm::host
