// How products of many columns are dealt out to multiprocessors (wgmma_products.cuh). No CUDA in here: tests reach it
// without a GPU.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/act_layout.h"

namespace llm::cuda {

inline constexpr int kWgmmaRows = 256;             ///< of a tile
inline constexpr int kWgmmaColumns[] = {96, 128};  ///< that a tile may have
inline constexpr int kMostWgmmaBlocks = 8;         ///< of a cluster

struct WgmmaShape {
  int tiles = 0;         ///< of kWgmmaRows
  int pieces = 0;        ///< of k
  int piece_chunks = 0;  ///< of 64 of k in a piece
  int piece_bytes = 0;   ///< of a tile
  int columns = 0;
};

/// Columns come in `groups` of up to `columns`; a tile of rows and a group are computed by `cluster` blocks, which
/// share out the pieces of k.
struct WgmmaPlan {
  int columns = 0, groups = 0, cluster = 1;
};

/// The pieces of block `rank` begin here; those of the last end with all.
LLM_HOST_DEVICE int wgmma_first_piece(int pieces, int cluster, int rank) { return pieces * rank / cluster; }

/// Cycles that a block takes: 8 for each column and 64 of k, if its weights do not take longer to come (a
/// multiprocessor reads 20 bytes a cycle where all do), and what a start takes and the exchange of a cluster's sums.
inline double wgmma_cycles(const WgmmaShape& s, const WgmmaPlan& plan, int clusters) {
  constexpr double kStart = 3000, kExchange = 9000;
  const int rounds = (s.tiles * plan.groups + clusters - 1) / clusters;
  const int pieces = (s.pieces + plan.cluster - 1) / plan.cluster;
  const double piece = std::max(8.0 * plan.columns * s.piece_chunks, s.piece_bytes / 20.0);
  return rounds * (pieces * piece + kStart + (plan.cluster > 1 ? kExchange : 0));
}

/// How many clusters of 1, 2, ... blocks the device runs at once.
using WgmmaClusters = int[kMostWgmmaBlocks];

/// The quickest plan.
inline WgmmaPlan plan_wgmma(const WgmmaShape& s, const WgmmaClusters& clusters) {
  constexpr int kMost = kWgmmaColumns[1];
  WgmmaPlan plan;
  plan.groups = (s.columns + kMost - 1) / kMost;
  const int each = (s.columns + plan.groups - 1) / plan.groups;
  plan.columns = each <= kWgmmaColumns[0] ? kWgmmaColumns[0] : kMost;
  WgmmaPlan best = plan;
  double least = wgmma_cycles(s, plan, std::max(clusters[0], 1));
  for (plan.cluster = 2; plan.cluster <= std::min(kMostWgmmaBlocks, s.pieces); ++plan.cluster) {
    if (clusters[plan.cluster - 1] == 0) continue;
    const double cycles = wgmma_cycles(s, plan, clusters[plan.cluster - 1]);
    if (cycles < least) best = plan, least = cycles;
  }
  return best;
}

}  // namespace llm::cuda
