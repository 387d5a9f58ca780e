#include "backend/cuda/step_staging.h"

#include <algorithm>
#include <cstring>

namespace llm::cuda {

StepStaging::StepStaging(int at_once) : places_(static_cast<std::size_t>(std::max(at_once, 2))) {}

const std::int32_t* StepStaging::reserve(std::size_t words) {
  const std::size_t bytes = words * sizeof(std::int32_t);
  if (device_.empty() || device_.back().bytes() < bytes) device_.emplace_back(bytes);
  for (Place& p : places_) {
    if (p.memory.bytes() >= bytes) continue;
    wait(p);
    p.memory = PinnedBuffer(bytes);
    std::memset(p.memory.data(), 0, bytes);
  }
  return reinterpret_cast<const std::int32_t*>(device_.back().data());
}

std::int32_t* StepStaging::next() {
  turn_ = (turn_ + 1) % places_.size();
  wait(places_[turn_]);
  return reinterpret_cast<std::int32_t*>(places_[turn_].memory.data());
}

void StepStaging::send(const std::int32_t* to, std::size_t words, cudaStream_t stream) {
  const Place& p = places_[turn_];
  check_cuda(cudaMemcpyAsync(const_cast<std::int32_t*>(to), p.memory.data(), words * sizeof(std::int32_t),
                             cudaMemcpyHostToDevice, stream),
             "copying a step's data");
  check_cuda(cudaEventRecord(p.copied.get(), stream), "copying a step's data");
}

std::size_t StepStaging::device_bytes() const {
  std::size_t bytes = 0;
  for (const DeviceBuffer& b : device_) bytes += b.bytes();
  return bytes;
}

/// An event that was never recorded has happened.
void StepStaging::wait(const Place& p) const {
  check_cuda(cudaEventSynchronize(p.copied.get()), "copying a step's data");
}

}  // namespace llm::cuda
