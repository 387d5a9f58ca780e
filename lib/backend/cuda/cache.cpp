#include "backend/cuda/cache.h"

#include <algorithm>
#include <string>

#include "backend/host/host.h"
#include "base/checked.h"
#include "base/error.h"

namespace llm::cuda {
namespace {

std::size_t checked_product(std::size_t a, std::size_t b) {
  const auto product = checked_mul(a, b);
  if (!product) throw Error(ErrorKind::Memory, "the cache does not fit in the GPU's address space");
  return *product;
}

std::size_t head_block_bytes(int kv_heads, int head_dim, DType type) {
  return static_cast<std::size_t>(kv_heads) * kBlockPositions * TensorType{type, {head_dim}}.row_bytes();
}

std::size_t aligned(std::size_t n) { return (n + 255) / 256 * 256; }

}  // namespace

CudaCache::CudaCache(const StateRequest& r, int carriers)
    : device_(current_device()),
      format_(r.format),
      n_blocks_(r.n_blocks),
      n_slots_(r.n_slots),
      most_positions_(r.most_positions),
      carriers_(carriers) {
  std::size_t total = 0;
  for (const CacheType& c : r.caches) {
    if (const char* reason = cache_refusal(format_.k, format_.v, c.head_dim_k, c.head_dim_v))
      throw Error(ErrorKind::Usage, "backend cuda: " + std::string(reason));
    const auto shared =
        std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return host::share_place(l.type, c); });
    by_place_[{c.layer, c.part}] = static_cast<std::size_t>(shared - layers_.begin());
    if (shared != layers_.end()) continue;
    Layer layer{c, head_block_bytes(c.kv_heads, c.head_dim_k, format_.k),
                head_block_bytes(c.kv_heads, c.head_dim_v, format_.v), 0, 0};
    layer.k_offset = total;
    total += aligned(checked_product(layer.k_block_bytes, static_cast<std::size_t>(n_blocks_)));
    layer.v_offset = total;
    total += aligned(checked_product(layer.v_block_bytes, static_cast<std::size_t>(n_blocks_)));
    if (!c.fleeting()) block_bytes_ += layer.k_block_bytes + layer.v_block_bytes;
    layers_.push_back(layer);
  }
  total = place_states(r.recurrent, total);
  memory_ = DeviceBuffer(total);
  // Rows that nothing wrote are never attended to, but tiles that hold them are multiplied by probabilities of zero.
  if (total > 0) fill_device(memory_.data(), 0, total, "clearing the cache");
}

std::size_t CudaCache::place_states(std::span<const RecurrentType> types, std::size_t total) {
  check(types.empty() || n_slots_ > 0, "recurrent states have slots");
  for (const RecurrentType& type : types) {
    states_.push_back({type, total});
    slot_bytes_ += type.bytes();
    total += aligned(checked_product(type.bytes(), static_cast<std::size_t>(n_slots_)));
  }
  return total;
}

float* CudaCache::recurrent(const RecurrentType& type) const {
  const auto found = std::ranges::find(states_, type, &States::type);
  check(found != states_.end(), "a layer with a state");
  return reinterpret_cast<float*>(memory_.data() + found->offset);
}

void CudaCache::keep_fleeting_in(CacheKeeper& keeper) {
  use_device(device_);
  std::map<CacheType::Part, std::size_t> most;
  for (const Layer& l : layers_) {
    if (l.type.fleeting()) most[l.type.part] = std::max(most[l.type.part], l.k_block_bytes + l.v_block_bytes);
  }
  std::size_t bytes = 0;
  for (const auto& [part, of_part] : most) bytes += of_part;
  stream_ = std::make_unique<CacheStream>(keeper, bytes, carriers_);
}

CacheView CudaCache::view(const CacheType& type) const {
  const auto found = by_place_.find({type.layer, type.part});
  check(found != by_place_.end(), "a layer with a cache");
  const Layer& l = layers_[found->second];
  return {.k = memory_.data() + l.k_offset,
          .v = memory_.data() + l.v_offset,
          .k_type = format_.k,
          .v_type = format_.v,
          .kv_heads = l.type.kv_heads,
          .head_dim_k = l.type.head_dim_k,
          .head_dim_v = l.type.head_dim_v};
}

std::byte* CudaCache::at_least(std::vector<DeviceBuffer>& buffers, std::size_t bytes) {
  if (bytes > 0 && (buffers.empty() || buffers.back().bytes() < bytes)) {
    const DeviceBuffer& added = buffers.emplace_back(bytes);
    fill_device(added.data(), 0, bytes, "clearing memory of attention");
  }
  return buffers.empty() ? nullptr : buffers.back().data();
}

template <class F>
void CudaCache::for_each_part(std::int32_t block, F&& f) const {
  check(block >= 0 && block < n_blocks_, "a block of the cache");
  use_device(device_);
  for (const Layer& l : layers_) {
    if (l.type.fleeting()) continue;
    f(memory_.data() + l.k_offset + static_cast<std::size_t>(block) * l.k_block_bytes, l.k_block_bytes);
    if (l.v_block_bytes > 0)
      f(memory_.data() + l.v_offset + static_cast<std::size_t>(block) * l.v_block_bytes, l.v_block_bytes);
  }
}

// The default stream waits for nothing here: a step has ended when its caller asks for blocks.

void CudaCache::copy_block(std::int32_t from, std::int32_t to) {
  check(from >= 0 && from < n_blocks_ && to >= 0 && to < n_blocks_, "blocks of the cache");
  for_each_part(from, [&](std::byte* part, std::size_t bytes) {
    const std::ptrdiff_t distance = (std::ptrdiff_t{to} - from) * static_cast<std::ptrdiff_t>(bytes);
    check_cuda(cudaMemcpyAsync(part + distance, part, bytes, cudaMemcpyDeviceToDevice, nullptr), "copying a block");
  });
  check_cuda(cudaStreamSynchronize(nullptr), "copying a block");
}

void CudaCache::read_block(std::int32_t block, std::span<std::byte> dst) const {
  check(dst.size() == block_bytes_, "memory for a block");
  std::byte* to = dst.data();
  for_each_part(block, [&](const std::byte* part, std::size_t bytes) {
    check_cuda(cudaMemcpy(to, part, bytes, cudaMemcpyDeviceToHost), "reading a block of the cache");
    to += bytes;
  });
}

void CudaCache::write_block(std::int32_t block, std::span<const std::byte> src) {
  check(src.size() == block_bytes_, "the bytes of a block");
  const std::byte* from = src.data();
  for_each_part(block, [&](std::byte* part, std::size_t bytes) {
    copy_to_device(part, from, bytes, "writing a block of the cache");
    from += bytes;
  });
}

template <class F>
void CudaCache::for_each_state(std::int32_t slot, F&& f) const {
  check(slot >= 0 && slot < n_slots_, "a slot of the states");
  use_device(device_);
  for (const States& state : states_) {
    const std::size_t bytes = state.type.bytes();
    f(memory_.data() + state.offset + static_cast<std::size_t>(slot) * bytes, bytes);
  }
}

void CudaCache::read_slot(std::int32_t slot, std::span<std::byte> dst) const {
  check(dst.size() == slot_bytes_, "memory for a slot");
  std::byte* to = dst.data();
  for_each_state(slot, [&](const std::byte* state, std::size_t bytes) {
    check_cuda(cudaMemcpy(to, state, bytes, cudaMemcpyDeviceToHost), "reading a slot of the states");
    to += bytes;
  });
}

void CudaCache::write_slot(std::int32_t slot, std::span<const std::byte> src) {
  check(src.size() == slot_bytes_, "the bytes of a slot");
  const std::byte* from = src.data();
  for_each_state(slot, [&](std::byte* state, std::size_t bytes) {
    copy_to_device(state, from, bytes, "writing a slot of the states");
    from += bytes;
  });
}

}  // namespace llm::cuda
