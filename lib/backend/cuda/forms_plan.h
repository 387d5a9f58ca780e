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

/// Up to so many sequences in a step may have drafts, which are tokens of theirs with the bits of single ones.
inline constexpr int kFewSequences = 8;

/// How products of many columns are made.
enum class Many : std::uint8_t {
  AsFew,         ///< with the same bits
  F16,           ///< of operands rounded to F16: by a library on decoded weights, of experts by grouped products
  F8,            ///< where takes_f8(), of operands rounded to FP8 (E4M3), each row times a factor; else WgmmaExperts
  Wgmma,         ///< like F16, where takes_panels() by kernels that decode weights on the way
  WgmmaExperts,  ///< like F16, those of experts like Wgmma
};

/// Whether the products of the experts that a value's ids choose are grouped ones (grouped_products.h): those of
/// programs for prompts whose weights allow it, and of experts with short rows, where wgmma makes them, for more tokens
/// than kFewSequences if a step has as many sequences. F32 does not: rounded to F16 it would lose half of its digits.
/// All readers of the ids share their groups.
bool uses_grouped_products(const Graph&, std::uint32_t ids, Many);

enum class Form : std::uint8_t {
  Q8x256,
  Q8x32,
  RoundedBf16,
  F16,
  F16Rest,
  F16Panels,
  F16Unscale,
  F8,
  F8Scale,
  RouteGroups
};
inline constexpr int kForms = 10;

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
std::vector<bool> values_read_as_f32(const Graph&, Many);

/// Linears that make their column themselves want no forms, whether they run fused or alone.
StepPlan plan_step(const Graph&, Many, const TokenKernels&);

/// Whether a product with a weight, where it is of many columns, is one of FP8: by the library, of experts by
/// wgmma_expert_products_f8(), which needs tiles. Logits never are, nor what is brought for each step, whose rows have
/// no factors.
bool takes_f8(const Node&, const ValueInfo& weight, Many);
/// Whether a product, of experts where they are grouped, is one of wgmma_products() or wgmma_expert_products().
bool takes_panels(const Node&, const ValueInfo& weight, Many);
/// Whether a product of many columns with a weight, where it takes F16, takes the rest as well: weights that are F16 in
/// a graph with routes. A rounded activation may let another expert win, whose result is another one altogether. Not
/// where the graph has quantised experts, nor beside products in FP8: their rounding does so far more often.
bool takes_rest(const Graph&, const ValueInfo& weight, Many);
/// Rows of a weight that are decoded at a time for a product with many columns, and the bytes that they take.
std::int64_t decoded_rows(const Node&, const ValueInfo& weight, Many);
std::int64_t decoded_rows(const Shape& weight, std::int64_t element_bytes);
std::uint64_t decoded_bytes(const Node&, const ValueInfo& weight, Many);

/// Rows of a value: vectors of width shape[0], at the bucket's capacity.
std::int64_t row_capacity(const ValueInfo&);
/// Whether a node attends to selected keys in steps that may be prompts: it has memory for masks of them
/// (attend_masked.h), whether or not the device, and what is asked of it, allow that way.
bool may_mask(const Graph&, const Node&);
/// Whether a Linear's products may be of many columns as far as the weights allow.
bool has_many_columns(const Graph&, const Node&, Many);

}  // namespace llm::cuda
