// What happens to a prompt before it is answered: the beginning of the answer is put behind it, and one that is longer
// than the context is refused or cut, never in silence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "context_options.h"
#include "prompt.h"

namespace llm::app {

/// The prompt with the answer's beginning behind it, which is plain text whatever it looks like.
void add_prefill(Prompt&, const std::string& prefill, const Tokenizer&);

/// Tokens [begin, end) of a prompt that went.
struct PromptCut {
  std::size_t begin = 0, end = 0;
};

/// Which tokens go so that `room` of `context` tokens are left for the answer: the oldest of the longest stretch that
/// may be cut, which is a message's text where a template made the prompt, else all of it; none of the first `keep`.
/// Throws ErrorKind::Context if there are too few.
PromptCut choose_cut(const EncodedPrompt&, bool by_template, std::int64_t context, std::int64_t keep,
                     std::int64_t room);

/// Refuses a prompt that does not fit, or cuts it with a warning that says what went. `max_tokens`: of the answer, or
/// negative.
void fit_prompt(Prompt&, const ContextOptions&, std::int64_t context, std::int64_t max_tokens);

/// For GenerateOptions::keep, if the text may shift.
std::optional<std::int64_t> kept_tokens(const Prompt&, const ContextOptions&, std::int64_t context);

}  // namespace llm::app
