// How deep values may lie in JSON that others may have written: nlohmann's copies and texts of a value recurse, and so
// may what reads it further on.
#pragma once

#include <string>

#include "base/error.h"

namespace llm::app {

inline constexpr int kMostNesting = 200;
inline std::string nesting_problem() { return "values are nested more than " + std::to_string(kMostNesting) + " deep"; }

/// For nlohmann's parsers: throws ErrorKind::Usage, naming the file, for deeper ones.
struct RefuseNesting {
  const std::string& path;
  template <class Event, class Value>
  bool operator()(int depth, Event, const Value&) const {
    if (depth > kMostNesting) throw Error(ErrorKind::Usage, ErrorParts{.file = path, .problem = nesting_problem()});
    return true;
  }
};

}  // namespace llm::app
