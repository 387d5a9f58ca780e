// Neighbouring nodes that one kernel serves. Found once per program; an observed step runs node by node instead, since
// it has to show what lies between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

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

struct Fusions {
  std::vector<RopeAppendNodes> rope_appends;  ///< only for caches that take them: appends_with_rope()
  std::vector<CombineNormNodes> combine_norms;
};
Fusions find_fusions(const Graph&);

/// A fused kernel runs in the place of its last node: what the earlier ones read has to keep its bytes until then.
struct LateRead {
  std::uint32_t value;
  std::size_t node;
};
std::vector<LateRead> late_reads(const Graph&, const Fusions&);

}  // namespace llm::cuda
