// The paged cache and the recurrent states in device memory, and what attention needs beside.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cache_stream.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"

namespace llm::cuda {

class CudaCache final : public StateStore {
 public:
  /// Where caches are fleeting, `carriers` threads bring their rows and send them back.
  CudaCache(const StateRequest&, int carriers);

  CacheView view(const CacheType&) const;
  /// Slot after slot, each as RecurrentType has it.
  float* recurrent(const RecurrentType&) const;
  CacheFormat format() const { return format_; }
  std::int32_t n_blocks() const { return n_blocks_; }
  std::int32_t n_slots() const { return n_slots_; }
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
  std::size_t bytes_per_slot() const override { return slot_bytes_; }
  void read_slot(std::int32_t slot, std::span<std::byte> dst) const override;
  void write_slot(std::int32_t slot, std::span<const std::byte> src) override;
  void keep_fleeting_in(CacheKeeper&) override;

 private:
  struct States {
    RecurrentType type;
    std::size_t offset;
  };
  struct Layer {
    CacheType type;
    std::size_t k_block_bytes, v_block_bytes, k_offset, v_offset;
  };
  static std::byte* at_least(std::vector<DeviceBuffer>&, std::size_t bytes);
  /// The part of a block in each layer's keys and values, in turn.
  template <class F>
  void for_each_part(std::int32_t block, F&& f) const;
  /// Where a slot's states are, in turn.
  template <class F>
  void for_each_state(std::int32_t slot, F&& f) const;
  /// Their places behind `total` bytes; what all take then.
  std::size_t place_states(std::span<const RecurrentType>, std::size_t total);

  int device_;
  CacheFormat format_;
  std::int32_t n_blocks_, n_slots_;
  std::int64_t most_positions_;
  std::size_t block_bytes_ = 0, slot_bytes_ = 0;
  std::vector<Layer> layers_;
  std::vector<States> states_;
  std::map<std::pair<int, CacheType::Part>, std::size_t> by_place_;  ///< layer, part
  int carriers_;
  DeviceBuffer memory_;
  std::unique_ptr<CacheStream> stream_;
  std::vector<DeviceBuffer> scratch_, arrivals_;  ///< outgrown ones are kept: recorded steps point into them
};

}  // namespace llm::cuda
