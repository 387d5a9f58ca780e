// Attention of wide heads for prompts: a CTA has 64 rows, heads of neighbouring tokens, over all keys that any of them
// sees. A value that is not a number or infinite shows in every row of a CTA that reads its tile, seen or not.
#include <algorithm>

#include "backend/cuda/kernels/attend_prompt.cuh"
#include "backend/cuda/kernels/attend_wide.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace llm::cuda {
namespace {

constexpr int kWideRows = 64;

struct WidePromptArgs {
  WideArgs all;
  PromptSpans spans;
};

template <class Shape>
__global__ void __launch_bounds__(kThreads, 1) wide_prompt_kernel(const __grid_constant__ WidePromptArgs a) {
  let_next_start();
  const int kv_heads = a.all.kv_heads;
  const int tile = a.spans.first_tile[a.spans.n] - 1 - static_cast<int>(blockIdx.x) / kv_heads;  // the longest first
  int s = 0;
  while (a.spans.first_tile[s + 1] <= tile) ++s;
  const PromptSpan& span = a.spans.span[s];
  const int first_row = (tile - a.spans.first_tile[s]) * kWideRows;
  const WideRows rows{span.first_token, span.first_position,
                      span.sequence,    static_cast<int>(blockIdx.x) % kv_heads,
                      first_row,        min(kWideRows, span.n_tokens * a.all.group - first_row)};
  if constexpr (kHasRoom) Wide<Shape>(a.all, wide_shared(), rows, 0).run(0, 0);
}

/// A CTA has up to 64 heads of a KV head of one token.
template <class Shape>
__global__ void __launch_bounds__(kThreads, 1) wide_prompt_selected_kernel(const __grid_constant__ WideArgs a) {
  let_next_start();
  const int token = static_cast<int>(blockIdx.y), tile = static_cast<int>(blockIdx.x);
  const int position = __ldcg(a.positions + token), sequence = __ldcg(a.sequence + token);
  if (sequence < 0) return wait_for_previous();
  const int first_row = tile % a.head_tiles * kWideRows;
  const WideRows rows{token,     seen_position(a, position),          sequence, tile / a.head_tiles,
                      first_row, min(kWideRows, a.group - first_row), position};
  if constexpr (kHasRoom) Wide<Shape>(a, wide_shared(), rows, 0).run(0, 0);
}

using WidePromptKernel = void (*)(WidePromptArgs);
struct WidePromptChoice {
  WidePromptKernel kernel;
  int shared_bytes;
};
using SelectedPromptKernel = void (*)(WideArgs);
struct SelectedPromptChoice {
  SelectedPromptKernel kernel;
  int shared_bytes;
};
template <bool kBFloat16, bool kInKeys, bool kDecoded>
SelectedPromptChoice selected_prompt_choice() {
  using Shape = WideShape<kBFloat16, 1, kWideRows, 576, kInKeys, kDecoded, WideKeysSeen::Selected>;
  return {wide_prompt_selected_kernel<Shape>, Shape::kSharedBytes};
}
SelectedPromptChoice choose_selected_prompt(const CacheView& c) {
  if (!c.values_in_keys) return selected_prompt_choice<false, false, true>();
  if (c.k_type == DType::BF16) return selected_prompt_choice<true, true, false>();
  return c.k_type == DType::F16 ? selected_prompt_choice<false, true, false>()
                                : selected_prompt_choice<false, true, true>();
}
template <bool kBFloat16, bool kDecoded>
SelectedPromptChoice compressed_prompt_choice() {
  using Shape = WideShape<kBFloat16, 1, kWideRows, 512, true, kDecoded, WideKeysSeen::Compressed>;
  return {wide_prompt_selected_kernel<Shape>, Shape::kSharedBytes};
}
SelectedPromptChoice choose_compressed_prompt(const CacheView& c) {
  if (c.k_type == DType::BF16) return compressed_prompt_choice<true, false>();
  return c.k_type == DType::F16 ? compressed_prompt_choice<false, false>() : compressed_prompt_choice<false, true>();
}
template <bool kBFloat16, int kDimK, bool kInKeys, bool kDecoded, WideKeysSeen kSeen = WideKeysSeen::All>
WidePromptChoice wide_prompt_choice() {
  using Shape = WideShape<kBFloat16, 1, kWideRows, kDimK, kInKeys, kDecoded, kSeen>;
  return {wide_prompt_kernel<Shape>, Shape::kSharedBytes};
}
template <int kDimK, bool kInKeys>
WidePromptChoice wide_prompt_choice(const CacheView& c) {
  if (all_bfloat16(c)) return wide_prompt_choice<true, kDimK, kInKeys, false>();
  return prompt_decodes(c, c.k_type) || prompt_decodes(c, c.v_type)
             ? wide_prompt_choice<false, kDimK, kInKeys, true>()
             : wide_prompt_choice<false, kDimK, kInKeys, false>();
}
WidePromptChoice choose_wide_prompt(const CacheView& c) {
  if (c.head_dim_k == 512) return wide_prompt_choice<512, false>(c);
  return c.values_in_keys ? wide_prompt_choice<576, true>(c) : wide_prompt_choice<576, false>(c);
}
/// Of what masks_wide_prompts() says.
WidePromptChoice choose_masked_prompt(const CacheView& c) {
  constexpr WideKeysSeen kMasked = WideKeysSeen::Masked;
  if (!c.values_in_keys) return wide_prompt_choice<false, 576, false, true, kMasked>();
  if (c.k_type == DType::BF16) return wide_prompt_choice<true, 576, true, false, kMasked>();
  return c.k_type == DType::F16 ? wide_prompt_choice<false, 576, true, false, kMasked>()
                                : wide_prompt_choice<false, 576, true, true, kMasked>();
}

}  // namespace

bool has_room_for_wide_prompts(const CacheView& c) {
  return choose_wide_prompt(c).shared_bytes <= device_limits().block_bytes;
}

bool masks_wide_prompts(const CacheView& c) {
  return c.head_dim_k == 576 && (c.values_in_keys || c.k_type != c.v_type);
}

void attend_wide_prompt(const float* q, float* y, const CacheView& c, const AttentionShape& s, const StepView& step,
                        const PromptSpan* spans, int n_spans, const Launch& at) {
  WidePromptArgs a{};
  a.all = wide_arguments(q, y, c, s, step);
  const WidePromptChoice chosen = s.mask.words != nullptr ? choose_masked_prompt(c) : choose_wide_prompt(c);
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(chosen.kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, chosen.shared_bytes),
             "giving attention its shared memory");
  for (int first = 0; first < n_spans; first += kPromptSpans) {
    take_spans(spans + first, std::min(n_spans - first, kPromptSpans), a.all.group, kWideRows, a.spans);
    const int tiles = a.spans.first_tile[a.spans.n];
    if (tiles == 0) continue;
    launch(chosen.kernel, dim3(static_cast<unsigned>(tiles * c.kv_heads)), dim3(kThreads),
           static_cast<std::size_t>(chosen.shared_bytes), at, a);
  }
}

namespace {

void launch_selected_prompt(const SelectedPromptChoice& chosen, WideArgs& a, int tokens, const Launch& at) {
  a.head_tiles = (a.group + kWideRows - 1) / kWideRows;
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(chosen.kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, chosen.shared_bytes),
             "giving attention its shared memory");
  launch(chosen.kernel, dim3(static_cast<unsigned>(a.kv_heads * a.head_tiles), static_cast<unsigned>(tokens)),
         dim3(kThreads), static_cast<std::size_t>(chosen.shared_bytes), at, a);
}

}  // namespace

void attend_wide_prompt_selected(const float* q, float* y, const CacheView& c, const AttentionShape& s,
                                 const Selected& keys, const StepView& step, int tokens, const Launch& at) {
  WideArgs a = wide_arguments(q, y, c, s, step);
  a.selected = keys.positions;
  a.top_k = keys.top_k;
  launch_selected_prompt(choose_selected_prompt(c), a, tokens, at);
}

void attend_wide_prompt_compressed(const float* q, float* y, const CacheView& c, const AttentionShape& s,
                                   const CompressedKeys& keys, const StepView& step, int tokens, const Launch& at) {
  WideArgs a = wide_arguments(q, y, c, s, step);
  see_compressed(a, s, keys);
  launch_selected_prompt(choose_compressed_prompt(c), a, tokens, at);
}

}  // namespace llm::cuda
