#include "runtime/answer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
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

/// With the end tokens banned if they are to be ignored.
SamplerOptions sampling_of(const AnswerOptions& options, const Tokenizer& tokenizer) {
  SamplerOptions sampling = options.sampling;
  if (options.end_token == AnswerOptions::EndToken::Ignored) {
    for (const Token t : end_tokens(tokenizer)) {
      sampling.logit_bias.push_back({t, -std::numeric_limits<float>::infinity()});
    }
  }
  return sampling;
}

std::shared_ptr<const SequenceBreakers> breakers_of(const AnswerOptions& options, const Tokenizer& tokenizer) {
  const SamplerOptions& sampling = options.sampling;
  if (options.breakers) return options.breakers;
  const std::vector<SamplerKind> acting = acting_samplers(sampling);
  if (std::find(acting.begin(), acting.end(), SamplerKind::Dry) == acting.end()) return nullptr;
  return std::make_shared<const SequenceBreakers>(find_sequence_breakers(tokenizer, sampling.dry_sequence_breakers));
}

std::vector<Token> control_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::vector<Token> found;
  for (const std::string& text : texts) {
    const std::vector<Token> tokens = tokenizer.encode(text, {.add_special = false, .parse_special = true});
    if (tokens.size() == 1 && tokenizer.kind(tokens[0]) == TokenKind::Control) found.push_back(tokens[0]);
  }
  return found;
}

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::EndOfGeneration:
      return "eos";
    case StopReason::StopString:
      return "stop string";
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
      sampler_(sampling_of(options_, tokenizer_), options_.row, breakers_of(options_, tokenizer_)),
      // Text that must have a form begins with its own first byte, even if the prompt ends inside of a character.
      decoder_(tokenizer_, false, options_.constraint ? StreamStart::Continuation : StreamStart::Beginning),
      matcher_(options_.stop_strings),
      stop_tokens_(control_tokens(tokenizer_, options_.stop_strings)),
      n_tokens_(std::min(static_cast<std::size_t>(model.dims().vocab), tokenizer_.n_vocab())) {
  if (options_.constraint) constraint_.emplace(options_.constraint);
  for (const Token t : prompt) sampler_.accept(t);
  constexpr std::size_t kJoined = 8;  // more tokens than a character has bytes
  if (!constraint_) {
    for (const Token t : prompt.last(std::min(kJoined, prompt.size()))) (void)decoder_.push(t);
  }
  if (options_.max_tokens == 0) end(StopReason::Length);
}

void Answer::sample(std::span<const float> logits) {
  check(!ended(), "a token sampled after the end of an answer");
  logits = logits.first(n_tokens_);
  const Token token = sampler_.sample(constraint_ ? allowed_only(logits) : logits, tokens_.size());
  if (ends(token)) return;
  if (options_.logprobs) {
    logprobs_.push_back(logprobs(logits, token, static_cast<std::size_t>(*options_.logprobs)));
  }
  if (constraint_) check(constraint_->accept(token), "a token that the constraint forbids was sampled");
  add_text(token);
}

std::optional<DrawRule> Answer::rule(int unseen) {
  if (constraint_ || options_.logprobs) return std::nullopt;
  return sampler_.rule(n_tokens_, tokens_.size() + static_cast<std::size_t>(unseen), unseen);
}

void Answer::take(Token token) {
  check(!ended() && token >= 0 && static_cast<std::size_t>(token) < n_tokens_, "a token drawn for an answer");
  if (!ends(token)) add_text(token);
}

/// Whether the answer ends before the token, for its sake.
bool Answer::ends(Token token) {
  // Where end tokens are ignored, a constraint still ends: nothing else may follow then.
  const bool may_end = options_.end_token == AnswerOptions::EndToken::Stops || constraint_;
  if (may_end && tokenizer_.is_end_of_generation(token)) {
    end(StopReason::EndOfGeneration);
  } else if (std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) {
    end(StopReason::StopString);
  }
  return ended();
}

void Answer::add_text(Token token) {
  sampler_.accept(token);
  tokens_.push_back(token);
  text_ += matcher_.push(decoder_.push(token));
  if (matcher_.matched()) return end(StopReason::StopString);
  if (constraint_ && constraint_->must_end()) return end(StopReason::EndOfGeneration);
  if (static_cast<std::int64_t>(tokens_.size()) == options_.max_tokens) end(StopReason::Length);
}

std::span<const float> Answer::allowed_only(std::span<const float> logits) {
  constexpr std::size_t kBits = 64;
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const std::span<const std::uint64_t> allowed = constraint_->allowed();
  masked_.assign(logits.size(), kNever);
  bool any = false;
  for (std::size_t w = 0; w * kBits < logits.size(); ++w) {
    for (std::uint64_t left = allowed[w]; left != 0; left &= left - 1) {
      const std::size_t token = w * kBits + static_cast<std::size_t>(std::countr_zero(left));
      if (token >= logits.size()) break;
      masked_[token] = logits[token];
      any = true;
    }
  }
  if (!any) throw Error(ErrorKind::Runtime, "the constraint allows only tokens that the model has no logits for");
  return masked_;
}

std::size_t Answer::tokens_left() const {
  if (options_.max_tokens < 0) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(options_.max_tokens) - tokens_.size();
}

std::string Answer::take_text() {
  if (ended()) {
    // A character that only the prompt began is no text of the answer.
    if (!tokens_.empty()) text_ += matcher_.push(decoder_.finish());
    text_ += matcher_.finish();
  }
  return std::exchange(text_, {});
}

}  // namespace llm
