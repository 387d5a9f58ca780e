// What each op accepts and gives: the one place that knows, used by the builder and by the verifier.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace llm {

struct ResultType {
  ValueKind kind = ValueKind::Result;
  TensorType type;
  RowSpace rows = RowSpace::None;
};

/// Types of an op's results for these operands. Throws ErrorKind::Internal naming the op and the operand that does not
/// fit. A Reshape's result is not determined by its operand: it gives the operand's type, and verify() compares element
/// counts.
std::vector<ResultType> infer(const Op&, std::span<const ValueInfo* const> in, const Bucket&);

}  // namespace llm
