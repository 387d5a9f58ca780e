// Walking over values, and the variable `loop` of for-blocks.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "text/jinja/runtime.h"

namespace llm::jinja {

/// Fails where Python's iter() does.
std::shared_ptr<IteratorObject> iterate(Runtime&, const Value&);
bool is_iterable(const Value&);
/// Python's len(); nothing if the value has none.
std::optional<std::size_t> length(const Value&);
/// All that is left of it.
std::vector<Value> to_items(Runtime&, const Value&);
/// An iterator that asks a function; `source` is what that reads, for the depth.
using NextFunction = std::function<bool(Runtime&, Value&)>;
Value generator(Runtime&, const Value& source, NextFunction next);

/// Jinja's LoopContext: it looks ahead only when asked about what comes.
struct LoopObject : Nested {
  std::shared_ptr<IteratorObject> iterator;
  Value iterable;
  std::shared_ptr<Object> recurse;  ///< what a call of `loop` runs; null if the loop is not recursive
  int depth0 = 0;
  std::int64_t index0 = -1;
  std::optional<std::int64_t> known_length;
  std::optional<Value> before, current, after, changed;

  bool next(Runtime&, Value& out);
  /// The value after the current one stays in `after`; false at the end.
  bool peek(Runtime&);
  std::int64_t count(Runtime&);
};

}  // namespace llm::jinja
