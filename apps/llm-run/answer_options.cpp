#include "answer_options.h"

#include <algorithm>
#include <utility>

#include "common/messages.h"

namespace llm::app {

AnswerOptions resolve_answer_options(const RunOptions& o, const SamplingChoices& sampling,
                                     std::shared_ptr<TokenMasks> constraint, const Model& model) {
  AnswerOptions a;
  a.max_tokens = std::max<std::int64_t>(o.max_tokens, -1);
  a.logprobs = o.output.logprobs;
  a.sampling = resolve_sampling(sampling, model);
  if (!o.batch.wanted()) note_lacking(sampling, a.sampling);
  a.stop_strings = o.stop_strings;
  a.constraint = std::move(constraint);
  a.control_tokens = o.output.control_tokens;
  if (o.ignore_end) a.end_token = AnswerOptions::EndToken::Ignored;
  return a;
}

void note_long_context(const RunOptions& o, const Model& model) {
  const std::int64_t trained = model.dims().context;
  if (o.context.size.value_or(0) <= trained) return;
  note("the context of " + number_text(*o.context.size) + " tokens is longer than the " + number_text(trained) +
       " that the model was trained with");
}

SessionOptions session_options(const RunOptions& o, const Model& model) {
  const std::int64_t context = o.context.size == 0 ? model.dims().context : o.context.size.value_or(0);
  return {.context = context, .batch_tokens = o.context.batch_tokens(), .cache = o.context.cache};
}

}  // namespace llm::app
