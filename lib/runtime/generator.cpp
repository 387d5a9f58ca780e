#include "runtime/generator.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/read_text.h"

namespace llm {
namespace {

/// Why there shall be no other step.
std::optional<StopReason> cut(const GenerateOptions& options) {
  if (options.cancel != nullptr && options.cancel->load()) return StopReason::Cancelled;
  if (options.deadline && Clock::now() >= *options.deadline) return StopReason::TimeUp;
  return std::nullopt;
}

/// The logits after the prompt; nothing if it was cut, for the answer's reason. Counts the tokens.
std::span<const float> prefill(Session& session, SequenceId sequence, std::span<const Token> prompt,
                               const GenerateOptions& options, Answer& answer, GenerateResult& result) {
  const auto read = [&](std::int64_t done) {
    result.prompt_tokens = done;
    if (options.progress) options.progress(done, std::ssize(prompt));
    return !cut(options);
  };
  std::span<const float> logits;
  if (!cut(options)) logits = read_text(session, sequence, prompt, read);
  if (logits.empty()) answer.end(*cut(options));
  return logits;
}

/// Samples until something ends the answer. `first_token` is called once, when there is one.
void decode(Window& window, Answer& answer, std::span<const float> logits, const GenerateOptions& options,
            const std::function<void()>& first_token) {
  bool sampled = false;
  Window::Next next{.token = {}, .logits = logits};
  while (!answer.ended()) {
    if (const auto reason = cut(options)) {
      answer.end(*reason);
    } else {
      next.token ? answer.take(*next.token) : answer.sample(next.logits);
      if (!std::exchange(sampled, true)) first_token();
    }
    if (!answer.ended() && window.full() && !window.can_shift()) answer.end(StopReason::ContextFull);
    const AnswerText piece = answer.take_text();
    if (options.step) options.step(answer, piece);
    if (answer.ended()) return;
    next = window.next(answer.tokens().back(), answer.tokens_left(), answer);
  }
}

/// What an answer that has ended came to, whatever ended it.
GenerateResult ended(GenerateResult result, const Answer& answer) {
  result.reason = answer.reason();
  result.form_is_whole = answer.form_is_whole();
  result.generated_tokens = std::ssize(answer.tokens());
  result.thinking_tokens = answer.thinking_tokens();
  result.tokens.assign(answer.tokens().begin(), answer.tokens().end());
  return result;
}

}  // namespace

GenerateResult generate(Session& session, Model& model, SequenceId sequence, std::span<const Token> prompt,
                        const GenerateOptions& options) {
  check(!prompt.empty(), "generation without a prompt token");
  check(options.cached >= 0 && options.cached < static_cast<std::int64_t>(prompt.size()), "cached tokens of a prompt");
  const std::span<const Token> rest = prompt.subspan(static_cast<std::size_t>(options.cached));
  session.require_context(session.length(sequence) + static_cast<std::int64_t>(rest.size()));
  GenerateResult result;

  Answer answer(model, options.answer, prompt);
  const auto start = Clock::now();
  const std::span<const float> logits = prefill(session, sequence, rest, options, answer, result);
  result.prompt_seconds = seconds_since(start);
  if (logits.empty()) return ended(std::move(result), answer);
  const SpeculationCounts before = options.speculation != nullptr ? options.speculation->counts() : SpeculationCounts{};
  Window window(session, sequence, prompt,
                {.keep = options.keep, .go_on = [&] { return !cut(options); }, .speculation = options.speculation});
  auto first = Clock::now();
  decode(window, answer, logits, options, [&] {
    result.first_token_seconds = seconds_since(start);
    first = Clock::now();
  });
  result.generate_seconds = seconds_since(first);
  if (options.speculation != nullptr) result.speculation = options.speculation->counts().since(before);
  result.shifts = window.shifts();
  return ended(std::move(result), answer);
}

}  // namespace llm
