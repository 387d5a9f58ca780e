// From the command line's text to the model's tokens: by a chat template, or as it is.
#pragma once

#include <string>

#include "gguf/metadata.h"
#include "options.h"
#include "text/tokenizer.h"

namespace llm::app {

struct Prompt {
  PromptText text;
  EncodedPrompt tokens;
  std::string made_by;  ///< what formatted it, in words; empty: it is raw text
};

/// Throws ErrorKind::Template and ErrorKind::Usage. Says in a note when there is no template to apply.
Prompt make_prompt(const RunOptions&, const Metadata&, const Tokenizer&, const std::string& text);

/// For --explain-prompt: the text, then a line per token with its id, what made it and what it stands for.
std::string explain(const Prompt&, const Tokenizer&);

}  // namespace llm::app
