#include "runtime/answer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace llm {
namespace {

std::vector<Token> end_tokens(const Tokenizer& tokenizer) {
  std::vector<Token> found;
  for (std::size_t t = 0; t < tokenizer.n_vocab(); ++t) {
    if (tokenizer.is_end_of_generation(static_cast<Token>(t))) found.push_back(static_cast<Token>(t));
  }
  return found;
}

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::EndOfGeneration:
      return "eos";
    case StopReason::Length:
      return "length";
    case StopReason::ContextFull:
      return "context";
    case StopReason::Cancelled:
      return "cancelled";
  }
  return "unknown";
}

Answer::Answer(const Model& model, AnswerOptions options, std::span<const Token> prompt)
    : tokenizer_(model.tokenizer()),
      options_(std::move(options)),
      sampler_(options_.sampling, options_.row),
      decoder_(tokenizer_),
      n_tokens_(std::min(static_cast<std::size_t>(model.dims().vocab), tokenizer_.n_vocab())) {
  if (options_.end_token == AnswerOptions::EndToken::Ignored) sampler_.forbid(end_tokens(tokenizer_));
  for (const Token t : prompt) sampler_.accept(t);
  constexpr std::size_t kJoined = 8;  // more tokens than a character has bytes
  for (const Token t : prompt.last(std::min(kJoined, prompt.size()))) (void)decoder_.push(t);
  if (options_.max_tokens == 0) end(StopReason::Length);
}

void Answer::sample(std::span<const float> logits) {
  check(!ended(), "a token sampled after the end of an answer");
  const Token token = sampler_.sample(logits.first(n_tokens_), tokens_.size());
  if (options_.end_token == AnswerOptions::EndToken::Stops && tokenizer_.is_end_of_generation(token)) {
    end(StopReason::EndOfGeneration);
    return;
  }
  sampler_.accept(token);
  tokens_.push_back(token);
  text_ += decoder_.push(token);
  if (static_cast<std::int64_t>(tokens_.size()) == options_.max_tokens) end(StopReason::Length);
}

std::string Answer::take_text() {
  if (ended()) text_ += decoder_.finish();
  return std::exchange(text_, {});
}

}  // namespace llm
