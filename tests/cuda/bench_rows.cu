// Times of the kernels that work row by row and of the float products: a table of microseconds, bytes and the share of
// what a plain reading kernel of the same run reaches. Launches are recorded in a graph, with overlap, over operands
// that rotate through more memory than L2 holds.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/kernels/act_layout.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/kernels/rope_append.h"
#include "backend/cuda/kernels/rows.h"

namespace llm::cuda {
namespace {

constexpr std::size_t kPool = std::size_t{3} << 30;
constexpr std::size_t kRotated = std::size_t{256} << 20;  ///< of each operand at least

__global__ void read_kernel(const uint4* from, std::size_t words, unsigned* to) {
  unsigned all = 0;
  const std::size_t threads = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * threads < words; i += 4 * threads) {
    const uint4 a = from[i], b = from[i + threads], c = from[i + 2 * threads], d = from[i + 3 * threads];
    all |= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  if (all == 0x12345678u) *to = all;
}

class Bench {
 public:
  Bench() : pool_(kPool), results_(std::size_t{1} << 30) {
    check_cuda(cudaMemset(pool_.data(), 0x3c, kPool), "filling memory");
    check_cuda(cudaMemset(results_.data(), 0, results_.bytes()), "filling memory");
    constexpr std::size_t kRead = std::size_t{1} << 30;
    limit_ = kRead / time(8, [&](int i, const Launch& at) {
               read_kernel<<<132 * 8, 256, 0, at.stream>>>(
                   reinterpret_cast<const uint4*>(pool_.data() + static_cast<std::size_t>(i % 3) * kRead), kRead / 16,
                   reinterpret_cast<unsigned*>(results_.data()));
             });
    std::printf("read limit %.2f TB/s\n%-46s %10s %12s %8s\n", limit_ * 1e-6, "", "us", "bytes", "% limit");
  }

  /// `bytes` are read and written by a launch, `rotated` of them from an operand that differs from launch to launch.
  void row(const std::string& name, double bytes, const std::function<void(int, const Launch&)>& f) {
    const int launches = static_cast<int>(std::clamp(4e9 / bytes, 8.0, 400.0));
    const double us = time(launches, f);
    std::printf("%-46s %10.2f %12.0f %8.1f\n", name.c_str(), us, bytes, 100 * bytes / us / limit_);
    std::fflush(stdout);
  }

  /// The i-th place of an operand of `bytes` in the first half of the pool, or in the second.
  template <class T>
  T* operand(int i, std::size_t bytes, int half = 0) const {
    const std::size_t stride = (bytes + 255) / 256 * 256, places = std::max<std::size_t>(1, kPool / 2 / stride);
    const std::size_t used = std::min(places, kRotated / stride + 2);
    return reinterpret_cast<T*>(pool_.data() + static_cast<std::size_t>(half) * (kPool / 2) +
                                static_cast<std::size_t>(i) % used * stride);
  }
  template <class T>
  T* result(std::size_t at = 0) const {
    return reinterpret_cast<T*>(results_.data() + at);
  }

 private:
  /// Microseconds of a launch, the best of five replays.
  double time(int launches, const std::function<void(int, const Launch&)>& f) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "recording");
    for (int i = 0; i < launches; ++i) f(i, Launch{stream_.get(), true});
    check_cuda(cudaStreamEndCapture(stream_.get(), &graph), "recording");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "recording");
    const Event begin, end;
    float best = 1e30f;
    for (int repetition = 0; repetition < 6; ++repetition) {
      check_cuda(cudaEventRecord(begin.get(), stream_.get()), "timing");
      check_cuda(cudaGraphLaunch(executable, stream_.get()), "timing");
      check_cuda(cudaEventRecord(end.get(), stream_.get()), "timing");
      stream_.synchronize("timing");
      float ms = 0;
      check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
      if (repetition > 0) best = std::min(best, ms);
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return 1e3 * best / launches;
  }

  Stream stream_;
  DeviceBuffer pool_, results_;
  double limit_ = 1;  ///< bytes per microsecond
};

void bench_rows(Bench& b) {
  for (const int rows : {1, 8, 4096}) {
    const std::string of = " of " + std::to_string(rows) + " x ";
    constexpr int kWidth = 4096, kWide = 14336;
    const auto elements = static_cast<double>(rows) * kWidth, wide_elements = static_cast<double>(rows) * kWide;
    const auto bytes = static_cast<std::size_t>(elements * 4), wide_bytes = static_cast<std::size_t>(wide_elements * 4);
    Forms q;
    q.q8x256 = b.result<std::byte>();
    q.capacity = rows;
    Forms f32;
    f32.f32 = b.result<float>();
    Forms f16;
    f16.f16 = b.result<std::byte>();
    f16.f16_unscale = b.result<float>(std::size_t{512} << 20);
    const auto w = b.operand<float>(0, kWidth * 4, 1);
    const auto sum = b.result<float>(std::size_t{256} << 20);
    b.row("rms_norm" + of + "4096 to Q8x256", elements * 5.25,
          [&](int i, const Launch& at) { rms_norm(b.operand<float>(i, bytes), w, 1e-5f, kWidth, rows, q, at); });
    b.row("add_rms_norm" + of + "4096 to Q8x256", elements * 13.25, [&](int i, const Launch& at) {
      add_rms_norm(b.operand<float>(i, bytes), b.operand<float>(i, bytes, 1), w, 1e-5f, kWidth, rows, sum, q, at);
    });
    b.row("add_rms_norm" + of + "4096 to f32", elements * 16, [&](int i, const Launch& at) {
      add_rms_norm(b.operand<float>(i, bytes), b.operand<float>(i, bytes, 1), w, 1e-5f, kWidth, rows, sum, f32, at);
    });
    b.row("rms_norm" + of + "4096 to F16", elements * 6,
          [&](int i, const Launch& at) { rms_norm(b.operand<float>(i, bytes), w, 1e-5f, kWidth, rows, f16, at); });
    b.row("rms_norm of heads" + of + "32 x 128 to f32", elements * 8,
          [&](int i, const Launch& at) { rms_norm(b.operand<float>(i, bytes), w, 1e-5f, 128, rows * 32, f32, at); });
    b.row("make_forms" + of + "4096 to Q8x256", elements * 5.25,
          [&](int i, const Launch& at) { make_forms(b.operand<float>(i, bytes), kWidth, rows, q, at); });
    for (const auto& [form, name, out] : {std::tuple{q, "Q8x256", 1.25}, std::tuple{f16, "F16", 2.0}}) {
      b.row("silu" + of + "14336 to " + name, wide_elements * (8 + out), [&](int i, const Launch& at) {
        glu({.activation = Activation::Silu}, b.operand<float>(i, wide_bytes), b.operand<float>(i, wide_bytes, 1),
            kWide, rows, form, at);
      });
    }
    b.row("add" + of + "4096", elements * 12, [&](int i, const Launch& at) {
      add(b.operand<float>(i, bytes), b.operand<float>(i, bytes, 1), sum, static_cast<std::int64_t>(elements), at);
    });
    for (const RopePairing pairing : {RopePairing::Interleaved, RopePairing::Halves}) {
      b.row(std::string(pairing == RopePairing::Halves ? "rope, halves," : "rope, pairs,") + of + "32 x 128",
            elements * 8, [&](int i, const Launch& at) {
              float* const x = b.operand<float>(i, bytes);
              rope(Rope{pairing, 128}, x, b.operand<float>(0, 1, 1), 32, 128, rows, x, at);
            });
    }
  }
}

/// Queries, keys and values on their way to attention: 32 and twice 4 heads of 128, into a cache of F16.
void bench_heads(Bench& b) {
  constexpr int kHeads = 32, kKvHeads = 4, kDim = 128;
  for (const int tokens : {1, 8, 64, 2048}) {
    std::vector<std::int32_t> slots(static_cast<std::size_t>(tokens));
    for (int i = 0; i < tokens; ++i) slots[static_cast<std::size_t>(i)] = i;
    auto* const device_slots = b.result<std::int32_t>(std::size_t{16} << 20);
    check_cuda(cudaMemcpy(device_slots, slots.data(), slots.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice),
               "copying");
    StepView step;
    step.slots = device_slots;
    const CacheView cache{b.result<std::byte>(std::size_t{128} << 20),
                          b.result<std::byte>(std::size_t{256} << 20),
                          DType::F16,
                          DType::F16,
                          kKvHeads,
                          kDim,
                          kDim};
    const std::size_t kv_bytes = static_cast<std::size_t>(tokens) * kKvHeads * kDim * 4;
    const std::size_t bytes = static_cast<std::size_t>(tokens) * kHeads * kDim * 4 + 2 * kv_bytes;
    const double moved = static_cast<double>(bytes) * 2 - static_cast<double>(kv_bytes);
    for (const bool with_norms : {false, true}) {
      b.row(std::string(with_norms ? "norms, " : "") + "ropes and append of " + std::to_string(tokens), moved,
            [&](int i, const Launch& at) {
              float* const q = b.operand<float>(i, bytes);
              const float* const norm = with_norms ? b.operand<float>(0, 1, 1) : nullptr;
              const RopeAppend a{.q = q,
                                 .k = q + static_cast<std::size_t>(tokens) * kHeads * kDim,
                                 .v = q + static_cast<std::size_t>(tokens) * (kHeads + kKvHeads) * kDim,
                                 .table = b.operand<float>(0, 1, 1),
                                 .rotated_q = b.result<float>(std::size_t{512} << 20),
                                 .heads = kHeads,
                                 .norm_q = norm,
                                 .norm_k = norm,
                                 .eps = 1e-5f};
              rope_append(Rope{RopePairing::Halves, kDim}, a, cache, step, tokens, at);
            });
    }
  }
}

void bench_routes(Bench& b) {
  constexpr int kExperts = 128, kTopK = 8, kWidth = 2048;
  for (const int tokens : {1, 8, 64, 4096}) {
    const std::string of = " of " + std::to_string(tokens) + " tokens";
    Route op;
    op.top_k = kTopK;
    auto* const ids = b.result<std::int32_t>(std::size_t{64} << 20);
    auto* const weights = b.result<float>(std::size_t{128} << 20);
    const std::vector<std::int32_t> counts = {tokens, 1, 1, 1};
    check_cuda(cudaMemcpy(b.result<std::int32_t>(std::size_t{16} << 20), counts.data(), 16, cudaMemcpyHostToDevice),
               "copying");
    StepView step;
    step.counts = b.result<std::int32_t>(std::size_t{16} << 20);
    const std::size_t bytes = static_cast<std::size_t>(tokens) * kExperts * 4,
                      x_bytes = static_cast<std::size_t>(tokens) * kTopK * kWidth * 4;
    b.row("route" + of + ", 8 of 128", static_cast<double>(bytes) + tokens * 64.0, [&](int i, const Launch& at) {
      route({op}, b.operand<float>(i, bytes), kExperts, tokens, ids, weights, at);
    });
    b.row("group_routes" + of, tokens * 64.0, [&](int, const Launch& at) {
      group_routes(ids, kExperts, tokens, kTopK, 8, step, b.result<std::byte>(std::size_t{256} << 20), at);
    });
    if (groups_while_routing(kExperts, tokens, kTopK)) {
      b.row("route_and_group" + of + ", 8 of 128", static_cast<double>(bytes) + tokens * 128.0,
            [&](int i, const Launch& at) {
              route_and_group({op}, b.operand<float>(i, bytes), kExperts, tokens, 8, step, ids, weights,
                              b.result<std::byte>(std::size_t{256} << 20), at);
            });
    }
    Forms q;
    q.q8x256 = b.result<std::byte>();
    q.capacity = tokens;
    const std::size_t row_bytes = static_cast<std::size_t>(tokens) * kWidth * 4;
    b.row("combine_add_rms_norm" + of + ", 8 x 2048", static_cast<double>(row_bytes) * 10.3,
          [&](int i, const Launch& at) {
            combine_add_rms_norm(b.operand<float>(i, x_bytes), weights, kTopK, b.operand<float>(i, row_bytes, 1),
                                 b.operand<float>(0, 1, 1), 1e-5f, kWidth, tokens,
                                 b.result<float>(std::size_t{512} << 20), q, at);
          });
    b.row("combine" + of + ", 8 x 2048", static_cast<double>(x_bytes) * 9 / 8, [&](int i, const Launch& at) {
      combine(b.operand<float>(i, x_bytes), weights, kTopK, kWidth, tokens, b.result<float>(std::size_t{512} << 20),
              at);
    });
  }
}

void bench_products(Bench& b) {
  struct Case {
    DType type;
    const char* name;
    int k, n;
  };
  for (const Case c : {Case{DType::F16, "F16", 4096, 128256}, Case{DType::F16, "F16", 4096, 28672},
                       Case{DType::F16, "F16", 14336, 4096}, Case{DType::F16, "F16", 4096, 6144},
                       Case{DType::F16, "F16", 4096, 4096}, Case{DType::F16, "F16", 4096, 1024},
                       Case{DType::F16, "F16", 2048, 3072}, Case{DType::BF16, "BF16", 4096, 28672},
                       Case{DType::F32, "F32", 4096, 14336}, Case{DType::F32, "F32", 2048, 128}}) {
    for (const int columns : {1, 2, 4, 8, 32}) {
      const std::size_t bytes =
          static_cast<std::size_t>(c.k) * static_cast<std::size_t>(c.n) * (c.type == DType::F32 ? 4 : 2);
      b.row(std::string(c.name) + " " + std::to_string(c.k) + " x " + std::to_string(c.n) + ", " +
                std::to_string(columns) + " columns",
            static_cast<double>(bytes), [&](int i, const Launch& at) {
              const Target target{
                  {c.type, c.k, c.n}, b.operand<std::byte>(i, bytes), nullptr, nullptr, b.result<float>()};
              float_products(std::span(&target, 1), b.operand<float>(0, 1, 1), columns, at);
            });
    }
  }
}

}  // namespace
}  // namespace llm::cuda

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fputs("SKIPPED: no CUDA device\n", stderr);
    return 0;
  }
  llm::cuda::Bench bench;
  llm::cuda::bench_rows(bench);
  llm::cuda::bench_heads(bench);
  llm::cuda::bench_routes(bench);
  llm::cuda::bench_products(bench);
}
