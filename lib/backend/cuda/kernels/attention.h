// The paged cache and attention over it. A layer's keys lie as [block][kv_head][64 positions][head_dim_k] of the
// cache's type, its values the same with head_dim_v.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numbers>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/key_window.h"
#include "tensor/dtype.h"

namespace llm::cuda {

struct CacheView {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType k_type = DType::F16, v_type = DType::F16;
  int kv_heads = 0, head_dim_k = 0, head_dim_v = 0;
  /// A position's value is the first elements of its key, in the same type: whoever likes reads it there.
  bool values_in_keys = false;
};

/// Why a cache of these types and dimensions is not possible here; null if it is. An index has no values: 0.
const char* cache_refusal(DType k, DType v, int head_dim_k, int head_dim_v);

/// Stores k [tokens][kv_heads][head_dim_k] and v, where the cache has values, at the step's slots.
void append_to_cache(const float* k, const float* v, const CacheView&, const StepView&, int tokens, const Launch&);

/// The keys that tokens see, as bits: bit p % 64 of word p / 64 for position p. A word is a block of the cache; words
/// reach to the last position of each token.
struct KeyMask {
  const std::uint64_t* words = nullptr;  ///< null: there is no mask
  int token_pitch = 0;                   ///< words from a token to the next one
  int head_pitch = 0;                    ///< from a KV head to the next one; 0: all see the same keys
};

struct AttentionShape {
  int heads = 0;
  float scale = 0;
  KeyWindow window = {};             ///< the keys that are seen
  ActFormat query = ActFormat::F32;  ///< how queries are rounded where keys are quantised (graph/op.h)
  const float* sinks = nullptr;      ///< [heads], weights (graph/op.h); null: none
  float soft_cap = 0;                ///< scores s become soft_cap * tanh(s / soft_cap); 0: none
  float max_bias = 0;                ///< of ALiBi (graph/op.h), which attend() alone knows; 0: none
  KeyMask mask = {};                 ///< in place of a window, which attend_prompt() alone knows
};

/// What products of queries and keys are multiplied with where scores have a cap, before tanh is taken of them, else 0;
/// and what is then, or the products where there is no cap, so that powers of 2 of the result are weights.
inline float cap_factor(const AttentionShape& s) { return s.soft_cap > 0 ? s.scale / s.soft_cap : 0.0f; }
inline float score_factor(const AttentionShape& s) {
  const float factor = s.soft_cap > 0 ? s.soft_cap : s.scale;
  return static_cast<float>(static_cast<double>(factor) * std::numbers::log2e);
}

/// Bytes that attend() wants beside its operands: `scratch` may hold anything, `arrivals` must be zero before the first
/// call and is zero again after each. Calls that follow one another in one stream may share both.
struct AttentionMemory {
  std::size_t scratch = 0, arrivals = 0;
};
AttentionMemory attention_memory(const CacheView&, const AttentionShape&, int tokens, std::int64_t max_positions);

/// y [tokens][heads][head_dim_v] of q [tokens][heads][head_dim_k], as exact as in f32 throughout, for any number of
/// tokens: keys in chunks of 256 absolute positions, merged in the order of their index, so that bits do not depend on
/// what else is in the step. Rows of y of tokens without a sequence are left as they are. `max_positions`: most
/// positions of a sequence, table_stride * 64. Records the same launch whatever the step holds. No kernel of the step
/// writes the StepView: it is read before earlier kernels have ended.
void attend(const float* q, float* y, const CacheView&, const AttentionShape&, const StepView&, int tokens,
            std::int64_t max_positions, std::byte* scratch, std::byte* arrivals, const Launch&);

/// The same on tensor cores, queries and probabilities rounded to F16 (BF16 where the cache is): for prompts. Takes the
/// host's copy of the step's sequences, since tiles are cut along them.
struct PromptSpan {
  std::int32_t first_token, n_tokens, first_position, sequence;  ///< positions ascend by one
};
const char* prompt_attention_refusal(const CacheView&);  ///< null if attend_prompt takes it
/// Whether it takes it with a mask: heads of 64, 128 and 256, and latents of 576 with values of 512.
bool prompt_attention_masks(const CacheView&);
void attend_prompt(const float* q, float* y, const CacheView&, const AttentionShape&, const StepView&,
                   const PromptSpan* spans, int n_spans, const Launch&);

}  // namespace llm::cuda
