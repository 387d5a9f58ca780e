// One answer on its way to stdout: as text while it is made, as one JSON object at its end, or as a JSON object per
// token and one at the end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "output_options.h"
#include "reasoning_options.h"
#include "runtime/generator.h"

namespace llm::app {

/// What is known before the answer.
struct AnswerHead {
  std::string model;
  std::uint64_t seed = 0;
  double load_seconds = 0;
  std::int64_t cached_tokens = 0;                  ///< of the prompt, that need not be read
  std::string prefill;                             ///< the text begins with it
  std::optional<ReasoningOptions> reasoning = {};  ///< nothing: the prompt is raw text
};

class AnswerOutput {
 public:
  virtual ~AnswerOutput() = default;
  /// The prompt was read: the answer follows.
  virtual void begin() = 0;
  /// After a step of the answer, with what became complete.
  virtual void step(const Answer&, const AnswerText&) = 0;
  /// `reason` is what finish_reason() says, or "timeout".
  virtual void finish(const GenerateResult&, std::string_view reason) = 0;
};

std::unique_ptr<AnswerOutput> make_answer_output(const OutputOptions&, const ReasoningChoice&, AnswerHead,
                                                 const Tokenizer&);

}  // namespace llm::app
