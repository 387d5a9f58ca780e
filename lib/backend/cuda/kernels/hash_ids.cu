// Hashes of the last tokens: a CTA has a sequence, a thread an id at a time. A token of 4 heads is a few products of 64
// bits and a division for each; of a prompt of 2,048 tokens and 16 heads a thread makes 32 ids, some 0.1 us each.
#include "backend/cuda/kernels/hash_ids.h"
#include "backend/cuda/kernels/launch.cuh"
#include "graph/op.h"

namespace llm::cuda {
namespace {

constexpr int kHashThreads = 1024;

/// The tokens of a sequence as its state has them: a token's number + 1, 0 before the first one.
struct HashLine {
  const std::int32_t *tokens, *drawn;
  const int* before;  ///< [kept], of the state
  int kept;
  __device__ __forceinline__ int at(int t) const {
    if (t < 0) return before[kept + t];
    const std::int32_t token = __ldcg(tokens + t);
    return (token < 0 ? __ldcg(drawn + ~token) : token) + 1;
  }
};

/// Of token `t` for one head, which goes by `back` tokens before it.
__device__ __forceinline__ std::int32_t hash_of(const HashRule& h, const HashLine& line, int t, int back, int head) {
  std::uint64_t mixed = static_cast<std::uint64_t>(line.at(t) - 1) * h.multipliers[0];
  bool stopped = false;
  for (int i = 1; i <= back; ++i) {
    const int number = stopped ? 0 : line.at(t - i);
    stopped = number == 0 || number - 1 == h.stop;
    mixed ^= static_cast<std::uint64_t>(stopped ? h.stop : number - 1) * h.multipliers[i];
  }
  return h.offsets[head] + static_cast<std::int32_t>(mixed % static_cast<std::uint64_t>(h.sizes[head]));
}

/// The state is read before it is written: the slot may be the same.
__global__ void __launch_bounds__(kHashThreads)
    hash_ids_kernel(const __grid_constant__ HashRule h, const __grid_constant__ StepView step, float* states,
                    std::int32_t* ids) {
  let_next_start();
  wait_for_previous();
  __shared__ int before[kMostMultipliers];
  const int4 words = __ldcg(reinterpret_cast<const int4*>(step.runs) + blockIdx.x);
  const SequenceRun run{words.x, words.y, words.z, words.w};
  if (run.n_tokens == 0) return;
  const int thread = static_cast<int>(threadIdx.x), kept = h.tokens - 1;
  if (thread < kept)
    before[thread] =
        run.from < 0 ? 0 : static_cast<int>(__ldcg(states + static_cast<std::int64_t>(run.from) * kept + thread));
  __syncthreads();
  const HashLine line{step.tokens + run.first_token, step.drawn, before, kept};
  const int of_each = h.heads / kept;
  std::int32_t* const to = ids + static_cast<std::int64_t>(run.first_token) * h.heads;
  for (std::int64_t i = thread; i < std::int64_t{run.n_tokens} * h.heads; i += kHashThreads) {
    const int t = static_cast<int>(i / h.heads), head = static_cast<int>(i % h.heads);
    to[i] = hash_of(h, line, t, head / of_each + 1, head);
  }
  if (thread < kept)
    __stcg(states + static_cast<std::int64_t>(run.to) * kept + thread,
           static_cast<float>(line.at(run.n_tokens - kept + thread)));
}

}  // namespace

void hash_ids(const HashRule& h, const StepView& step, int sequences, float* states, std::int32_t* ids,
              const Launch& at) {
  launch(hash_ids_kernel, dim3(static_cast<unsigned>(sequences)), dim3(kHashThreads), 0, at, h, step, states, ids);
}

}  // namespace llm::cuda
