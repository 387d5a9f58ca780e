#include "graph/passes/passes.h"
#include "graph/verify.h"

namespace llm {

Graph optimize(const Graph& g) {
  // Rows first: the additions and norms that it moves are then fused in the space where they end up.
  Graph result = g;
  for (auto pass : {remove_dead, rows_early, merge_linears, fuse_add_norm, remove_dead}) {
    result = pass(result);
#ifdef LLM_VERIFY_PASSES
    verify(result);
#endif
  }
  return result;
}

}  // namespace llm
