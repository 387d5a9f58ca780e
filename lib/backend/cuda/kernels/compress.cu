// Neighbouring positions that become one row: a thread has an element. What each row is made of is its own and, with
// two parts, its neighbours' before, so that groups of positions are different CTAs' work: with two parts each is read
// twice. A state is what a mean is after a token, in f32, so bits do not depend on how a prompt was cut. Bytes: x and
// scores once for each part, 16 KB for a token of 512 elements in two parts; a prompt of 2,048 tokens 34 MB, 7 us. What
// a token's mean waits for is one exponential after another, some 30 ns for each of up to 128 positions.
//
// Only the first two groups begin with what the slot has that a sequence comes from. Their CTA writes the slot that it
// leaves, too, which may be the same one: it is read before.
#include <algorithm>
#include <cmath>

#include "backend/cuda/kernels/compress.h"
#include "backend/cuda/kernels/launch.cuh"

namespace llm::cuda {
namespace {

constexpr int kCompressThreads = 128;

/// A mean by the softmax of scores, as host::SoftMean has it.
struct SoftMean {
  float greatest = 0, weights = 0, sum = 0;
  __device__ __forceinline__ void add(float score, float x) {
    const bool begins = weights == 0;
    const float raised = begins || greatest < score ? score : greatest;
    const float shrink = begins ? 0.0f : expf(greatest - raised), weight = expf(score - raised);
    greatest = raised;
    weights = fmaf(weights, shrink, weight);
    sum = fmaf(sum, shrink, weight * x);
  }
};

/// One element of one sequence's tokens. Groups are counted from that of the first token.
class Compressed {
 public:
  __device__ __forceinline__ Compressed(const CompressShape& shape, const CompressOperands& operands,
                                        const SequenceRun& run, int position, int element, float* y)
      : s(shape),
        o(operands),
        run(run),
        before(position % shape.stride),
        element(element),
        width(shape.parts * shape.n),
        y(y + static_cast<std::int64_t>(run.first_token) * shape.n + element) {}

  __device__ __forceinline__ int groups() const { return (before + run.n_tokens - 1) / s.stride + 1; }

  /// The mean that becomes the row of a group, with the group's tokens.
  __device__ __forceinline__ SoftMean own(int group) const {
    SoftMean mean;
    if (group == 0)
      mean = state(0);
    else if (s.parts > 1)
      mean = next(group - 1);
    add(group, s.parts - 1, mean);
    return mean;
  }
  /// Of two parts: what a group's tokens give the row of the next one.
  __device__ __forceinline__ SoftMean next(int group) const {
    SoftMean mean = group == 0 ? state(1) : SoftMean();
    add(group, 0, mean);
    return mean;
  }
  __device__ __forceinline__ void write(int group, const SoftMean& mean) const {
    const int end = end_of(group);
    for (int t = begin_of(group); t < end; ++t)
      y[static_cast<std::int64_t>(t) * s.n] = ends(t) ? mean.sum / mean.weights : 0.0f;
  }
  /// Of the sequence's last group, whose mean is `mean`.
  __device__ __forceinline__ void keep(const SoftMean& mean) const {
    const SoftMean following = s.parts > 1 ? next(groups() - 1) : SoftMean();
    const bool ended = ends(run.n_tokens - 1);
    put(0, ended ? following : mean);
    if (s.parts > 1) put(1, ended ? SoftMean() : following);
  }

 private:
  __device__ __forceinline__ int begin_of(int group) const { return max(0, group * s.stride - before); }
  __device__ __forceinline__ int end_of(int group) const { return min(run.n_tokens, (group + 1) * s.stride - before); }
  __device__ __forceinline__ bool ends(int t) const { return (before + t + 1) % s.stride == 0; }

  /// A group's tokens, of which `part` has the elements.
  __device__ __forceinline__ void add(int group, int part, SoftMean& mean) const {
    const int begin = begin_of(group), end = end_of(group), from = part * s.n + element;
    const std::int64_t first = static_cast<std::int64_t>(run.first_token) * width + from;
    const float* const places = o.places + from - static_cast<std::int64_t>(group * s.stride - before) * width;
#pragma unroll 4
    for (int t = begin; t < end; ++t) {
      const std::int64_t at = static_cast<std::int64_t>(t) * width;
      mean.add(__ldcg(o.scores + first + at) + places[at], __ldcg(o.x + first + at));
    }
  }

  __device__ __forceinline__ float* slot(int number, int part) const {
    return o.states + (static_cast<std::int64_t>(number) * s.parts + part) * 3 * s.n + element;
  }
  __device__ __forceinline__ SoftMean state(int part) const {
    if (run.from < 0) return {};
    const float* const from = slot(run.from, part);
    return {__ldcg(from), __ldcg(from + s.n), __ldcg(from + 2 * s.n)};
  }
  __device__ __forceinline__ void put(int part, const SoftMean& mean) const {
    float* const to = slot(run.to, part);
    __stcg(to, mean.greatest);
    __stcg(to + s.n, mean.weights);
    __stcg(to + 2 * s.n, mean.sum);
  }

  const CompressShape& s;
  const CompressOperands& o;
  const SequenceRun run;
  const int before;  ///< positions of the first group before the first token
  const int element, width;
  float* const y;
};

/// Grid: elements, sequences, groups, of which the first CTA has two.
__global__ void __launch_bounds__(kCompressThreads)
    compress_kernel(const __grid_constant__ CompressShape s, const __grid_constant__ CompressOperands o,
                    const __grid_constant__ StepView step, float* y) {
  let_next_start();
  wait_for_previous();
  const int4 words = __ldcg(reinterpret_cast<const int4*>(step.runs) + blockIdx.y);
  const SequenceRun run{words.x, words.y, words.z, words.w};
  const int element = static_cast<int>(blockIdx.x) * kCompressThreads + static_cast<int>(threadIdx.x);
  if (element >= s.n || run.n_tokens == 0) return;
  const Compressed compressed(s, o, run, __ldcg(o.positions + run.first_token), element, y);
  const int groups = compressed.groups(), turn = static_cast<int>(blockIdx.z);
  if (turn > 0) {
    if (turn + 1 < groups) compressed.write(turn + 1, compressed.own(turn + 1));
    return;
  }
  SoftMean mean;
  for (int group = 0; group < min(groups, 2); ++group) {
    mean = compressed.own(group);
    compressed.write(group, mean);
  }
  if (groups > 2) mean = compressed.own(groups - 1);
  compressed.keep(mean);
}

}  // namespace

void compress(const CompressShape& s, const CompressOperands& o, const StepView& step, int tokens, float* y,
              const Launch& at) {
  if (tokens == 0) return;
  const int groups = (s.stride + tokens - 2) / s.stride + 1;  // where the first position is its group's last
  launch(compress_kernel,
         dim3(static_cast<unsigned>((s.n + kCompressThreads - 1) / kCompressThreads),
              static_cast<unsigned>(s.sequences), static_cast<unsigned>(std::max(groups - 1, 1))),
         dim3(kCompressThreads), 0, at, s, o, step, y);
}

}  // namespace llm::cuda
