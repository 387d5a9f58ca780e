// Where the data of steps wait for their copy to the device, and where they go there: the same places for all programs
// that share a workspace, since their steps follow one another in one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/device.h"

namespace llm::cuda {

class StepStaging {
 public:
  /// So many copies may be waiting before next() does.
  explicit StepStaging(int at_once);

  /// Room for steps of so many words. Returns where they go on the device, which stays valid when others need more.
  const std::int32_t* reserve(std::size_t words);
  /// The place for the next step, as large as the largest reserved so far, when what lay there has been copied. What it
  /// holds is of no program in particular.
  std::int32_t* next();
  /// Enqueues the copy of the first `words` of what next() gave to where reserve() said.
  void send(const std::int32_t* to, std::size_t words, cudaStream_t);
  std::size_t device_bytes() const;

 private:
  struct Place {
    PinnedBuffer memory = {};
    Event copied = {};
  };
  void wait(const Place&) const;

  std::vector<Place> places_;
  std::size_t turn_ = 0;
  std::vector<DeviceBuffer> device_;  ///< the last one is the largest
};

}  // namespace llm::cuda
