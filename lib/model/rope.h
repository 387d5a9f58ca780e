// Rotary position embedding as a file's metadata describes it.
#pragma once

#include <cstdint>

#include "graph/op.h"
#include "model/hyper_parameters.h"

namespace llm {

/// rope.dimension_count (all of a head unless given), rope.freq_base, rope.scaling.* and the older rope.scale_linear.
/// `may_be_none`: of models whose rope.dimension_count may be 0, which turn nothing. Throws ErrorKind::Model naming the
/// key.
RopeTable read_rope(const HyperParameters&, int head_dim, std::int64_t context, bool may_be_none = false);

}  // namespace llm
