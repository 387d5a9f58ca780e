#include "batch_rows.h"

#include <algorithm>
#include <utility>

#include "common/messages.h"
#include "common/token_input.h"
#include "text/chat_template.h"

namespace llm::app {

void BatchRowMaker::require_token(Token token) const {
  const std::size_t n = model_.tokenizer().n_vocab();
  if (static_cast<std::size_t>(token) < n) return;
  throw Error(ErrorKind::Usage,
              "token id " + std::to_string(token) + " is not in the vocabulary of " + number_text(n) + " tokens");
}

BatchRowMaker::RowPrompted BatchRowMaker::prompted(Prompt made, AnswerShape shape) const {
  std::string lost = lost_bytes_text(made.text.text, made.tokens.ids, model_.tokenizer());
  return {.tokens = std::move(made.tokens.ids),
          .shape = shape,
          .reasoning = std::move(made.reasoning),
          .lost = std::move(lost)};
}

BatchRowMaker::RowPrompted BatchRowMaker::prompt_of(const RowPrompt& given) const {
  if (const auto* ids = std::get_if<TokenPrompt>(&given)) {
    for (const Token t : *ids) require_token(t);
    return {.tokens = *ids};
  }
  if (const auto* text = std::get_if<PromptText>(&given))
    return prompted({.text = *text, .tokens = model_.tokenizer().encode(*text), .made_by = {}},
                    AnswerShape::Completion);
  if (const auto* plain = std::get_if<PlainPrompt>(&given)) {
    return prompted(prompts_.from_text(plain->text),
                    prompts_.has_template() ? AnswerShape::Chat : AnswerShape::Completion);
  }
  return prompted(prompts_.from_chat(read_chat_input(std::get<ChatPrompt>(given).text(), "")), AnswerShape::Chat);
}

std::vector<BatchRowMaker::RowPrompted> BatchRowMaker::prompts_of(const BatchRequest& r) const {
  std::vector<RowPrompted> prompts;
  for (const RowPrompt& given : r.prompts) {
    prompts.push_back(prompt_of(given));
    if (prompts.back().tokens.empty()) throw Error(ErrorKind::Usage, "the prompt is empty");
  }
  return prompts;
}

/// Rows with the same form share what is known about it.
std::shared_ptr<TokenMasks> BatchRowMaker::constraint_of(const RowChanges& changes) {
  if (!changes.grammar) return changes.free_of_form ? nullptr : common_.constraint;
  std::shared_ptr<TokenMasks>& masks = constraints_[changes.form];
  if (!tree_) tree_ = std::make_shared<const TokenTree>(model_.tokenizer());
  if (!masks) masks = std::make_shared<TokenMasks>(changes.grammar, tree_);
  return masks;
}

/// The breakers' texts are those of all rows: what they are in the vocabulary is found once.
std::shared_ptr<const SequenceBreakers> BatchRowMaker::breakers_of(const SamplerOptions& sampling) {
  const std::vector<SamplerKind> acting = acting_samplers(sampling);
  if (std::find(acting.begin(), acting.end(), SamplerKind::Dry) == acting.end()) return nullptr;
  if (!breakers_) {
    breakers_ = std::make_shared<const SequenceBreakers>(
        find_sequence_breakers(model_.tokenizer(), common_.sampling.dry_sequence_breakers));
  }
  return breakers_;
}

RequestRows BatchRowMaker::rows_of(const BatchRequest& r) {
  RequestRows made;
  std::vector<RowPrompted> prompts;
  try {
    for (const LogitBias& b : r.changes.logit_bias) require_token(b.token);
    prompts = prompts_of(r);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Memory) throw;  // no fault of the row: with more memory --resume goes on with it
    made.failure = failure_of(error);
    return made;
  }
  made.shape = prompts.front().shape;
  AnswerOptions options = row_options(r, common_);
  options.constraint = constraint_of(r.changes);
  options.breakers = breakers_of(options.sampling);
  options.reasoning = prompts.front().reasoning;  // a list of prompts has none: they are no chats
  const Shared<AnswerOptions> answer = std::move(options);
  for (RowPrompted& prompt : prompts) {
    made.prompt_tokens += std::ssize(prompt.tokens);
    if (made.lost.empty()) made.lost = prompt.lost;
    BatchRow row{.prompt = std::move(prompt.tokens), .answer = answer, .max_seconds = max_seconds_};
    for (int i = 0; i < r.choices; ++i) {
      row.choice = made.rows.size();
      made.rows.push_back(row);
    }
  }
  return made;
}

}  // namespace llm::app
