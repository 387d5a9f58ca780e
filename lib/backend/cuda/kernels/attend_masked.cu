// Masks of selected keys, and attend_prompt() with them. A mask is made of a token's list by one CTA, in shared memory:
// for 2,048 tokens of 2,051 positions 17 MB are read and, behind 8,192 others, 2.6 MB written, 10 us.
#include <array>

#include "backend/cuda/kernels/attend_masked.h"
#include "backend/cuda/kernels/attend_prompt.cuh"
#include "backend/cuda/kernels/cache.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "base/error.h"

namespace llm::cuda {
namespace {

constexpr int kMaskThreads = 256;
constexpr int kMaskWords = 1024;  ///< of a CTA, in 8 KB

struct MaskArgs {
  const std::int32_t* selected;  ///< [tokens][selections][top_k]
  std::uint64_t* words;          ///< [tokens][selections][pitch]
  int top_k, pitch;
};

/// What is no position of the CTA's words has no bit: -1 behind a list, and whatever those tokens have that are
/// nobody's.
__global__ void __launch_bounds__(kMaskThreads) key_mask_kernel(const __grid_constant__ MaskArgs a) {
  let_next_start();
  __shared__ std::uint32_t bits[2 * kMaskWords];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int first = static_cast<int>(blockIdx.y) * kMaskWords, n = min(kMaskWords, a.pitch - first);
  for (int i = thread; i < 2 * n; i += kMaskThreads) bits[i] = 0;
  __syncthreads();
  wait_for_previous();
  const std::int32_t* const selected = a.selected + static_cast<std::int64_t>(blockIdx.x) * a.top_k;
  for (int begin = 0; begin < a.top_k; begin += kMaskThreads) {
    const int i = begin + thread;
    const int position = i < a.top_k ? __ldcg(selected + i) : -1;
    const int word = position < 0 ? -1 : position / 32 - 2 * first;
    std::uint32_t bit = position < 0 ? 0u : 1u << position % 32;
    // Positions ascend: the first lane of those with a word gets the bits of all.
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const std::uint32_t behind = __shfl_down_sync(0xffffffffu, bit, offset);
      const int of = __shfl_down_sync(0xffffffffu, word, offset);
      if (lane + offset < 32 && of == word) bit |= behind;
    }
    const int before = __shfl_up_sync(0xffffffffu, word, 1);
    if ((lane == 0 || before != word) && word >= 0 && word < 2 * n) atomicOr(bits + word, bit);
  }
  __syncthreads();
  std::uint64_t* const to = a.words + static_cast<std::int64_t>(blockIdx.x) * a.pitch + first;
  for (int i = thread; i < n; i += kMaskThreads)
    to[i] = bits[2 * i] | static_cast<std::uint64_t>(bits[2 * i + 1]) << 32;
}

/// Tokens whose masks find room, and the words of a selection.
struct MaskPlan {
  int pitch = 0, at_once = 0;
  MaskPlan(std::span<const PromptSpan> spans, int selections, std::size_t bytes) {
    for (const PromptSpan& span : spans)
      pitch = std::max(pitch, (span.first_position + span.n_tokens + kCacheBlock - 1) / kCacheBlock);
    const std::size_t token =
        static_cast<std::size_t>(pitch) * static_cast<std::size_t>(selections) * sizeof(std::uint64_t);
    const std::size_t most = token == 0 ? 0 : bytes / token;
    at_once = static_cast<int>(std::min<std::size_t>(most, 1u << 20));
  }
};

/// The part of a span that lies in the tokens [first, end), counted from the first of these.
PromptSpan part_of(const PromptSpan& span, int first, int end) {
  const int from = std::max(first, span.first_token), to = std::min(end, span.first_token + span.n_tokens);
  return {from - first, to - from, span.first_position + from - span.first_token, span.sequence};
}

}  // namespace

bool attends_masked(const CacheView& c, const AttentionShape& s, const Selected& keys,
                    std::span<const PromptSpan> spans, std::size_t mask_bytes) {
  if (!prompt_attention_masks(c)) return false;
  MaskedWork w{
      .group = s.heads / c.kv_heads, .kv_heads = c.kv_heads, .multiprocessors = device_limits().multiprocessors};
  for (const PromptSpan& span : spans) {
    const std::int64_t n = span.n_tokens;
    w.tokens += span.n_tokens;
    w.seen += n * span.first_position + n * (n + 1) / 2;
  }
  w.selected = std::int64_t{w.tokens} * keys.top_k;
  w.at_once = std::min(w.tokens, MaskPlan(spans, keys.selections, mask_bytes).at_once);
  w.otherwise = attends_prompt_selected(c) ? MaskedWork::Otherwise::InPlace
                : whole_blocks(keys)       ? MaskedWork::Otherwise::Blocks
                                           : MaskedWork::Otherwise::Packed;
  return masks_pay(w);
}

void attend_prompt_masked(const float* q, float* y, const CacheView& c, const AttentionShape& s, const Selected& keys,
                          const StepView& step, std::span<const PromptSpan> spans, std::byte* masks,
                          std::size_t mask_bytes, const Launch& at) {
  const MaskPlan p(spans, keys.selections, mask_bytes);
  int tokens = 0;
  for (const PromptSpan& span : spans) tokens = std::max(tokens, span.first_token + span.n_tokens);
  check(tokens == 0 || p.at_once > 0, "memory for the mask of a token");
  AttentionShape masked = s;
  masked.mask = {reinterpret_cast<const std::uint64_t*>(masks), p.pitch * keys.selections,
                 keys.selections > 1 ? p.pitch : 0};
  for (int first = 0; first < tokens; first += p.at_once) {
    const int n = std::min(p.at_once, tokens - first);
    const MaskArgs a{keys.positions + std::int64_t{first} * keys.selections * keys.top_k,
                     reinterpret_cast<std::uint64_t*>(masks), keys.top_k, p.pitch};
    launch(key_mask_kernel,
           dim3(static_cast<unsigned>(n * keys.selections),
                static_cast<unsigned>((p.pitch + kMaskWords - 1) / kMaskWords)),
           dim3(kMaskThreads), 0, at, a);
    std::array<PromptSpan, kPromptSpans> parts;
    for (std::size_t i = 0; i < spans.size();) {
      int count = 0;
      for (; i < spans.size() && count < kPromptSpans; ++i) {
        parts[static_cast<std::size_t>(count)] = part_of(spans[i], first, first + n);
        if (parts[static_cast<std::size_t>(count)].n_tokens > 0) ++count;
      }
      attend_prompt(q + std::int64_t{first} * s.heads * c.head_dim_k, y + std::int64_t{first} * s.heads * c.head_dim_v,
                    c, masked, step, parts.data(), count, at);
    }
  }
}

}  // namespace llm::cuda
