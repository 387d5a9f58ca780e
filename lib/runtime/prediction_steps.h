// Runs a model's prediction layer over one text, with a cache of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/evaluator.h"
#include "runtime/programs.h"
#include "runtime/sequences.h"
#include "runtime/step_work.h"

namespace llm {

class PredictionSteps {
 public:
  /// Of a model that predicts(), over at most `context` tokens.
  PredictionSteps(Model&, std::int64_t context, CacheFormat);

  std::int64_t context() const { return context_; }
  std::int64_t length() const { return sequences_.length(sequence_); }
  void rewind(std::int64_t length) { sequences_.rewind(sequence_, length); }
  /// Behind the last token; valid until the next call.
  struct Result {
    std::span<const float> logits;  ///< of what follows the token
    std::span<const float> hidden;  ///< what the layer's head read: what it goes on with when that is guessed
  };
  /// At least one token; `hidden` is of each what the head read one token earlier, [tokens][n_embd].
  Result run(std::span<const Token> tokens, std::span<const float> hidden);

 private:
  void step(std::span<const Token> tokens, std::span<const float> hidden);

  Model& model_;
  std::int64_t context_;
  Sequences sequences_;
  SequenceId sequence_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<StateStore> store_;
  Programs programs_;
  StepWork work_;
  LogitRows logits_, hidden_, given_;
};

}  // namespace llm
