// What it costs that a product needs all results of the one before: a launch for each, or one launch of all with a
// barrier of the whole device between them.
//   bench_stages
// A stage reads weights as the ring of decoding does (tile_ring.cuh: one block a multiprocessor, a producer that runs
// ahead of what is waited for), a column of n floats that all blocks of the stage before wrote, and writes the next
// column. Nothing is computed but sums, so that the rest of a stage's time is shown. Forms:
//   launches   a kernel a stage, recorded as a graph, with programmatic launches
//   counter    one kernel: a block adds 1 when its results are written, and waits for the sum
//   flags      one kernel: a block writes the stage's number to a place of its own, and waits for those of all
//   words      one kernel: each result is written with its stage's number, and whoever reads it reads again until it
//              finds that: one way through the second cache, not two
// Every form has the same results, which are compared.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/ring_asm.cuh"
#include "base/error.h"

using namespace llm;
using namespace llm::cuda;

namespace {

constexpr int kConsumers = 8, kConsumerThreads = 32 * kConsumers, kThreads = kConsumerThreads + 32;
constexpr int kChunk = 16 << 10, kChunks = 6;        ///< bytes of a piece of weights; of the ring
constexpr int kMostColumn = 14336;                   ///< floats
constexpr int kStages = 160;                         ///< of a model of 32 layers with five launches each
constexpr std::size_t kPool = std::size_t{1} << 30;  ///< bytes of weights, more than the second cache holds

enum class Form { Launches, Counter, Flags, Words };

struct Word {
  float value;
  unsigned stage;
};

struct Arguments {
  const std::byte* weights;
  int chunks;   ///< of a stage's weights
  int n;        ///< floats of a column
  float* y[2];  ///< columns of stages of even and odd numbers
  Word* words[2];
  unsigned* counter;
  unsigned* flags;  ///< [blocks]
  int first_stage, end_stage;
};

struct Shared {
  alignas(128) std::byte ring[kChunks][kChunk];
  alignas(16) float x[kMostColumn];
  unsigned sums[kConsumers];
  alignas(8) std::uint64_t full[kChunks], empty[kChunks];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ void consumers_meet() {
  asm volatile("barrier.cta.sync 1, %0;" ::"n"(kConsumerThreads) : "memory");
}
__device__ __forceinline__ unsigned load_acquire(const unsigned* p) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

__device__ __forceinline__ std::size_t offset_of(int stage, int chunk, int chunks) {
  const std::size_t stage_bytes = std::size_t{static_cast<unsigned>(chunks)} * kChunk;
  const std::size_t stages = kPool / (stage_bytes > 0 ? stage_bytes : 1);
  return (static_cast<std::size_t>(stage) % stages) * stage_bytes + static_cast<std::size_t>(chunk) * kChunk;
}

__device__ __forceinline__ void produce(const Arguments& a, Shared& s) {
  const std::uint64_t policy = read_once_policy();
  int slot = 0;
  std::uint32_t phase = 1;
  for (int stage = a.first_stage; stage < a.end_stage; ++stage) {
    for (int chunk = static_cast<int>(blockIdx.x); chunk < a.chunks; chunk += static_cast<int>(gridDim.x)) {
      const std::uint32_t full = shared_address(&s.full[slot]);
      wait_barrier(shared_address(&s.empty[slot]), phase);
      arrive_expecting(full, kChunk);
      copy_bulk(shared_address(s.ring[slot]), a.weights + offset_of(stage, chunk, a.chunks), kChunk, full, policy);
      if (++slot == kChunks) slot = 0, phase ^= 1;
    }
  }
}

template <Form form>
__device__ __forceinline__ void wait_for_column(const Arguments& a, int stage, int thread) {
  if (stage == 0) return;
  const auto number = static_cast<unsigned>(stage);
  if constexpr (form == Form::Counter) {
    if (thread == 0) {
      while (load_acquire(a.counter) < number * gridDim.x) {
      }
    }
    consumers_meet();
  } else if constexpr (form == Form::Flags) {
    for (unsigned b = static_cast<unsigned>(thread); b < gridDim.x; b += kConsumerThreads) {
      while (load_acquire(a.flags + b) < number) {
      }
    }
    consumers_meet();
  }
}

template <Form form>
__device__ __forceinline__ float4 load_column(const Arguments& a, int stage, int i) {
  if (form != Form::Words || stage == 0) return __ldcg(reinterpret_cast<const float4*>(a.y[stage & 1]) + i);
  const Word* const from = a.words[stage & 1] + 4 * i;
  float x[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned w[4];
    do {
      asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "l"(from + 2 * half)
                   : "memory");
    } while (w[1] != static_cast<unsigned>(stage) || w[3] != static_cast<unsigned>(stage));
    x[2 * half] = __uint_as_float(w[0]);
    x[2 * half + 1] = __uint_as_float(w[2]);
  }
  return make_float4(x[0], x[1], x[2], x[3]);
}

template <Form form>
__device__ __forceinline__ void store_result(const Arguments& a, int stage, int i, float value) {
  const int next = stage + 1;
  if constexpr (form == Form::Words) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(a.words[next & 1] + i),
                 "r"(__float_as_uint(value)), "r"(next)
                 : "memory");
  } else {
    __stcg(a.y[next & 1] + i, value);
  }
}

template <Form form>
__device__ __forceinline__ void say_written(const Arguments& a, int stage, int thread) {
  if constexpr (form == Form::Counter || form == Form::Flags) {
    consumers_meet();
    if (thread != 0) return;
    __threadfence();
    if constexpr (form == Form::Counter) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(a.counter) : "memory");
    } else {
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(a.flags + blockIdx.x), "r"(stage + 1) : "memory");
    }
  }
}

template <Form form>
__device__ __forceinline__ void consume(const Arguments& a, Shared& s) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int begin = static_cast<int>(std::int64_t{a.n} * block / blocks);
  const int end = static_cast<int>(std::int64_t{a.n} * (block + 1) / blocks);
  int slot = 0;
  std::uint32_t phase = 0;
  for (int stage = a.first_stage; stage < a.end_stage; ++stage) {
    wait_for_column<form>(a, stage, thread);
#pragma unroll 4
    for (int i = thread; i < a.n / 4; i += kConsumerThreads)
      *reinterpret_cast<float4*>(s.x + 4 * i) = load_column<form>(a, stage, i);
    consumers_meet();
    unsigned sum = 0;
    for (int chunk = block; chunk < a.chunks; chunk += blocks) {
      wait_barrier(shared_address(&s.full[slot]), phase);
      const auto* const from = reinterpret_cast<const uint4*>(s.ring[slot] + warp * (kChunk / kConsumers));
#pragma unroll
      for (int i = 0; i < kChunk / kConsumers / 512; ++i) {
        const uint4 v = from[i * 32 + lane];
        sum += v.x ^ v.y ^ v.z ^ v.w;
      }
      __syncwarp();
      if (lane == 0) arrive(shared_address(&s.empty[slot]));
      if (++slot == kChunks) slot = 0, phase ^= 1;
    }
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (lane == 0) s.sums[warp] = sum;
    consumers_meet();
    unsigned total = 0;
#pragma unroll
    for (int w = 0; w < kConsumers; ++w) total += s.sums[w];
    for (int i = begin + thread; i < end; i += kConsumerThreads) {
      const float x = s.x[(i * 7 + 1) % a.n], beside = s.x[(i * 3 + 2) % a.n];
      store_result<form>(a, stage, i, fmaf(x, 0.75f, beside * 0.25f) + static_cast<float>(total & 1u));
    }
    say_written<form>(a, stage, thread);
    consumers_meet();  // the column's place is free
  }
}

template <Form form>
__global__ void __launch_bounds__(kThreads, 1) stages_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) std::byte memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  let_next_start();
  if (threadIdx.x == kConsumerThreads) {
    for (int i = 0; i < kChunks; ++i) {
      init_barrier(shared_address(&s.full[i]), 1);
      init_barrier(shared_address(&s.empty[i]), kConsumers);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumerThreads) {
    if (threadIdx.x == kConsumerThreads) produce(a, s);
    return;
  }
  wait_for_previous();
  consume<form>(a, s);
}

#else
template <Form form>
__global__ void stages_kernel(const __grid_constant__ Arguments) {}
#endif

struct Memory {
  DeviceBuffer weights{kPool}, y{2 * kMostColumn * sizeof(float)}, words{2 * kMostColumn * sizeof(Word)}, signals{4096};
};

template <Form form>
void enqueue(const Arguments& all, Memory& m, int blocks, const Launch& at) {
  const auto kernel = stages_kernel<form>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
             "shared memory");
  check_cuda(cudaMemsetAsync(m.words.data(), 0, m.words.bytes(), at.stream), "clearing");
  check_cuda(cudaMemsetAsync(m.signals.data(), 0, m.signals.bytes(), at.stream), "clearing");
  Arguments a = all;
  const int step = form == Form::Launches ? 1 : kStages;
  for (int stage = 0; stage < kStages; stage += step) {
    a.first_stage = stage;
    a.end_stage = stage + step;
    launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), sizeof(Shared),
           Launch{.stream = at.stream, .overlap = stage > 0}, a);
  }
}

/// Microseconds of a stage, the best of some runs of a recorded graph; `result` gets the last column.
template <Form form>
double microseconds(const Arguments& a, Memory& m, int blocks, cudaStream_t stream, std::vector<float>& result) {
  std::vector<float> first(static_cast<std::size_t>(a.n));
  for (std::size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i % 97) - 48.0f;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording");
  enqueue<form>(a, m, blocks, {.stream = stream});
  check_cuda(cudaStreamEndCapture(stream, &graph), "recording");
  check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiating");
  const Event begin, end;
  double best = 1e30;
  for (int run = 0; run < 6; ++run) {
    copy_to_device(reinterpret_cast<std::byte*>(a.y[0]), first.data(), first.size() * sizeof(float),
                   "the first column");
    check_cuda(cudaEventRecord(begin.get(), stream), "timing");
    check_cuda(cudaGraphLaunch(exec, stream), "replaying");
    check_cuda(cudaEventRecord(end.get(), stream), "timing");
    check_cuda(cudaStreamSynchronize(stream), "replaying");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
    if (run > 0) best = std::min(best, static_cast<double>(ms) * 1000 / kStages);
  }
  result.resize(first.size());
  static_assert(kStages % 2 == 0);
  if (form == Form::Words) {
    std::vector<Word> words(first.size());
    check_cuda(cudaMemcpy(words.data(), a.words[0], words.size() * sizeof(Word), cudaMemcpyDeviceToHost), "results");
    for (std::size_t i = 0; i < words.size(); ++i) result[i] = words[i].value;
  } else {
    check_cuda(cudaMemcpy(result.data(), a.y[0], result.size() * sizeof(float), cudaMemcpyDeviceToHost), "results");
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return best;
}

int run() {
  int device = 0, blocks = 0, capability = 0;
  check_cuda(cudaGetDevice(&device), "asking for the device");
  check_cuda(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device), "asking for the device");
  check_cuda(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device), "asking for the device");
  if (capability < 9) {
    std::fputs("bench_stages: copies of bulk need compute capability 9.0\n", stderr);
    return 9;
  }
  Memory m;
  fill_device(m.weights.data(), 0, kPool, "clearing weights");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  std::printf("%d multiprocessors; us a stage\n", blocks);
  std::printf("%9s %7s %10s %10s %10s %10s\n", "weights", "column", "launches", "counter", "flags", "words");
  bool same = true;
  for (const int megabytes : {0, 1, 5, 9, 14, 33, 66}) {
    for (const int n : {2048, 4096, 14336}) {
      Arguments a{};
      a.weights = m.weights.data();
      a.chunks = static_cast<int>((std::int64_t{megabytes} << 20) / kChunk);
      a.n = n;
      for (int i = 0; i < 2; ++i) {
        a.y[i] = reinterpret_cast<float*>(m.y.data()) + i * kMostColumn;
        a.words[i] = reinterpret_cast<Word*>(m.words.data()) + i * kMostColumn;
      }
      a.counter = reinterpret_cast<unsigned*>(m.signals.data());
      a.flags = a.counter + 32;
      std::vector<float> of_launches, counter, flags, words;
      const double us[4] = {microseconds<Form::Launches>(a, m, blocks, stream, of_launches),
                            microseconds<Form::Counter>(a, m, blocks, stream, counter),
                            microseconds<Form::Flags>(a, m, blocks, stream, flags),
                            microseconds<Form::Words>(a, m, blocks, stream, words)};
      same = same && of_launches == counter && of_launches == flags && of_launches == words;
      std::printf("%6d MB %7d %10.2f %10.2f %10.2f %10.2f\n", megabytes, n, us[0], us[1], us[2], us[3]);
      std::fflush(stdout);
    }
  }
  check_cuda(cudaStreamDestroy(stream), "a stream");
  if (!same) std::fputs("bench_stages: the forms' results differ\n", stderr);
  return same ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_stages: %s\n", e.what());
    return 9;
  }
}
