#include "backend/cuda/device.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace llm::cuda {
namespace {

/// Copies from the memory of the one to that of the other.
bool let_reach(int device, int other) {
  int can = 0;
  check_cuda(cudaDeviceCanAccessPeer(&can, device, other), "asking how devices are connected");
  if (can == 0) return false;
  use_device(device);
  const cudaError_t result = cudaDeviceEnablePeerAccess(other, 0);
  if (result == cudaSuccess) return true;
  cudaGetLastError();
  return result == cudaErrorPeerAccessAlreadyEnabled;
}

}  // namespace

void check_cuda(cudaError_t result, std::string_view doing) {
  if (result == cudaSuccess) return;
  const auto kind = result == cudaErrorMemoryAllocation ? ErrorKind::Memory : ErrorKind::Device;
  throw Error(kind, "CUDA, " + std::string(doing) + ": " + cudaGetErrorString(result));
}

void use_device(int device) { check_cuda(cudaSetDevice(device), "choosing the device"); }

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "asking for the device");
  return device;
}

const DeviceLimits& device_limits() {
  static thread_local DeviceLimits limits;  // asked once, and again where the device changes
  const int id = current_device();
  if (id == limits.id) return limits;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, id), "asking for the device's sizes");
    return value;
  };
  limits = {.id = id,
            .capability = attribute(cudaDevAttrComputeCapabilityMajor),
            .multiprocessors = attribute(cudaDevAttrMultiProcessorCount),
            .multiprocessor_bytes = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
            .reserved_bytes = attribute(cudaDevAttrReservedSharedMemoryPerBlock),
            .block_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)};
  return limits;
}

std::string device_label(int device) {
  int n = 0;
  check_cuda(cudaGetDeviceCount(&n), "counting devices");
  return n == 1 ? "GPU" : "CUDA" + std::to_string(device);
}

bool connect_devices(int a, int b) {
  if (a == b) return true;
  static std::mutex mutex;
  static std::set<std::pair<int, int>> connected, apart;
  const std::lock_guard lock(mutex);
  const std::pair<int, int> both = std::minmax(a, b);
  if (connected.contains(both)) return true;
  if (apart.contains(both)) return false;
  const int before = current_device();
  const bool done = let_reach(a, b) && let_reach(b, a);
  use_device(before);
  (done ? connected : apart).insert(both);
  return done;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // an allocation that failed leaves the device usable
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
    const std::string label = device_label(current_device());
    throw Error(ErrorKind::Memory, (label == "GPU" ? "the GPU" : label) + " has no " + std::to_string(bytes >> 20) +
                                       " MiB left: " + std::to_string(free >> 20) + " of " +
                                       std::to_string(total >> 20) + " MiB are free");
  }
  check_cuda(result, "allocating memory of the device");
  data_ = static_cast<std::byte*>(memory);
}
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, bytes), "allocating page-locked memory");
  data_ = static_cast<std::byte*>(memory);
}
PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

void copy_to_device(void* to, const void* from, std::size_t bytes, std::string_view doing) {
  check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), doing);
  check_cuda(cudaStreamSynchronize(nullptr), doing);
}
void fill_device(void* memory, int byte, std::size_t bytes, std::string_view doing) {
  check_cuda(cudaMemset(memory, byte, bytes), doing);
  check_cuda(cudaStreamSynchronize(nullptr), doing);
}

Stream::Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}
void Stream::synchronize(std::string_view doing) const { check_cuda(cudaStreamSynchronize(stream_), doing); }

Event::Event() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
Event::~Event() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

}  // namespace llm::cuda
