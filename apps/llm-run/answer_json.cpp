#include "answer_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace llm::app {
namespace {

/// A token alone may be no UTF-8: its bytes are told too.
Json token_json(const TokenLogprob& t, const Tokenizer& tokenizer) {
  const std::string piece = tokenizer.piece(t.token, true);
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  // JSON has no infinity: OpenAI's floor for what is all but impossible
  constexpr double kLeast = -9999;
  return {{"token", piece}, {"logprob", std::max(t.logprob, kLeast)}, {"bytes", bytes}};
}

}  // namespace

const char* finish_reason(StopReason reason) {
  switch (reason) {
    case StopReason::EndOfGeneration:
    case StopReason::StopString:
      return "stop";
    case StopReason::Length:
    case StopReason::ContextFull:
      return "length";
    case StopReason::TimeUp:
      return "timeout";
    case StopReason::Cancelled:
      return "cancelled";
  }
  return "unknown";
}

double milliseconds(double seconds) { return std::round(seconds * 1e4) / 10; }

Json logprob_json(const Logprobs& l, const Tokenizer& tokenizer) {
  Json entry = token_json(l.chosen, tokenizer);
  entry["top_logprobs"] = Json::array();
  for (const TokenLogprob& t : l.best) entry["top_logprobs"].push_back(token_json(t, tokenizer));
  return entry;
}

Json logprobs_json(std::span<const Logprobs> all, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const Logprobs& l : all) content.push_back(logprob_json(l, tokenizer));
  return {{"content", content}};
}

}  // namespace llm::app
