// What the host code of the CUDA backend needs of the runtime: errors as exceptions, memory and streams that release
// themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace llm::cuda {

/// Throws ErrorKind::Memory for cudaErrorMemoryAllocation and ErrorKind::Device for any other failure, naming what was
/// being done and CUDA's own words.
void check_cuda(cudaError_t result, std::string_view doing);

/// The device that the calling thread's calls are for. Whatever may be entered from outside chooses its own first.
void use_device(int device);
int current_device();
/// What launches on a device depend on.
struct DeviceLimits {
  int id = -1;
  int capability = 0;  ///< major
  int multiprocessors = 0;
  int multiprocessor_bytes = 0;  ///< of shared memory
  int reserved_bytes = 0;        ///< of it, for each block
  int block_bytes = 0;           ///< most that a block may have
};
/// Of the device that the calling thread's calls are for.
const DeviceLimits& device_limits();
/// "GPU"; where there are several, "CUDA1".
std::string device_label(int device);
/// Whether copies between the memories of two devices, or of one, bypass the host's; they do from then on.
bool connect_devices(int a, int b);

/// Device memory. Throws ErrorKind::Memory, naming the bytes asked for and those that are free.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory, which copies run to and from without a detour.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// CUDA's own copies to a device and its fills run in the default stream, which no Stream waits for, and may end after
// their calls have returned. These have ended when they return.

/// From the host or from the same device.
void copy_to_device(void* to, const void* from, std::size_t bytes, std::string_view doing);
void fill_device(void* memory, int byte, std::size_t bytes, std::string_view doing);

/// Waits for none but its own work.
class Stream {
 public:
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();
  cudaStream_t get() const { return stream_; }
  void synchronize(std::string_view doing) const;

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Event(Event&& other) noexcept;
  ~Event();
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace llm::cuda
