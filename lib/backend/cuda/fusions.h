// Neighbouring nodes that one kernel serves. Found once per program; an observed step runs node by node instead, since
// it has to show what lies between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/kernels/matrix.h"
#include "graph/graph.h"

namespace llm::cuda {

/// Rope of queries and of keys, and KvAppend: nothing else uses the rotated keys, and nothing but reshapes runs
/// between. With the norms of the heads of both, where nothing else uses what they make.
struct RopeAppendNodes {
  struct Norms {
    std::size_t q, k;
  };
  std::size_t rope_q, rope_k, append;
  std::optional<Norms> norms;
  std::uint32_t q, k;  ///< values that it reads: before the norms
};

/// Combine, and behind it the AddRmsNorm that alone uses the sum.
struct CombineNormNodes {
  std::size_t combine, norm;
  std::uint32_t residual;  ///< the value that is added
};

/// A Linear of one column that makes the column's quantised form itself (column_products()): it alone reads the column.
/// With the norm before it that makes the column; without one where the kernel that makes it writes no forms. With the
/// gate behind it that alone reads its two results.
struct OwnColumn {
  std::size_t linear;
  std::optional<std::size_t> norm;  ///< RmsNorm or AddRmsNorm
  std::optional<std::size_t> glu;
  std::size_t last() const { return glu.value_or(linear); }
};

struct Fusions {
  std::vector<RopeAppendNodes> rope_appends;  ///< only for caches that take them: appends_with_rope()
  std::vector<CombineNormNodes> combine_norms;
  std::vector<OwnColumn> own_columns;
  /// Whether a node is a Linear or a Glu among own_columns, a norm among combine_norms.
  bool makes_column(std::size_t node) const;
  bool gates(std::size_t node) const;
  bool combines(std::size_t node) const;
};
/// What decides whether a Linear of these matrices could: makes_columns(), or nothing where none can.
using MakesColumns = bool (*)(std::span<const MatrixType>);
Fusions find_fusions(const Graph&, MakesColumns);

/// In a graph of one token, whose row is wanted, the choice of rows is the row itself: Rows become Reshapes, for which
/// no kernel runs.
Graph keep_single_rows(Graph);

/// A fused kernel runs in the place of its last node: what the earlier ones read has to keep its bytes until then.
struct LateRead {
  std::uint32_t value;
  std::size_t node;
};
std::vector<LateRead> late_reads(const Graph&, const Fusions&);

}  // namespace llm::cuda
