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

CudaCache::CudaCache(std::span<const CacheType> types, CacheFormat format, std::int32_t n_blocks,
                     std::int64_t most_positions, int carriers)
    : device_(current_device()),
      format_(format),
      n_blocks_(n_blocks),
      most_positions_(most_positions),
      carriers_(carriers) {
  std::size_t total = 0;
  for (const CacheType& c : types) {
    if (const char* reason = cache_refusal(format.k, format.v, c.head_dim_k, c.head_dim_v))
      throw Error(ErrorKind::Usage, "backend cuda: " + std::string(reason));
    const auto shared =
        std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return host::share_place(l.type, c); });
    by_layer_[c.layer] = static_cast<std::size_t>(shared - layers_.begin());
    if (shared != layers_.end()) continue;
    Layer layer{c, head_block_bytes(c.kv_heads, c.head_dim_k, format.k),
                head_block_bytes(c.kv_heads, c.head_dim_v, format.v), 0, 0};
    layer.k_offset = total;
    total += aligned(checked_product(layer.k_block_bytes, static_cast<std::size_t>(n_blocks)));
    layer.v_offset = total;
    total += aligned(checked_product(layer.v_block_bytes, static_cast<std::size_t>(n_blocks)));
    if (!c.fleeting) block_bytes_ += layer.k_block_bytes + layer.v_block_bytes;
    layers_.push_back(layer);
  }
  memory_ = DeviceBuffer(total);
  // Rows that nothing wrote are never attended to, but tiles that hold them are multiplied by probabilities of zero.
  if (total > 0) fill_device(memory_.data(), 0, total, "clearing the cache");
}

void CudaCache::keep_fleeting_in(CacheKeeper& keeper) {
  use_device(device_);
  std::size_t bytes = 0;
  for (const Layer& l : layers_) {
    if (l.type.fleeting) bytes = std::max(bytes, l.k_block_bytes + l.v_block_bytes);
  }
  stream_ = std::make_unique<CacheStream>(keeper, bytes, carriers_);
}

CacheView CudaCache::view(int layer) const {
  const auto found = by_layer_.find(layer);
  check(found != by_layer_.end(), "a layer with a cache");
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
    if (l.type.fleeting) continue;
    f(memory_.data() + l.k_offset + static_cast<std::size_t>(block) * l.k_block_bytes, l.k_block_bytes);
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

}  // namespace llm::cuda
