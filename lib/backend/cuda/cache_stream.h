// Keys and values of layers whose cache another store keeps: a step that works on such a layer brings the rows of
// before to the device's place for them, and sends its own back. Layers have two places in turns, so that one layer's
// rows come while the one before is computed.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/step_threads.h"
#include "graph/graph.h"

namespace llm::cuda {

class CudaCache;

/// Where one of a layer's fleeting caches lies while a step works on it.
struct FleetingPlace {
  CacheType::Part part = CacheType::Part::KeysValues;
  CacheView view = {};
};
/// A graph's nodes that work on one layer's fleeting caches: its keys and values, and perhaps an index.
struct FleetingLayer {
  int layer = 0;
  std::size_t turn = 0;  ///< CacheType::place of its caches
  std::vector<FleetingPlace> places = {};
  std::size_t first = 0, append = 0, attention = 0;  ///< nodes; the first is of the layer, whatever it does
};
/// In the order of their nodes.
std::vector<FleetingLayer> fleeting_layers(const Graph&, const CudaCache&);

/// The threads that carry rows, for one program at a time.
class CacheStream {
 public:
  /// `block_bytes`: most that a block of a layer's caches takes.
  CacheStream(CacheKeeper&, std::size_t block_bytes, int threads);
  CacheStream(const CacheStream&) = delete;
  CacheStream& operator=(const CacheStream&) = delete;
  ~CacheStream();  // where a carrier is known

  /// One step of a program, whose nodes are launched in their order. Its end waits for the threads.
  class Step {
   public:
    Step(CacheStream& stream, std::span<const FleetingLayer> layers, const StepData& step, cudaStream_t at)
        : stream_(stream), at_(at) {
      stream_.begin(layers, step);
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    ~Step() { stream_.end(); }
    /// All nodes before this one are enqueued. What is enqueued next waits for the rows that it reads. Throws what
    /// kept a thread from carrying rows.
    void reach(std::size_t node);
    /// All nodes are enqueued; waits until the step's rows are kept. Throws like reach().
    void finish();

   private:
    CacheStream& stream_;
    cudaStream_t at_;
    std::size_t arrived_ = 0, appended_ = 0, left_ = 0;  ///< layers
  };

 private:
  /// Of all pieces of a layer, one for each block.
  struct Errand {
    enum class Way : std::uint8_t { Bring, Keep } way = Way::Bring;
    std::size_t layer = 0;
  };
  struct Carrier;
  void begin(std::span<const FleetingLayer>, const StepData&);
  void find_blocks(const StepData&);
  void arrive(std::size_t layer, cudaStream_t);
  void appended(std::size_t layer, cudaStream_t);
  void leave(std::size_t layer, cudaStream_t);
  void wait_kept(std::size_t layer);
  void end();

  /// Of the step's, in the order in which they are run.
  Errand errand(std::size_t i) const;
  std::size_t n_errands() const { return 2 * layers_.size(); }
  std::size_t pieces(const Errand& e) const { return e.way == Errand::Way::Bring ? past_.size() : fresh_.size(); }
  /// Of the two: every other layer of those here has the same.
  std::size_t place(std::size_t layer) const { return layers_[layer].turn; }
  bool is_ready(const Errand&) const;
  bool is_kept(std::size_t layer) const { return kept_[layer] == fresh_.size(); }
  bool is_over() const { return next_ == n_errands(); }
  /// The next piece; false where there is none any more.
  bool take(Errand&, std::size_t& piece);
  void run(Carrier&);
  void bring(Carrier&, std::size_t layer, std::size_t piece);
  void keep(Carrier&, std::size_t layer, std::size_t piece);
  static std::vector<std::unique_ptr<Carrier>> make_carriers(std::size_t block_bytes, int threads);

  CacheKeeper& keeper_;
  std::array<Event, CacheType::kPlaces> appended_events_,
      left_events_;  ///< of the layer that has the place, or had it last
  std::vector<std::unique_ptr<Carrier>> carriers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::span<const FleetingLayer> layers_;
  std::vector<std::int32_t> past_;  ///< blocks with rows of before
  std::vector<CacheSlice> fresh_;   ///< where the step's rows are; without their layer
  std::size_t next_ = 0, next_piece_ = 0;
  std::vector<std::size_t> sent_, kept_;     ///< pieces of each layer
  std::size_t n_appended_ = 0, n_left_ = 0;  ///< layers
  std::exception_ptr error_;
  StepThreads threads_;
};

}  // namespace llm::cuda
