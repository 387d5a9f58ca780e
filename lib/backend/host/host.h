// What backends that compute in this machine's memory share: weights in place, the paged cache, the workspace, and the
// loop that turns a compiled graph's values into pointers. Not a backend itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace llm::host {

/// Adds the weights that are kept, the caches and the recurrent states of the graphs, each once; a weight takes what
/// `weight_bytes` says.
void add_contents(MemoryShare&, std::span<const Graph>,
                  const std::function<std::uint64_t(const TensorType&)>& weight_bytes);
/// This machine's memory, in which mapped weights have their place too.
MemoryShare machine_memory(std::span<const Graph>, std::uint64_t workspace);

/// How memory fills: Dense from the start on, so that huge pages pay; Sparse in many small places, where each huge page
/// would take 2 MiB for a few kilobytes.
enum class PageUse : std::uint8_t { Dense, Sparse };

/// Anonymous memory that is taken page by page as it is touched, zero at first. Throws ErrorKind::Memory.
class Pages {
 public:
  explicit Pages(std::size_t bytes, PageUse use = PageUse::Dense);
  Pages(Pages&&) noexcept;
  Pages& operator=(Pages&&) noexcept;
  ~Pages();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t mapped_ = 0;  ///< bytes_ rounded up to whole pages
};

/// The mapped bytes of each weight, or a converted copy where the file's byte order is foreign.
class HostWeights final : public WeightStore {
 public:
  HostWeights(const WeightSource&, std::span<const WeightPlan>);
  const std::byte* data(std::string_view name) const;  ///< throws ErrorKind::Internal for a name that was not planned

 private:
  std::unordered_map<std::string, const std::byte*> by_name_;
  std::vector<Pages> converted_;
};

/// Whether two caches, of different layers, share their memory: fleeting ones of one place and the same dimensions.
bool share_place(CacheType, const CacheType&);

/// Paged keys and values: blocks of kBlockPositions positions, in each the KV heads one after another. What lies inside
/// a head's part of a block is the backend's to choose; here rows of head_dim elements, position after position
/// (cache_row in ops.h).
/// Fleeting caches of another such store are these rows themselves: one memory needs no copies.
/// Recurrent states are f32 in the order of their shape, slot after slot.
class HostCache : public StateStore, public CacheKeeper {
 public:
  explicit HostCache(const StateRequest&);
  std::byte* k(int layer, CacheType::Part = CacheType::Part::KeysValues) const;
  std::byte* v(int layer, CacheType::Part = CacheType::Part::KeysValues) const;
  std::byte* recurrent(const RecurrentType&) const;  ///< of slot 0
  std::int32_t n_slots() const { return n_slots_; }
  std::size_t bytes_per_slot() const override;
  void read_slot(std::int32_t slot, std::span<std::byte> dst) const override;
  void write_slot(std::int32_t slot, std::span<const std::byte> src) override;
  CacheFormat format() const { return format_; }
  std::int32_t n_blocks() const { return n_blocks_; }
  std::size_t bytes_per_block() const override;
  void copy_block(std::int32_t from, std::int32_t to) override;
  void read_block(std::int32_t block, std::span<std::byte> dst) const override;
  void write_block(std::int32_t block, std::span<const std::byte> src) override;
  void keep_fleeting_in(CacheKeeper&) override;
  CacheKeeper* keeper() override { return this; }
  void read_rows(const CacheSlice&, std::byte* k, std::byte* v) const override;
  void write_rows(const CacheSlice&, const std::byte* k, const std::byte* v) override;

 protected:
  /// One side of one KV head's part of a block: where it is, what its rows are, and how they are read.
  struct HeadPart {
    DType type;
    int head_dim;
    std::byte* data;
    CacheType::Access access;
  };
  /// Rows [begin, end) of a part, between it and `rows`. Here they lie as they are.
  enum class Side : std::uint8_t { Keys, Values };
  virtual void get(Side, const HeadPart&, std::byte* rows, std::int32_t begin, std::int32_t end) const;
  virtual void put(Side, const HeadPart&, const std::byte* rows, std::int32_t begin, std::int32_t end);

 private:
  struct Layer {
    CacheType type;
    std::size_t k_block_bytes, v_block_bytes;
    Pages k, v;
  };
  using Place = std::pair<int, CacheType::Part>;  ///< a layer's
  const Layer& layer(Place) const;
  /// Calls f(side, part, offset) for the heads of a slice; its rows are at `offset` of all those of their side.
  template <class F>
  void for_each_head(const CacheSlice&, F&& f) const;
  /// The part of a block in each layer's keys and values, in turn.
  std::vector<std::span<std::byte>> parts(std::int32_t block) const;
  struct States {
    RecurrentType type;
    Pages slots;
  };
  std::vector<std::span<std::byte>> slot_parts(std::int32_t slot) const;
  CacheFormat format_;
  std::int32_t n_blocks_, n_slots_;
  std::vector<Layer> layers_;
  std::vector<States> states_;
  std::map<Place, std::size_t> by_place_;
  std::set<Place> fleeting_;  ///< that `kept_` has
  const HostCache* kept_ = nullptr;
};

class HostWorkspace final : public Workspace {
 public:
  explicit HostWorkspace(std::size_t bytes) : pages_(bytes) {}
  std::size_t bytes() const override { return pages_.bytes(); }
  std::byte* data() const { return pages_.data(); }
  /// What the step submitted last drew.
  std::vector<std::int32_t>& drawn() const { return drawn_; }

 private:
  Pages pages_;
  mutable std::vector<std::int32_t> drawn_;
};

/// cos and sin of every pair at one position: the row of a RopeTable's result. `factors` [n_rot/2] may be null.
/// Angles in double precision. One definition for all host backends, so that none drifts.
class RopeAngles {
 public:
  RopeAngles(const RopeTable&, const float* factors);
  void row(std::int32_t position, float* cos_sin) const;
  std::span<const double> theta() const { return theta_; }
  double magnitude() const { return magnitude_; }

 private:
  std::vector<double> theta_;  ///< angle per position of each pair
  double magnitude_ = 1;
  int offset_ = 0;
};

}  // namespace llm::host
