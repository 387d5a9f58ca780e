// Parts of an answer as JSON, in OpenAI's shapes: of one answer and of a batch's rows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "runtime/answer.h"
#include "text/tokenizer.h"

namespace llm::app {

using Json = nlohmann::ordered_json;

/// "stop", "length" or "cancelled".
const char* finish_reason(StopReason);
/// To a tenth of a millisecond.
double milliseconds(double seconds);
/// A sampled token: `token`, `logprob`, `bytes` and the likeliest ones in `top_logprobs`.
Json logprob_json(const Logprobs&, const Tokenizer&);
/// {"content": [...]}, an entry per token, as chats have it.
Json logprobs_json(std::span<const Logprobs>, const Tokenizer&);
/// As completions have it, a list of each: `tokens`, `token_logprobs`, `top_logprobs` (objects) and `text_offset`,
/// where tokens begin in `text`, the answer, in characters; `begins` has it in bytes.
Json completion_logprobs_json(std::span<const Logprobs>, std::span<const std::size_t> begins, std::string_view text,
                              const Tokenizer&);

}  // namespace llm::app
