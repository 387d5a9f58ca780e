#include "answer_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/utf8.h"

namespace llm::app {
namespace {

/// JSON has no infinity: OpenAI's floor for what is all but impossible
double json_logprob(double logprob) {
  constexpr double kLeast = -9999;
  return std::max(logprob, kLeast);
}

/// A token alone may be no UTF-8: its bytes are told too.
Json token_json(const TokenLogprob& t, const Tokenizer& tokenizer) {
  const std::string piece = tokenizer.spelling(t.token);
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", piece}, {"logprob", json_logprob(t.logprob)}, {"bytes", bytes}};
}

/// Where a token is a key, or has no bytes beside it, those that are no UTF-8 are spelled as OpenAI's API does.
std::string token_name(Token token, const Tokenizer& tokenizer) {
  const std::string piece = tokenizer.spelling(token);
  if (utf8::valid(piece)) return piece;
  std::string spelled = "bytes:";
  for (const char c : piece) {
    char byte[5];
    std::snprintf(byte, sizeof byte, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    spelled += byte;
  }
  return spelled;
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

Json completion_logprobs_json(std::span<const Logprobs> all, std::span<const std::size_t> begins, std::string_view text,
                              const Tokenizer& tokenizer) {
  Json tokens = Json::array(), logprobs = Json::array(), best = Json::array(), offsets = Json::array();
  std::size_t bytes = 0, characters = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Logprobs& l = all[i];
    tokens.push_back(token_name(l.chosen.token, tokenizer));
    logprobs.push_back(json_logprob(l.chosen.logprob));
    Json& likeliest = best.emplace_back(Json::object());
    for (const TokenLogprob& t : l.best) {
      // Of tokens of one spelling the likeliest.
      if (const std::string name = token_name(t.token, tokenizer); !likeliest.contains(name))
        likeliest[name] = json_logprob(t.logprob);
    }
    characters += utf8::count_characters(text.substr(bytes, begins[i] - bytes));
    bytes = begins[i];
    offsets.push_back(characters);
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", best}, {"text_offset", offsets}};
}

}  // namespace llm::app
