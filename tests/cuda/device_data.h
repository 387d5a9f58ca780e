// Random data on the device for the tests of kernels, and results back from it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/launch.h"

namespace llm::cuda::test {

/// Whether to leave a test, having said so.
inline bool no_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return false;
  std::fputs("SKIPPED: no CUDA device\n", stderr);
  return true;
}

/// An array in device memory: a copy of a vector, or of bytes 0xff (NaN as f32 and F16, -1 as an integer). `offset`
/// elements before it spoil its alignment. Any stream may use it at once.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values, std::size_t offset = 0)
      : buffer_((values.size() + offset) * sizeof(T)), offset_(offset), size_(values.size()) {
    copy_to_device(data(), values.data(), size_ * sizeof(T), "copying test data");
  }
  explicit OnDevice(std::size_t size, std::size_t offset = 0)
      : buffer_((size + offset) * sizeof(T)), offset_(offset), size_(size) {
    fill_device(data(), 0xff, size * sizeof(T), "poisoning test data");
  }
  T* data() const { return reinterpret_cast<T*>(buffer_.data()) + offset_; }
  std::size_t size() const { return size_; }
  /// After everything enqueued so far.
  std::vector<T> read() const {
    check_cuda(cudaDeviceSynchronize(), "running a kernel under test");
    std::vector<T> values(size_);
    check_cuda(cudaMemcpy(values.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost), "copying test results");
    return values;
  }

 private:
  DeviceBuffer buffer_;
  std::size_t offset_, size_;
};

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  float normal() { return distribution_(engine_); }
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(n)); }
  std::vector<float> floats(std::size_t n, float magnitude = 1) {
    std::vector<float> v(n);
    for (float& x : v) x = magnitude * normal();
    return v;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> distribution_;
};

inline std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

/// The first index at which two arrays differ, NaN equal to NaN; -1 if nowhere.
inline std::int64_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return static_cast<std::int64_t>(i);
  }
  return -1;
}

/// What a sum of n terms in f32 may be off by where the largest result is `largest`.
inline double limit(std::int64_t terms, double largest) {
  return (4 * std::sqrt(static_cast<double>(terms)) + 16) * std::numeric_limits<float>::epsilon() * largest;
}

/// The largest difference in units of limit(); infinity where only one side is NaN or an infinity.
inline double worst(const std::vector<float>& expected, const std::vector<float>& actual, std::int64_t terms) {
  if (expected.size() != actual.size()) return std::numeric_limits<double>::infinity();
  double largest = 0, off = 0;
  for (const float x : expected) largest = std::isfinite(x) ? std::max<double>(largest, std::fabs(x)) : largest;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (same(expected[i], actual[i]) || expected[i] == actual[i]) continue;
    const double difference = std::fabs(double{expected[i]} - double{actual[i]}) / limit(terms, largest);
    if (!(difference <= off)) off = std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
  }
  return off;
}

}  // namespace llm::cuda::test
