// What the kernels of prompts read of a KeyMask: the bits of a token's tile of keys, and which tiles any of some tokens
// sees keys of.
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/attention.h"

namespace llm::cuda {

/// The first token's words.
__device__ __forceinline__ const std::uint64_t* words_of(const KeyMask& mask, int kv_head) {
  return mask.words + static_cast<std::int64_t>(kv_head) * mask.head_pitch;
}

/// The tiles of which any of some neighbouring tokens sees keys, in their order; no other tile is brought. Every warp
/// asks with all its lanes, and all of a CTA find the same.
class SeenTiles {
 public:
  /// Of `tokens` from `first` on, whose rows of a KV head see no keys from tile `end` on.
  __device__ __forceinline__ SeenTiles(const KeyMask& mask, int kv_head, int first, int tokens, int end)
      : words_(words_of(mask, kv_head) + static_cast<std::int64_t>(first) * mask.token_pitch),
        pitch_(mask.token_pitch),
        tokens_(tokens),
        end_(end) {}

  /// The first of them that is `tile` or behind it; `end` where there is none.
  __device__ __forceinline__ int from(int tile) {
    while (tile < end_) {
      if (tile / kAtOnce != found_) find(tile / kAtOnce);
      const unsigned rest = seen_ >> tile % kAtOnce;
      if (rest != 0) return tile + __ffs(static_cast<int>(rest)) - 1;
      tile = (tile / kAtOnce + 1) * kAtOnce;
    }
    return end_;
  }

 private:
  static constexpr int kAtOnce = 32;  ///< tiles, each a lane's

  /// Of 16 tokens 4 KB from the second cache, where the tiles are 2 MB (two times 256 elements of F16).
  __device__ __forceinline__ void find(int of) {
    const int tile = of * kAtOnce + static_cast<int>(threadIdx.x) % kAtOnce;
    unsigned long long any = 0;
    if (tile < end_) {
#pragma unroll 8
      for (int t = 0; t < tokens_; ++t)
        any |=
            __ldcg(reinterpret_cast<const unsigned long long*>(words_) + static_cast<std::int64_t>(t) * pitch_ + tile);
    }
    seen_ = __ballot_sync(0xffffffffu, any != 0);
    found_ = of;
  }

  const std::uint64_t* words_;
  int pitch_, tokens_, end_;
  int found_ = -1;     ///< the tiles of `seen_`, by so many
  unsigned seen_ = 0;  ///< a bit for each
};

}  // namespace llm::cuda
