// What instructions of layers with a recurrent state share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/step.h"

namespace llm::cpu {

/// A recurrent state in a slot; null for slot -1.
inline float* slot_of(const Frame& f, int state, std::int32_t slot, std::int64_t elements) {
  return slot < 0 ? nullptr : f.f32(state) + slot * elements;
}

/// Tasks over the columns of heads' states: tiles, or, where every sequence has one token, whole heads. Threads at
/// work on neighbouring tiles would then write to lines that the others' prefetchers ask for, and be several times
/// slower; with more tokens a tile is read and written once for all of them.
struct ColumnTasks {
  ColumnTasks(const Frame& f, std::int64_t width, std::int64_t heads)
      : width(width),
        columns(f.rows.tokens == std::ssize(f.step->sequences) ? width : kDeltaColumns),
        parts((width + columns - 1) / columns),
        heads(heads),
        n(parts * heads * std::ssize(f.step->sequences)) {}
  std::size_t sequence(std::int64_t task) const { return static_cast<std::size_t>(task / parts / heads); }
  std::int64_t head(std::int64_t task) const { return task / parts % heads; }
  std::int64_t begin(std::int64_t task) const { return task % parts * columns; }
  std::int64_t end(std::int64_t task) const { return std::min(begin(task) + columns, width); }

  std::int64_t width, columns, parts, heads, n;
};

}  // namespace llm::cpu
