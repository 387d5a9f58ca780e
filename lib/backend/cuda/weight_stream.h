// Weights that the device does not keep: each step that reads them brings them there, those of the next nodes while
// this one is computed.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/step_threads.h"
#include "backend/cuda/weight_pieces.h"
#include "backend/cuda/weights.h"
#include "graph/graph.h"

namespace llm::cuda {

/// What graphs take on the device for their streamed weights; nothing where they have none.
struct StreamSize {
  std::size_t slot = 0;   ///< bytes of each
  std::size_t piece = 0;  ///< bytes of each reader
  /// Of both.
  void add(const StreamSize&);
  std::size_t bytes() const;
};

/// Where a graph's streamed weights lie while the node that reads them is computed: nodes have the slots in turn.
struct StreamPlan {
  static constexpr std::size_t kSlots = 2;
  struct Weight {
    std::string name;
    std::size_t offset = 0;  ///< in the slot
  };
  struct Use {
    std::size_t node = 0;
    std::vector<Weight> weights = {};
  };
  std::vector<Use> uses = {};  ///< in the order of the nodes
  StreamSize size = {};
};
StreamPlan plan_streams(const Graph&);

/// The weights of one use as they are brought: to a slot's memory.
struct StreamedPiece {
  const std::byte* rows;  ///< of the file, mapped
  WeightPiece piece;
};
using StreamedUse = std::vector<StreamedPiece>;

/// Slots and the threads that fill them, for one program at a time.
class WeightStream {
 public:
  WeightStream(const StreamSize&, int readers);
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;
  ~WeightStream();  // where a reader is known

  const StreamSize& size() const { return size_; }
  std::byte* slot(std::size_t use) const { return slots_.data() + use % StreamPlan::kSlots * size_.slot; }

  /// One step of a program, whose uses arrive and leave in their order. Its end waits for the readers.
  class Step {
   public:
    Step(WeightStream& stream, const std::vector<StreamedUse>& uses) : stream_(stream) { stream_.begin(uses); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    ~Step() { stream_.end(); }
    /// What is enqueued next waits for the use's weights. Throws what kept a reader from bringing them.
    void arrive(std::size_t use, cudaStream_t stream) { stream_.arrive(use, stream); }
    /// They were read by what was enqueued so far.
    void leave(std::size_t use, cudaStream_t stream) { stream_.leave(use, stream); }

   private:
    WeightStream& stream_;
  };

 private:
  struct Reader;
  void begin(const std::vector<StreamedUse>& uses);
  void arrive(std::size_t use, cudaStream_t stream);
  void leave(std::size_t use, cudaStream_t stream);
  void end();

  /// The next piece's place in `uses_`; false where there is none to bring any more.
  bool take(std::size_t& use, std::size_t& piece);
  void bring_all(Reader&);
  void run(Reader&);
  static std::vector<std::unique_ptr<Reader>> make_readers(std::size_t bytes, int readers);

  StreamSize size_;
  DeviceBuffer slots_;
  std::array<Event, StreamPlan::kSlots> left_;  ///< recorded behind the last reader of what was in a slot
  std::vector<std::unique_ptr<Reader>> readers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::vector<StreamedUse>* uses_ = nullptr;
  std::size_t next_use_ = 0, next_piece_ = 0;  ///< to be taken
  std::size_t n_left_ = 0;                     ///< uses that have left
  std::vector<std::size_t> n_sent_;            ///< pieces of each use
  std::exception_ptr error_;
  StepThreads threads_;  ///< one for each reader that it could start
};

/// The matrices of a plan's weights in their slots, and how they get there.
struct StreamedWeights {
  StreamedWeights(const StreamPlan&, const CudaWeights&, const WeightStream*);
  /// By the node that reads them: layers that are gone through again find theirs in another slot.
  std::map<std::pair<std::size_t, std::string>, CudaWeights::Matrix> matrices;
  std::vector<StreamedUse> uses;
};

}  // namespace llm::cuda
