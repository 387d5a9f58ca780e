// The requests of a batch as rows that can run: prompts in tokens, each choice with options and a form of its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batch_request.h"
#include "batch_response.h"
#include "constrain/token_masks.h"
#include "prompt.h"
#include "runtime/model.h"
#include "runtime/scheduler.h"

namespace llm::app {

struct RequestRows {
  std::optional<RowFailure> failure = {};  ///< of the request, which then has no rows
  std::vector<BatchRow> rows = {};         ///< one for each choice
  AnswerShape shape = AnswerShape::Completion;
  std::int64_t prompt_tokens = 0;
  std::string lost = {};  ///< what is to say of bytes of its prompts that the vocabulary has nothing for
};

class BatchRowMaker {
 public:
  /// `common` are the options of rows that ask for nothing else. All must outlive it.
  BatchRowMaker(const Model& model, const PromptMaker& prompts, const AnswerOptions& common,
                std::optional<double> max_seconds)
      : model_(model), prompts_(prompts), common_(common), max_seconds_(max_seconds) {}

  RequestRows rows_of(const BatchRequest&);

 private:
  struct RowPrompted {
    std::vector<Token> tokens;
    AnswerShape shape = AnswerShape::Completion;
    std::optional<ReasoningOptions> reasoning = {};
    std::string lost = {};
  };
  void require_token(Token) const;
  RowPrompted prompted(Prompt, AnswerShape) const;
  RowPrompted prompt_of(const RowPrompt&) const;
  std::vector<RowPrompted> prompts_of(const BatchRequest&) const;
  std::shared_ptr<TokenMasks> constraint_of(const RowChanges&);
  std::shared_ptr<const SequenceBreakers> breakers_of(const SamplerOptions&);

  const Model& model_;
  const PromptMaker& prompts_;
  const AnswerOptions& common_;
  std::optional<double> max_seconds_;
  std::map<std::string, std::shared_ptr<TokenMasks>> constraints_;  ///< by their form
  std::shared_ptr<const TokenTree> tree_;
  std::shared_ptr<const SequenceBreakers> breakers_;
};

}  // namespace llm::app
