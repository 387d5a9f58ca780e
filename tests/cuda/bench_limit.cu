// What the GPU's memory gives at most: prints two numbers, TB/s of reading alone and of copying (bytes read and bytes
// written together), each the best of many passes. Passes are over 2 GB, of which caches hold next to nothing.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::size_t kBytes = std::size_t{2} << 30;
constexpr int kPasses = 30;
constexpr int kThreads = 512, kBlocksPerSm = 2;
/// 16 bytes each, on their way at once in every thread: 128 KB of a multiprocessor with 1,024 threads, whose registers
/// hold them.
constexpr int kLoads = 8;

void check(cudaError_t result, const char* doing) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "bench_limit: %s: %s\n", doing, cudaGetErrorString(result));
  std::exit(9);
}

/// Sums so that no load can be left out; `sink` is written by nobody, since memory holds zeros.
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) read_all(const uint4* p, std::size_t n, unsigned* sink) {
  const std::size_t stride = std::size_t{gridDim.x} * kThreads;
  unsigned sum = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += kLoads * stride) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) v[j] = i + j * stride < n ? __ldcs(p + i + j * stride) : uint4{};
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum |= v[j].x | v[j].y | v[j].z | v[j].w;
  }
  if (sum != 0) *sink = sum;
}

/// TB/s of the fastest pass.
template <class F>
double best(std::size_t bytes, F&& pass) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "making an event");
  check(cudaEventCreate(&end), "making an event");
  float least = 1e30F;
  for (int i = 0; i < kPasses; ++i) {
    check(cudaEventRecord(begin), "measuring");
    pass();
    check(cudaGetLastError(), "measuring");
    check(cudaEventRecord(end), "measuring");
    check(cudaEventSynchronize(end), "measuring");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "measuring");
    least = std::min(least, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(bytes) / (static_cast<double>(least) * 1e-3) / 1e12;
}

}  // namespace

int main() {
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "asking for the device");
  char* memory = nullptr;
  unsigned* sink = nullptr;
  check(cudaMalloc(&memory, kBytes), "allocating 2 GB");
  check(cudaMalloc(&sink, sizeof(unsigned)), "allocating");
  check(cudaMemset(memory, 0, kBytes), "clearing");
  const double read = best(kBytes, [&] {
    read_all<<<sms * kBlocksPerSm, kThreads>>>(reinterpret_cast<const uint4*>(memory), kBytes / sizeof(uint4), sink);
  });
  const double copy = best(kBytes, [&] {
    check(cudaMemcpyAsync(memory + kBytes / 2, memory, kBytes / 2, cudaMemcpyDeviceToDevice), "copying");
  });
  std::printf("%.3f %.3f\n", read, copy);
  cudaFree(sink);
  cudaFree(memory);
  return 0;
}
