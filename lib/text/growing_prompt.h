// Prompts of which each mostly begins as the one before it did, as those of a growing conversation do: only what is new
// is encoded.
#pragma once

#include <cstddef>

#include "text/tokenizer.h"

namespace llm {

class GrowingPrompt {
 public:
  /// The tokenizer must outlive it.
  explicit GrowingPrompt(const Tokenizer&);

  /// What Tokenizer::encode() gives. Valid until the next call.
  const EncodedPrompt& encode(PromptText);

 private:
  std::size_t alike(const PromptText& next) const;
  std::size_t tokens_to_keep(std::size_t alike) const;

  const Tokenizer& tokenizer_;
  std::size_t longest_special_ = 0;
  PromptText text_;
  EncodedPrompt made_;  ///< of text_
};

}  // namespace llm
