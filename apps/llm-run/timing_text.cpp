#include "timing_text.h"

#include "runtime/figures.h"
#include "speculation_options.h"

namespace llm::app {

std::string timing_text(const GenerateResult& r, std::optional<std::int64_t> cached) {
  return "prompt " + number_text(r.prompt_tokens) + " tok" + speed_text(r.prompt_tokens, r.prompt_seconds) +
         (cached ? " (cached " + number_text(*cached) + ")" : "") + " · gen " + number_text(r.generated_tokens) +
         " tok" + (r.thinking_tokens > 0 ? " (" + number_text(r.thinking_tokens) + " thinking)" : "") +
         speed_text(r.generated_tokens - 1, r.generate_seconds) + drafted_text(r.speculation) + " · TTFT " +
         fixed_text(r.first_token_seconds, 2) + "s";
}

}  // namespace llm::app
