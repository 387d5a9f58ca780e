// Where a NaN or an infinity came from: a step is run again under an observer that stops at the first bad value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "graph/graph.h"

namespace llm {

class FirstBadValue final : public Observer {
 public:
  bool wants_value(std::string_view) override { return name_.empty(); }
  void value(std::string_view name, const TensorView& view) override;
  /// `first bad value "inp_embd", computed from tensor "token_embd.weight"`; empty if none was seen.
  std::string explain(const Graph&) const;
  /// Of the first bad value, where it has a row for each of so many tokens: the row.
  std::optional<std::size_t> row_of(std::int64_t tokens) const;

 private:
  std::string name_;
  std::int64_t rows_ = 0;
  std::size_t row_ = 0;
};

}  // namespace llm
