#include "runtime/answer.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "constrain/constraint.h"
#include "runtime/logit_scan.h"

namespace llm {
namespace {

/// With the end tokens banned if they are to be ignored.
SamplerOptions sampling_of(const AnswerOptions& options, const Tokenizer& tokenizer) {
  SamplerOptions sampling = options.sampling;
  if (options.end_token == AnswerOptions::EndToken::Ignored) {
    for (const Token t : tokenizer.end_tokens()) {
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
    case StopReason::TimeUp:
      return "time";
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
      decoder_(tokenizer_, options_.constraint ? StreamStart::Continuation : StreamStart::Beginning),
      matcher_(options_.stop_strings),
      stop_tokens_(control_tokens(tokenizer_, options_.stop_strings)),
      n_tokens_(std::min(static_cast<std::size_t>(model.dims().vocab), tokenizer_.n_vocab())) {
  if (options_.constraint) constraint_ = std::make_unique<Constraint>(options_.constraint);
  if (options_.reasoning) {
    const bool form = constraint_ && options_.reasoning->form == ReasoningOptions::Form::Answer;
    // What covers everything leaves no place for tokens of ours.
    if (constraint_ && !form) options_.reasoning->budget = -1;
    thinking_.emplace(tokenizer_, *options_.reasoning, form ? Thinking::AnswerForm::Given : Thinking::AnswerForm::Free);
  }
  for (const Token t : prompt) sampler_.accept(t);
  constexpr std::size_t kJoined = 8;  // more tokens than a character has bytes
  if (!constraint_) {
    for (const Token t : prompt.last(std::min(kJoined, prompt.size()))) (void)decoder_.push(t);
  }
  if (options_.max_tokens == 0) end(StopReason::Length);
}

Answer::Answer(Answer&&) noexcept = default;
Answer::~Answer() = default;

/// The next token must be one that the constraint allows.
bool Answer::form_holds() const {
  if (!constraint_) return false;
  return !thinking_ || options_.reasoning->form == ReasoningOptions::Form::Everything ||
         thinking_->phase() == ReasoningPhase::Answer;
}

Answer::Chosen Answer::choose(std::span<const float> logits) {
  if (!thinking_) {
    return {sampler_.sample(constraint_ ? allowed_only(logits) : logits, tokens_.size()), Chosen::By::Model};
  }
  if (const auto token = thinking_->put_in(decoder_.in_character())) return {*token, Chosen::By::Rule};
  const bool undecided = constraint_ && thinking_->phase() == ReasoningPhase::Before;
  const bool masked = undecided || form_holds();
  const Token token = sampler_.sample(masked ? allowed_only(logits) : logits, tokens_.size());
  if (!constraint_ || masked) return {token, Chosen::By::Model};
  // The thinking before an answer that must have a form ends with its mark and with nothing else.
  StreamDecoder ahead = decoder_;
  if (!tokenizer_.is_end_of_generation(token) && !thinking_->runs_into_answer(token, ahead.push(token))) {
    return {token, Chosen::By::Model};
  }
  thinking_->close();
  return {*thinking_->put_in(false), Chosen::By::Rule};
}

void Answer::sample(std::span<const float> logits) {
  check(!ended(), "a token sampled after the end of an answer");
  logits = logits.first(n_tokens_);
  const auto [token, by] = choose(logits);
  if (by == Chosen::By::Model && ends(token)) return;
  if (options_.logprobs) {
    logprobs_.push_back(logprobs(logits, token, static_cast<std::size_t>(*options_.logprobs)));
  }
  if (by == Chosen::By::Model) follow_form(token);
  add(token);
}

std::optional<DrawRule> Answer::rule(int unseen) {
  if (constraint_ || options_.logprobs || (thinking_ && thinking_->may_put_in(unseen))) return std::nullopt;
  return sampler_.rule(n_tokens_, tokens_.size() + static_cast<std::size_t>(unseen), unseen);
}

void Answer::take(Token token) {
  check(!ended() && token >= 0 && static_cast<std::size_t>(token) < n_tokens_, "a token drawn for an answer");
  if (!ends(token)) add(token);
}

/// Whether the answer ends before the token, for its sake.
bool Answer::ends(Token token) {
  // Where end tokens are ignored, a constraint still ends: nothing else may follow then.
  const bool may_end = options_.end_token == AnswerOptions::EndToken::Stops || constraint_;
  const bool in_answer = !thinking_ || thinking_->phase() == ReasoningPhase::Answer;
  if (may_end && tokenizer_.is_end_of_generation(token)) {
    end_mark_ = shown(token);
    end(StopReason::EndOfGeneration);
  } else if (in_answer && std::find(stop_tokens_.begin(), stop_tokens_.end(), token) != stop_tokens_.end()) {
    end(StopReason::StopString);
  }
  return ended();
}

/// The text of a control token, where it is shown.
std::string Answer::shown(Token token) const {
  const bool wanted = options_.control_tokens == AnswerOptions::ControlTokens::Shown;
  return wanted && tokenizer_.kind(token) == TokenKind::Control ? tokenizer_.spelling(token) : std::string();
}

void Answer::add(Token token) {
  sampler_.accept(token);
  tokens_.push_back(token);
  const std::size_t begin = begin_of(token);
  take_in(token);
  mark_text_end(begin);
  if (ended()) return;
  if (form_holds() && constraint_->must_end()) return end(StopReason::EndOfGeneration);
  if (static_cast<std::int64_t>(tokens_.size()) == options_.max_tokens) end(StopReason::Length);
}

/// While thinking may still begin, the text is both: perhaps its mark, perhaps the answer.
void Answer::follow_form(Token token) {
  const bool undecided = constraint_ && thinking_ && thinking_->phase() == ReasoningPhase::Before && !form_holds();
  if (!undecided) {
    if (form_holds()) check(constraint_->accept(token), "a token that the constraint forbids was sampled");
    return;
  }
  form_fits_ = form_fits_ && constraint_->accept(token);
  const bool opening = thinking_->go_on_opening(token);
  check(opening || form_fits_, "a token that neither begins the thinking nor the answer was sampled");
}

void Answer::take_in(Token token) {
  const bool has_text = thinking_ && thinking_->is_mark(token);  // marks of the thinking do, whatever is shown
  const std::string text = decoder_.push(token) + (has_text ? std::string() : shown(token));
  if (!thinking_) {
    search(text);
    if (matcher_.matched()) stop_at(StopText::OfAnswer);
    return;
  }
  const ReasoningPhase before = thinking_->phase();
  give_out(thinking_->accept(token, text));
  const bool begun = before == ReasoningPhase::Before && thinking_->phase() != ReasoningPhase::Before;
  const bool form_is_the_answers = options_.reasoning->form == ReasoningOptions::Form::Answer;
  if (constraint_ && form_is_the_answers && begun) constraint_->rewind(constraint_->accepted());
  const std::vector<std::string>& stops = options_.stop_strings;
  const bool thought = before == ReasoningPhase::Inside && thinking_->phase() != ReasoningPhase::Inside;
  if (matcher_.matched()) {
    stop_at(StopText::OfAnswer);
  } else if (thought && std::find(stops.begin(), stops.end(), thinking_->markers().close) != stops.end()) {
    stop_at(StopText::Mark);
  }
}

void Answer::stop_at(StopText text) {
  stop_text_ = text;
  end(StopReason::StopString);
}

void Answer::give_out(const ReasoningParser::Parts& parts) {
  ready_.thinking += parts.thinking;
  const bool leaves_answer = !parts.aside.empty() && parts.answer.empty();
  if (leaves_answer) add_answer(matcher_.finish());  // a message ends; its text is no part of a stop string
  if (options_.reasoning->text == ReasoningOptions::Text::Everything) ready_.text += parts.aside;
  search(parts.answer);
}

void Answer::search(const std::string& text) {
  searched_bytes_ += text.size();
  add_answer(matcher_.push(text));
}

void Answer::add_answer(const std::string& text) {
  answer_bytes_ += text.size();
  if (constraint_) formed_ += text;
  ready_.text += text;
}

/// A stop string that ended it is no part of the text, but the constraint has seen its tokens.
bool Answer::form_is_whole() const {
  if (!constraint_) return true;
  return reason_ == StopReason::StopString ? constraint_->is_whole(formed_) : constraint_->can_end();
}

std::span<const float> Answer::allowed_only(std::span<const float> logits) {
  masked_.assign(logits.size(), kNever);
  bool any = false;
  const bool undecided = !form_holds();
  if (!undecided || (form_fits_ && thinking_->answer_may_begin())) any = allow(logits, constraint_->allowed());
  if (undecided) {
    for (const Token t : thinking_->openings()) {
      const auto token = static_cast<std::size_t>(t);
      if (token >= logits.size()) continue;
      masked_[token] = logits[token];
      any = true;
    }
  }
  if (!any)
    throw Error(ErrorKind::Notation, "the form of the answer allows only tokens that the model has no logits for");
  return masked_;
}

/// False if the set is empty.
bool Answer::allow(std::span<const float> logits, std::span<const std::uint64_t> tokens) {
  constexpr std::size_t kBits = 64;
  bool any = false;
  for (std::size_t w = 0; w * kBits < logits.size(); ++w) {
    for (std::uint64_t left = tokens[w]; left != 0; left &= left - 1) {
      const std::size_t token = w * kBits + static_cast<std::size_t>(std::countr_zero(left));
      if (token >= logits.size()) break;
      masked_[token] = logits[token];
      any = true;
    }
  }
  return any;
}

/// A character that the token leaves broken stands before it, as U+FFFD.
std::size_t Answer::begin_of(Token token) const {
  const bool breaks = decoder_.in_character() && !decoder_.goes_on_in_character(token);
  return searched_bytes_ + (breaks ? utf8::kReplacement.size() : 0);
}

void Answer::mark_text_end(std::size_t begin) {
  const bool inside = decoder_.in_character() || (thinking_ && thinking_->closing());
  text_ends_.push_back({begin, searched_bytes_, inside});
}

std::vector<std::size_t> Answer::text_offsets() const {
  std::vector<std::size_t> offsets;
  for (const TextEnd& end : text_ends_) offsets.push_back(end.begin);
  return offsets;
}

/// The text before a stop string is what was given out. Of the tokens those count that end with it or before, and one
/// that goes on with the stop string.
std::size_t Answer::text_tokens() const {
  if (stop_text_ == StopText::None) return tokens_.size();
  const auto is_before = [this](const TextEnd& e) { return !e.inside && e.searched_bytes <= answer_bytes_; };
  std::size_t n = text_ends_.size();
  if (stop_text_ == StopText::Mark) --n;  // it is whole with the last one
  while (n > 0 && !is_before(text_ends_[n - 1])) --n;
  std::size_t bytes = n == 0 ? 0 : text_ends_[n - 1].searched_bytes;
  while (bytes < answer_bytes_ && n < text_ends_.size()) bytes = text_ends_[n++].searched_bytes;
  return n;
}

std::size_t Answer::tokens_left() const {
  if (options_.max_tokens < 0) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(options_.max_tokens) - tokens_.size();
}

AnswerText Answer::take_text() {
  if (ended()) {
    // A character that only the prompt began is no text of the answer.
    const std::string rest = tokens_.empty() ? std::string() : decoder_.finish();
    if (thinking_) {
      give_out(thinking_->finish(rest));
    } else {
      search(rest);
    }
    add_answer(matcher_.finish());
    ready_.text += std::exchange(end_mark_, {});
  }
  return std::exchange(ready_, {});
}

}  // namespace llm
