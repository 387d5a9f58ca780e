// Times of the cache's kernels and of attention, beside what reading costs in the same run; with the word "wide" of
// heads of 512 and 576 elements alone. A few seconds. Every launch of a graph reads other blocks of the cache, more
// than the L2 cache holds in all; kernels overlap as in the engine.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/launch.cuh"
#include "tensor/tensor.h"

using namespace llm;
using namespace llm::cuda;

namespace {

__global__ void fill(float* x, std::int64_t n, float deviation) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    std::uint32_t h = static_cast<std::uint32_t>(i) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    const int sum = static_cast<int>((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24));
    x[i] = deviation * static_cast<float>(sum - 510) / 148.0f;
  }
}
__global__ void read_all(const uint4* x, std::int64_t n, unsigned* out) {
  unsigned sum = 0;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i + 3 * step < n; i += 4 * step) {
    const uint4 a = x[i], b = x[i + step], c = x[i + 2 * step], d = x[i + 3 * step];
    sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  if (sum == 0x12345678u) *out = sum;
}

/// Microseconds of one of the `n` launches that `enqueue` records; the best of several replays.
double microseconds(int n, const std::function<void(const Launch&, int)>& enqueue) {
  const Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "recording");
  for (int i = 0; i < n; ++i) enqueue({stream.get(), true}, i);
  check_cuda(cudaStreamEndCapture(stream.get(), &graph), "recording");
  check_cuda(cudaGraphInstantiate(&replay, graph, 0), "recording");
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "timing");
  check_cuda(cudaEventCreate(&end), "timing");
  float best = std::numeric_limits<float>::max();
  for (int i = 0; i < 6; ++i) {
    check_cuda(cudaEventRecord(begin, stream.get()), "timing");
    check_cuda(cudaGraphLaunch(replay, stream.get()), "replaying");
    check_cuda(cudaEventRecord(end, stream.get()), "timing");
    stream.synchronize("replaying");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "timing");
    if (i > 0) best = std::min(best, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  return 1000.0 * best / n;
}

std::int32_t* upload(DeviceBuffer& buffer, const std::vector<std::int32_t>& values) {
  buffer = DeviceBuffer(values.size() * sizeof(std::int32_t));
  check_cuda(cudaMemcpy(buffer.data(), values.data(), buffer.bytes(), cudaMemcpyHostToDevice), "copying");
  return reinterpret_cast<std::int32_t*>(buffer.data());
}
float* random_buffer(DeviceBuffer& buffer, std::int64_t n, float deviation) {
  buffer = DeviceBuffer(static_cast<std::size_t>(n) * sizeof(float));
  fill<<<1024, 256>>>(reinterpret_cast<float*>(buffer.data()), n, deviation);
  return reinterpret_cast<float*>(buffer.data());
}

struct Case {
  int heads, kv_heads, dim;
  DType type;
  int sequences, positions;
  int dim_v = 0;         ///< 0: as of keys
  bool in_keys = false;  ///< values are the first elements of keys
  int values() const { return dim_v == 0 ? dim : dim_v; }
  double position_bytes() const {
    const auto bytes = [this](int n) { return static_cast<double>(TensorType{type, {n}}.bytes()); };
    return kv_heads * (bytes(dim) + (in_keys ? 0 : bytes(values())));
  }
};

/// `turns` caches of a case in one: blocks in scattered order, filled with random rows.
class Bench {
 public:
  Bench(const Case& c, int turns, int tokens) : c_(c) {
    const int per_sequence = (c.positions + 63) / 64, tables = turns * c.sequences;
    std::vector<std::int32_t> table(static_cast<std::size_t>(tables * per_sequence));
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(i);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    const std::size_t rows = table.size() * 64 * static_cast<std::size_t>(c.kv_heads);
    k_ = DeviceBuffer(rows * TensorType{c.type, {c.dim}}.bytes());
    v_ = DeviceBuffer(rows * TensorType{c.type, {c.values()}}.bytes());
    view_ = {k_.data(), v_.data(), c.type, c.type, c.kv_heads, c.dim, c.values(), c.in_keys};
    step_.block_table = upload(table_, table);
    step_.table_stride = per_sequence;

    DeviceBuffer x, slots;
    constexpr int kAtOnce = 16384;
    const float* const values = random_buffer(x, std::int64_t{kAtOnce} * c.kv_heads * c.dim, 1.0f);
    for (int first = 0; first < static_cast<int>(table.size()) * 64; first += kAtOnce) {
      std::vector<std::int32_t> at(kAtOnce, -1);
      for (int i = 0; i < kAtOnce && first + i < static_cast<int>(table.size()) * 64; ++i) {
        at[static_cast<std::size_t>(i)] = first + i;
      }
      StepView step;
      step.slots = upload(slots, at);
      append_to_cache(values, values, view_, step, kAtOnce, {});
      check_cuda(cudaDeviceSynchronize(), "filling the cache");
    }
    q = random_buffer(q_, std::int64_t{tokens} * c.heads * c.dim, 1.0f);
    y_ = DeviceBuffer(static_cast<std::size_t>(tokens * c.heads * c.values()) * sizeof(float));
    std::vector<std::int32_t> positions, sequence;
    for (int i = 0; i < tokens; ++i) {
      positions.push_back(c.positions - 1);
      sequence.push_back(i % c.sequences);
    }
    step_.positions = upload(positions_, positions);
    step_.sequence = upload(sequence_, sequence);
  }

  StepView step(int turn) const {
    StepView s = step_;
    s.block_table += turn * c_.sequences * s.table_stride;
    return s;
  }
  const CacheView& view() const { return view_; }
  float* y() const { return reinterpret_cast<float*>(y_.data()); }
  const float* q = nullptr;

 private:
  Case c_;
  CacheView view_;
  StepView step_;
  DeviceBuffer k_, v_, table_, q_, y_, positions_, sequence_;
};

void bench_attend(const Case& c, double read_gbs) {
  const double bytes = c.position_bytes() * c.sequences * c.positions;
  const int turns = std::clamp(static_cast<int>(260e6 / bytes), 2, 64);
  const Bench b(c, turns, c.sequences);
  const AttentionShape shape{c.heads, 0.088f, 0, ActFormat::F32};
  const std::int64_t most = std::int64_t{(c.positions + 63) / 64} * 64;
  const AttentionMemory need = attention_memory(b.view(), shape, c.sequences, most);
  const DeviceBuffer scratch(need.scratch + 16), arrivals(need.arrivals + 16);
  check_cuda(cudaMemset(arrivals.data(), 0, arrivals.bytes()), "clearing");
  const int n = std::max(turns, 16);
  const double us = microseconds(n, [&](const Launch& at, int i) {
    attend(b.q, b.y(), b.view(), shape, b.step(i % turns), c.sequences, most, scratch.data(), arrivals.data(), at);
  });
  std::printf("attend  %-5s %2d/%d heads of %3d/%3d%s, %3d x %6d positions: %8.2f us, %7.1f MB, %3.0f %% of reading\n",
              std::string(name(c.type)).c_str(), c.heads, c.kv_heads, c.dim, c.values(), c.in_keys ? " in keys" : "",
              c.sequences, c.positions, us, bytes / 1e6, 100 * bytes / (us * 1e3) / read_gbs);
}

void bench_prompt(const Case& c) {
  const Bench b(c, 1, c.positions);
  const AttentionShape shape{c.heads, 0.088f, 0, ActFormat::F32};
  if (const char* refusal = prompt_attention_refusal(b.view())) {
    std::printf("prompt  refused: %s\n", refusal);
    return;
  }
  const PromptSpan span{0, c.positions, 0, 0};
  const double us = microseconds(
      4, [&](const Launch& at, int) { attend_prompt(b.q, b.y(), b.view(), shape, b.step(0), &span, 1, at); });
  const double operations = 2.0 * c.heads * (c.dim + c.values()) * (0.5 * c.positions * (c.positions + 1.0));
  std::printf("prompt  %-5s %2d/%d heads of %3d/%3d%s, %6d tokens: %9.1f us, %5.0f TFLOP/s (causal half counted)\n",
              std::string(name(c.type)).c_str(), c.heads, c.kv_heads, c.dim, c.values(), c.in_keys ? " in keys" : "",
              c.positions, us, operations / us / 1e6);
}

void bench_append(DType type, int tokens) {
  const Bench b({32, 8, 128, type, 1, tokens}, 1, tokens);
  DeviceBuffer x, slots;
  const float* const values = random_buffer(x, std::int64_t{tokens} * 8 * 128, 1.0f);
  std::vector<std::int32_t> at(static_cast<std::size_t>(tokens));
  for (int i = 0; i < tokens; ++i) at[static_cast<std::size_t>(i)] = i;
  StepView step;
  step.slots = upload(slots, at);
  const double us =
      microseconds(50, [&](const Launch& l, int) { append_to_cache(values, values, b.view(), step, tokens, l); });
  std::printf("append  %-5s 8 heads of 128, %5d tokens: %8.2f us\n", std::string(name(type)).c_str(), tokens, us);
}

double read_limit() {
  constexpr std::int64_t kBytes = std::int64_t{2} << 30;
  DeviceBuffer x(static_cast<std::size_t>(kBytes)), out(16);
  check_cuda(cudaMemset(x.data(), 1, x.bytes()), "filling");
  const double us = microseconds(4, [&](const Launch& at, int) {
    read_all<<<132 * 16, 512, 0, at.stream>>>(reinterpret_cast<const uint4*>(x.data()), kBytes / 16,
                                              reinterpret_cast<unsigned*>(out.data()));
  });
  return static_cast<double>(kBytes) / (us * 1e3);
}

}  // namespace

/// Heads as global layers of Gemma 4 31B have them, and GLM-4.7-Flash and DeepSeek V3, whose caches hold what keys and
/// values of all heads are made of.
void bench_wide(double limit) {
  const auto shapes = [](DType type, int sequences, int positions) {
    return std::vector<Case>{{32, 4, 512, type, sequences, positions},
                             {20, 1, 576, type, sequences, positions, 512, true},
                             {20, 1, 576, type, sequences, positions, 512},
                             {128, 1, 576, type, sequences, positions, 512, true}};
  };
  for (const int positions : {64, 512, 8192, 32768}) {
    for (const Case& c : shapes(DType::F16, 1, positions)) bench_attend(c, limit);
  }
  for (const int sequences : {8, 32}) {
    for (const Case& c : shapes(DType::F16, sequences, 2048)) bench_attend(c, limit);
  }
  for (const DType type : {DType::BF16, DType::F8_E4M3}) {
    for (const Case& c : shapes(type, 1, 8192)) bench_attend(c, limit);
  }
  for (const int tokens : {512, 2048, 8192}) {
    for (const Case& c : shapes(DType::F16, 1, tokens)) bench_prompt(c);
  }
  for (const DType type : {DType::BF16, DType::F8_E4M3, DType::Q8_0}) {
    for (const Case& c : shapes(type, 1, 2048)) bench_prompt(c);
  }
}

int main(int count, char** words) {
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
    std::printf("SKIPPED: no CUDA device\n");
    return 0;
  }
  const double limit = read_limit();
  std::printf("reading 2 GiB: %.0f GB/s\n", limit);
  if (count > 1 && std::string(words[1]) == "wide") {
    bench_wide(limit);
    return 0;
  }
  for (const DType type : {DType::F16, DType::F8_E4M3, DType::Q8_0, DType::F32}) {
    for (const int tokens : {1, 8192}) bench_append(type, tokens);
  }
  for (const int positions : {64, 128, 256, 512, 1024, 4096, 8192, 8256, 16384, 20480, 32000, 32768, 131072}) {
    bench_attend({32, 8, 128, DType::F16, 1, positions}, limit);
  }
  for (const DType type : {DType::BF16, DType::F8_E4M3, DType::Q8_0, DType::Q4_0, DType::F32}) {
    for (const int positions : {256, 8192, 32768}) bench_attend({32, 8, 128, type, 1, positions}, limit);
  }
  for (const DType type : {DType::F8_E4M3, DType::Q8_0}) {
    for (const int positions : {256, 8192, 32768, 131072}) {
      bench_attend({32, 4, 128, type, 1, positions}, limit);
      bench_attend({32, 8, 64, type, 1, positions}, limit);
      bench_attend({8, 4, 256, type, 1, positions}, limit);
    }
  }
  for (const int positions : {256, 8192, 32768}) {
    bench_attend({32, 4, 128, DType::F16, 1, positions}, limit);  // 8 heads to a KV head
    bench_attend({32, 8, 64, DType::F16, 1, positions}, limit);
    bench_attend({8, 4, 256, DType::F16, 1, positions}, limit);
    bench_attend({32, 32, 128, DType::F16, 1, positions}, limit);
    bench_attend({12, 2, 128, DType::F16, 1, positions}, limit);
    bench_attend({4, 1, 256, DType::F16, 1, positions}, limit);
  }
  for (const int sequences : {4, 8, 32, 256}) {
    for (const int positions : {256, 2048}) bench_attend({32, 8, 128, DType::F16, sequences, positions}, limit);
  }
  for (const int tokens : {512, 2048, 8192, 16384}) bench_prompt({32, 8, 128, DType::F16, 1, tokens});
  for (const DType type : {DType::BF16, DType::F8_E4M3, DType::Q8_0}) bench_prompt({32, 8, 128, type, 1, 8192});
  bench_prompt({32, 8, 64, DType::F16, 1, 8192});
  bench_prompt({32, 4, 128, DType::F16, 1, 8192});
  bench_prompt({28, 4, 128, DType::F16, 1, 8192});
  bench_prompt({8, 4, 256, DType::F16, 1, 8192});
  return 0;
}
