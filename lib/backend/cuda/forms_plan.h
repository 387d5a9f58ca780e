// In which forms the products of a graph want their operands, and where everything of a step lies: values, forms and
// scratch share one workspace by their lives.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/fusions.h"
#include "graph/graph.h"
#include "graph/memory_plan.h"

namespace llm::cuda {

/// How many columns a product may have in a program: those of recorded steps never exceed kMaxColumns, rows of prompts
/// do, and a prompt's wanted rows may be few or many.
enum class Columns : std::uint8_t { Few, Many, Either };
Columns columns_of(const Graph&, std::uint32_t activation);

/// Whether the products of the experts that a value's ids choose are grouped ones (grouped_products.h): those of
/// programs for prompts whose weights allow it, where products of many columns may differ from those of few
/// (`library`). All readers of the ids share their groups.
bool uses_grouped_products(const Graph&, std::uint32_t ids, bool library);

enum class Form : std::uint8_t { Q8x256, Q8x32, RoundedBf16, F16, F16Unscale, RouteGroups };
inline constexpr int kForms = 6;

/// The form in which few columns of a product's input are wanted, none for plain f32.
struct FewForm {
  bool any = false;
  Form form = Form::Q8x256;
};
FewForm few_form(DType device_type);

struct StepPlan {
  MemoryPlan memory;                 ///< of values and node scratch
  std::vector<std::uint64_t> forms;  ///< [values][kForms]: offsets; MemoryPlan::kNone for forms not wanted
  std::uint64_t form(std::uint32_t value, Form f) const {
    return forms[std::size_t{value} * kForms + static_cast<std::size_t>(f)];
  }
  std::uint64_t bytes = 0;
  Fusions fusions;
};
/// Per value whether a fused program reads its f32: not where all readers are products that take it in another form.
std::vector<bool> values_read_as_f32(const Graph&, bool library);

/// `library`: many columns are multiplied by a library on decoded weights; without it all are treated as few. Linears
/// that make their column themselves want no forms, whether they run fused or alone.
StepPlan plan_step(const Graph&, bool library, const TokenKernels&);

/// Bytes of weights decoded at a time for a product with many columns.
std::uint64_t decoded_bytes(const TensorType& weight);
/// Rows of a weight that are decoded at a time.
std::int64_t decoded_rows(const TensorType& weight);

/// Rows of a value: vectors of width shape[0], at the bucket's capacity.
std::int64_t row_capacity(const ValueInfo&);
/// Whether a node's products are of many columns as far as the weights allow.
bool uses_library(const Graph&, const Node&, bool library);

}  // namespace llm::cuda
