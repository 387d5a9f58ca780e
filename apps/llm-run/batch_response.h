// Results as lines of the batch format: OpenAI's shape, and timings.
#pragma once

#include <span>
#include <string>

#include "batch_request.h"
#include "runtime/scheduler.h"

namespace llm::app {

struct AnsweringModel {
  std::string name;
  const Tokenizer& tokenizer;
  std::uint64_t seed;    ///< of rows without their own
  std::int64_t created;  ///< in seconds since 1970: when the batch began, so that a run that goes on says the same
};
enum class AnswerShape : std::uint8_t { Completion, Chat };

/// The line of a row whose choices all have an answer, in their order.
Json answer_line(const BatchRequest&, std::span<const BatchResult> choices, const AnsweringModel& model, AnswerShape,
                 std::int64_t prompt_tokens);
/// The answer as far as it came in the time that a row has, with the failure that this is.
Json timeout_line(const BatchRequest&, std::span<const BatchResult> choices, const AnsweringModel&, AnswerShape,
                  std::int64_t prompt_tokens, const RowFailure&);
RowFailure too_late_for(double max_seconds);
Json failure_line(const BatchRequest&, const RowFailure&);
RowFailure too_long_for(std::int64_t context, std::int64_t tokens);
/// What an error of the library means for a row.
RowFailure failure_of(const Error&);
/// Of an answer that had begun: what cannot be used then is the form, not the template.
RowFailure failure_of_answer(const Error&);

}  // namespace llm::app
