// How products of many columns are dealt out to multiprocessors by the wide ring (wide_ring.cuh), and in which order a
// block goes through k. No CUDA in here: tests reach it without a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "backend/cuda/kernels/act_layout.h"

namespace llm::cuda {

inline constexpr int kWideSlots = 8;  ///< sums that a result is made of
inline constexpr int kWideParts =
    2 * kWideSlots;  ///< of k: slot s is parts s and s + 8; piece p belongs to part p % 16

/// The pieces of slots [slot, end) in the order in which their sums are taken: of each slot those of part s, ascending,
/// then those of part s + 8.
struct SlotWalk {
  int slot, end, pieces, piece;

  LLM_HOST_DEVICE SlotWalk(int first, int end, int pieces) : slot(first), end(end), pieces(pieces), piece(first) {
    settle();
  }
  LLM_HOST_DEVICE bool at_end() const { return slot == end; }
  LLM_HOST_DEVICE void advance() {
    piece += kWideParts;
    settle();
  }
  LLM_HOST_DEVICE void settle() {
    while (slot < end && piece >= pieces) {
      if (piece % kWideParts < kWideSlots)
        piece = slot + kWideSlots;
      else
        piece = ++slot;
    }
  }
};

/// What a plan depends on.
struct WideShape {
  int strips = 0, pieces = 0;  ///< of 16 rows; of k
  int piece_bytes = 0;         ///< of a strip
  int column_bytes = 0;        ///< of all columns, for one piece
  int area_bytes = 0;          ///< sums of a strip
  int groups = 0;              ///< of 8 columns
  int most_strips = 0;         ///< that a block has at once
  int memory = 0;              ///< shared, of a block
};

/// Tiles of `strips` strips, each of which `cluster` blocks compute: a block has kWideSlots / cluster slots. A block
/// has one tile after another, blocks of a cluster have one.
struct WidePlan {
  int cluster = 1, strips = 0, tiles = 0;
};

inline constexpr int kWideClusters[] = {1, 2, 4, 8};
inline constexpr int kFewestWideStages = 3;  ///< with which a ring is one

/// Sums of a strip that a block keeps: the total, or each slot's.
inline int wide_areas(const WidePlan& plan) { return plan.cluster == 1 ? 1 : kWideSlots / plan.cluster; }
/// Stages that fit beside them.
inline int wide_stages(const WideShape& s, const WidePlan& plan) {
  return (s.memory - plan.strips * wide_areas(plan) * s.area_bytes) / (plan.strips * s.piece_bytes + s.column_bytes);
}

/// Cycles that a block takes. A multiprocessor reads 20 bytes a cycle where all do (4.5 TB/s), issues four instructions
/// a cycle at best, and takes about twice as long for the first piece as for its instructions.
inline double wide_cycles(const WideShape& s, const WidePlan& plan, int blocks) {
  int pieces = 0;
  for (int slot = 0; slot < kWideSlots / plan.cluster; ++slot)
    pieces += (s.pieces - slot + kWideSlots - 1) / kWideSlots;
  const double instructions = 60 + 80 * s.groups;
  const double of_memory = (plan.strips * s.piece_bytes + s.column_bytes) / 20.0;
  const double stage = std::max({of_memory, instructions * 1.2 * ((plan.strips + 3) / 4), 2 * instructions});
  const int rounds = (plan.tiles * plan.cluster + blocks - 1) / blocks;
  const double exchanged = plan.cluster == 1 ? 0 : 2.0 * plan.strips * wide_areas(plan) * s.area_bytes;
  return rounds * pieces * stage + exchanged / 40 + (plan.cluster == 1 ? 0 : 1500);
}

/// The quickest plan. clusters[i]: how many clusters of kWideClusters[i] blocks the device runs at once.
inline WidePlan plan_wide(const WideShape& s, const int (&clusters)[4]) {
  WidePlan best;
  double least = 0;
  for (int i = 0; i < 4; ++i) {
    if (clusters[i] == 0) continue;
    WidePlan plan{.cluster = kWideClusters[i]};
    const int rounds = (s.strips + clusters[i] * s.most_strips - 1) / (clusters[i] * s.most_strips);
    if (plan.cluster > 1 && rounds > 1) continue;
    plan.strips = (s.strips + clusters[i] * rounds - 1) / (clusters[i] * rounds);
    plan.tiles = (s.strips + plan.strips - 1) / plan.strips;
    if (plan.cluster > 1 && wide_stages(s, plan) < kFewestWideStages) continue;
    const double cycles = wide_cycles(s, plan, clusters[i] * plan.cluster);
    if (best.tiles == 0 || cycles < least) best = plan, least = cycles;
  }
  return best;
}

}  // namespace llm::cuda
