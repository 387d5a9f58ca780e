// Neighbouring nodes that one kernel serves. Found once per program; an observed step runs node by node instead, since
// it has to show what lies between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/token_experts.h"
#include "graph/graph.h"

namespace llm::cuda {

/// Rope of queries and of keys, and KvAppend: nothing else uses the rotated keys, and nothing but reshapes runs
/// between. With the norms of the heads of both, where nothing else uses what they make. Of one token, with the
/// attention that is next and alone uses the rotated queries (rope_append_attend(), where the cache allows it).
struct RopeAppendNodes {
  struct Norms {
    std::size_t q, k;
  };
  std::size_t rope_q, rope_k, append;
  std::optional<Norms> norms;
  std::uint32_t q, k;  ///< values that it reads: before the norms
  std::optional<std::size_t> attention = {};
};

/// Combine, and behind it the AddRmsNorm that alone uses the sum.
struct CombineNormNodes {
  std::size_t combine, norm;
  std::uint32_t residual;  ///< the value that is added
};

/// What one token's experts do (token_experts.h), in two launches: at the Glu and at the Combine. Nothing else uses
/// what they give each other. A route that the first one does not choose by stays a kernel of its own.
struct TokenExpertsNodes {
  std::size_t route, gate_up, glu, down, combine;
  bool chooses = false;
};

/// A Linear of one column that makes the form of the column that it reads itself (column_products()): it alone reads
/// the column, or with the experts of the token, which take it as f32. With the norm before it that makes the column,
/// where that pays; without one where the kernel that makes it writes no forms. With the gate behind it that alone
/// reads its two results.
struct OwnColumn {
  std::size_t linear;
  std::optional<std::size_t> norm;  ///< RmsNorm or AddRmsNorm
  bool shared;                      ///< whether experts read what the norm makes
  std::optional<std::size_t> glu;
  std::size_t last() const { return glu.value_or(linear); }
};

struct Fusions {
  std::vector<RopeAppendNodes> rope_appends;  ///< only for caches that take them: appends_with_rope()
  std::vector<TokenExpertsNodes> token_experts;
  std::vector<CombineNormNodes> combine_norms;  ///< of Combines that are none of theirs
  std::vector<OwnColumn> own_columns;
  /// Whether a node is a Linear or a Glu among own_columns, a norm among combine_norms.
  bool makes_column(std::size_t node) const;
  bool gates(std::size_t node) const;
  bool combines(std::size_t node) const;
};
/// What the device's kernels for one token take; nothing where there are none.
struct TokenKernels {
  bool (*makes_columns)(std::span<const MatrixType>) = nullptr;
  bool (*makes_norms)(std::span<const MatrixType>) = nullptr;
  bool (*takes_token_experts)(const ExpertShapes&) = nullptr;
};
/// makes_columns(), makes_norms() and takes_token_experts().
TokenKernels token_kernels();
Fusions find_fusions(const Graph&, const TokenKernels&);

/// In a graph of one token, whose row is wanted, the choice of rows is the row itself: Rows become Reshapes, for which
/// no kernel runs.
Graph keep_single_rows(Graph);

/// A fused kernel runs in the place of its last node: what the earlier ones read, and what the kernel writes of their
/// results, has to keep its bytes until then, whether or not anything reads it.
struct LateUse {
  std::uint32_t value;
  std::size_t node;
};
std::vector<LateUse> late_uses(const Graph&, const Fusions&);

}  // namespace llm::cuda
