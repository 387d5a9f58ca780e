// What programs tell: an observer of a node that has run, a person of how the program runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/host/step_check.h"
#include "graph/graph.h"

namespace llm::host {

/// Where the bytes of a node's operand or result are, valid until the next call.
using DataOf = std::function<const std::byte*(std::uint32_t)>;
/// Gives the observer what it wants of a node of a step: what it took, and its results with the rows that the step has.
void report(Observer&, const Graph&, const Node&, const StepData&, const StepRows&, CacheFormat, double seconds,
            const DataOf&);

/// "2 x line" of each line, in the order of their first appearance.
std::string counted_lines(std::span<const std::string> lines);

}  // namespace llm::host
