#include "batch_response.h"

#include <algorithm>
#include <span>

#include "answer_json.h"
#include "batch_state.h"
#include "runtime/figures.h"

namespace llm::app {
namespace {

/// Of a row, whatever its place in the input: results of several runs stand in one file.
std::string own_id(std::string_view prefix, const BatchRequest& r) { return std::string(prefix) + digest_of(r.id); }

Json logprobs_of(AnswerShape shape, const BatchResult& result, const Tokenizer& tokenizer) {
  if (result.logprobs.empty()) return {};
  const auto of_text = std::span(result.logprobs).first(result.text_tokens);
  return shape == AnswerShape::Chat ? logprobs_json(of_text, tokenizer)
                                    : completion_logprobs_json(of_text, result.text_offsets, result.text, tokenizer);
}

Json choice(AnswerShape shape, const BatchResult& result, std::size_t index, const Tokenizer& tokenizer) {
  Json out{{"index", index}};
  if (shape == AnswerShape::Chat) {
    out["message"] = {{"role", "assistant"}, {"content", result.text}};
    if (!result.thinking.empty()) out["message"]["reasoning_content"] = result.thinking;
  } else {
    out["text"] = result.text;
  }
  out["finish_reason"] = finish_reason(result.reason);
  out["logprobs"] = logprobs_of(shape, result, tokenizer);
  return out;
}

/// Of the prompts: the first choice of each reads it, the others have it from that one.
std::int64_t shared_tokens(const BatchRequest& r, std::span<const BatchResult> choices) {
  std::int64_t shared = 0;
  for (std::size_t i = 0; i < choices.size(); i += static_cast<std::size_t>(r.choices))
    shared += choices[i].shared_tokens;
  return shared;
}

/// Times are the longest: choices run side by side, and so do prompts.
Json timings(std::span<const BatchResult> choices, std::int64_t prompt_tokens, std::int64_t shared,
             std::int64_t generated) {
  double prompt_seconds = 0, generate_seconds = 0;
  for (const BatchResult& c : choices) {
    prompt_seconds = std::max(prompt_seconds, c.prompt_seconds);
    generate_seconds = std::max(generate_seconds, c.generate_seconds);
  }
  return {{"prompt_n", prompt_tokens - shared},
          {"prompt_ms", milliseconds(prompt_seconds)},
          {"predicted_n", generated},
          {"predicted_ms", milliseconds(generate_seconds)},
          {"cache_n", shared}};
}

/// Of HTTP, as OpenAI's API would answer.
int status(RowFailure::Code code) {
  if (code == RowFailure::Code::Timeout) return 408;
  return code == RowFailure::Code::Internal ? 500 : 400;
}

Json error_of(const BatchRequest& r, const RowFailure& failure) {
  return {{"code", name(failure.code)}, {"message", failure.message}, {"line", r.line}};
}

}  // namespace

Json answer_line(const BatchRequest& r, std::span<const BatchResult> choices, const AnsweringModel& model,
                 AnswerShape shape, std::int64_t prompt_tokens) {
  Json list = Json::array();
  std::int64_t generated = 0, thought = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    list.push_back(choice(shape, choices[i], i, model.tokenizer));
    generated += static_cast<std::int64_t>(choices[i].tokens.size());
    thought += choices[i].thinking_tokens;
  }
  const std::int64_t shared = shared_tokens(r, choices);
  Json usage{{"prompt_tokens", prompt_tokens},
             {"completion_tokens", generated},
             {"total_tokens", prompt_tokens + generated},
             {"prompt_tokens_details", {{"cached_tokens", shared}}}};
  if (shape == AnswerShape::Chat) usage["completion_tokens_details"] = {{"reasoning_tokens", thought}};
  const Json body{
      {"id", own_id("cmpl-", r)}, {"object", shape == AnswerShape::Chat ? "chat.completion" : "text_completion"},
      {"created", model.created}, {"model", model.name},
      {"choices", list},          {"usage", usage}};
  return {{"id", own_id("batch_req_", r)},
          {"custom_id", r.id},
          {"response", {{"status_code", 200}, {"request_id", own_id("req_", r)}, {"body", body}}},
          {"error", nullptr},
          {"seed", r.changes.seed.value_or(model.seed)},
          {"timings", timings(choices, prompt_tokens, shared, generated)}};
}

Json timeout_line(const BatchRequest& r, std::span<const BatchResult> choices, const AnsweringModel& model,
                  AnswerShape shape, std::int64_t prompt_tokens, const RowFailure& failure) {
  Json line = answer_line(r, choices, model, shape, prompt_tokens);
  line["response"]["status_code"] = status(failure.code);
  line["error"] = error_of(r, failure);
  return line;
}

Json failure_line(const BatchRequest& r, const RowFailure& failure) {
  return {{"id", own_id("batch_req_", r)},
          {"custom_id", r.id},
          {"response", {{"status_code", status(failure.code)}, {"request_id", own_id("req_", r)}, {"body", nullptr}}},
          {"error", error_of(r, failure)}};
}

RowFailure too_late_for(double max_seconds) {
  return {RowFailure::Code::Timeout,
          "not done in --max-time " + Json(max_seconds).dump() + " seconds; the body has what there was by then"};
}

RowFailure too_long_for(std::int64_t context, std::int64_t tokens) {
  return {RowFailure::Code::ContextLengthExceeded, problem_of_length(tokens, context)};
}

RowFailure failure_of(const Error& error) {
  if (error.kind() == ErrorKind::Context) return {RowFailure::Code::ContextLengthExceeded, error.what()};
  if (error.kind() == ErrorKind::Notation) return {RowFailure::Code::TemplateError, error.what()};
  if (error.kind() == ErrorKind::Usage) return {RowFailure::Code::InvalidRequest, error.what()};
  return {RowFailure::Code::Internal, error.what()};
}

RowFailure failure_of_answer(const Error& error) {
  if (error.kind() == ErrorKind::Notation) return {RowFailure::Code::SchemaInvalid, error.what()};
  return failure_of(error);
}

}  // namespace llm::app
