// --dry-run: what a run would take, from the files' headers; how long a batch takes, from steps that are measured.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/model.h"
#include "runtime/prefix_order.h"
#include "runtime/session.h"

namespace llm::app {

/// "weights               4.0 GiB\n"
std::string plan_line(const std::string& what, const std::string& value);

/// Prints what the weights, the cache and the work buffers of such a session take, and the longest context that fits
/// beside the weights. Returns the exit code: 0, or ErrorKind::Memory's if the session could not be made.
/// `draft_model`: what part of that is a draft model's, or empty.
int print_memory_plan(Model&, const SessionOptions&, const std::string& draft_model = {});
/// The same for a batch, whose rows come to hold so many positions of the cache in such a context.
int print_memory_plan(Model&, const SessionOptions&,
                      const std::function<std::int64_t(std::int64_t context)>& positions);

/// Positions of a sequence in such a session. Nothing where none can be made, which print_memory_plan() says.
std::optional<std::int64_t> context_that_fits(Model&, const SessionOptions&);

struct BatchWork {
  std::size_t rows = 0;            ///< answers: a row may ask for several
  std::int64_t prompt_tokens = 0;  ///< of all of them
  std::int64_t shared_tokens = 0;  ///< of those, in common with another prompt and computed once
  std::int64_t longest_prompt = 0;
};
BatchWork measure_batch(std::span<const std::span<const Token>> prompts, RowOrder);
void print_batch_plan(const BatchWork&, std::size_t rows, std::size_t failed);
/// Of a batch that goes on: rows that the results have, and those left to run.
void print_batch_progress(std::size_t answered, std::size_t failed, std::size_t left);

}  // namespace llm::app
