// The paged cache in device memory, and what attention over it needs beside.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cache_stream.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"

namespace llm::cuda {

class CudaCache final : public StateStore {
 public:
  /// Where caches are fleeting, `carriers` threads bring their rows and send them back.
  CudaCache(std::span<const CacheType>, CacheFormat, std::int32_t n_blocks, std::int64_t most_positions, int carriers);

  CacheView view(int layer) const;
  CacheFormat format() const { return format_; }
  std::int32_t n_blocks() const { return n_blocks_; }
  /// Of one sequence.
  std::int64_t most_positions() const { return most_positions_; }
  /// Null where no cache is fleeting.
  CacheStream* stream() const { return stream_.get(); }
  /// At least so many bytes for attention, which the steps of all programs share.
  std::byte* scratch(std::size_t bytes) { return at_least(scratch_, bytes); }
  /// The same, zero at first and left so by every step.
  std::byte* arrivals(std::size_t bytes) { return at_least(arrivals_, bytes); }

  std::size_t bytes_per_block() const override { return block_bytes_; }
  void copy_block(std::int32_t from, std::int32_t to) override;
  void read_block(std::int32_t block, std::span<std::byte> dst) const override;
  void write_block(std::int32_t block, std::span<const std::byte> src) override;
  void keep_fleeting_in(CacheKeeper&) override;

 private:
  struct Layer {
    CacheType type;
    std::size_t k_block_bytes, v_block_bytes, k_offset, v_offset;
  };
  static std::byte* at_least(std::vector<DeviceBuffer>&, std::size_t bytes);
  /// The part of a block in each layer's keys and values, in turn.
  template <class F>
  void for_each_part(std::int32_t block, F&& f) const;

  int device_;
  CacheFormat format_;
  std::int32_t n_blocks_;
  std::int64_t most_positions_;
  std::size_t block_bytes_ = 0;
  std::vector<Layer> layers_;
  std::unordered_map<int, std::size_t> by_layer_;
  int carriers_;
  DeviceBuffer memory_;
  std::unique_ptr<CacheStream> stream_;
  std::vector<DeviceBuffer> scratch_, arrivals_;  ///< outgrown ones are kept: recorded steps point into them
};

}  // namespace llm::cuda
