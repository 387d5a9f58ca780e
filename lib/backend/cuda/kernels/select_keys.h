// The keys that tokens are to attend to (SelectKeys of graph/op.h), and the index that they are selected by.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/step_view.h"
#include "graph/op.h"

namespace llm::cuda {

struct SelectionShape {
  int heads = 0, top_k = 0;
  ActFormat query = ActFormat::F32;  ///< how queries are rounded where keys are quantised
  int stride = 1;                    ///< of the index: of so many positions it has a key
  SelectKeys::Choice choice = SelectKeys::Choice::Positions;

  /// The first position whose token chooses: those before it see no more than may be chosen.
  int chooses_from() const { return choice == SelectKeys::Choice::Positions ? top_k : (top_k + 1) * stride - 1; }
};

/// Stores k [tokens][head_dim_k], keys alone, at the step's slots: of `stride` positions the last one's row, the rows
/// of a block side by side.
void append_keys(const float* k, const CacheView&, int stride, const StepView&, int tokens, const Launch&);

/// Exact: as in f32 throughout, and the same choice in steps of any length. Rounded: for prompts, queries (and keys
/// that are decoded) rounded to F16, or BF16 where the index is, if its kernels by tensor cores take it.
enum class Scores { Exact, Rounded };

/// Bytes that select_keys() wants, for up to `tokens` of them; they may hold anything.
std::size_t selection_scratch(const CacheView& index, const SelectionShape&, int tokens, std::int64_t max_positions);

/// positions [tokens][top_k], or numbers of keys, of q [tokens][heads][head_dim_k] and w [tokens][heads], or null where
/// all weights are 1: ascending, -1 behind them; of keys of equal scores the first. Rows of tokens without a sequence
/// are left as they are. `max_positions`: most of a sequence. With exact scores it records the same launches whatever
/// the step holds.
void select_keys(const float* q, const float* w, const CacheView& index, const SelectionShape&, const StepView&,
                 int tokens, std::int64_t max_positions, Scores, std::int32_t* positions, std::byte* scratch,
                 const Launch&);

}  // namespace llm::cuda
