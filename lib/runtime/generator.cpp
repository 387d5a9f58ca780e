#include "runtime/generator.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/error.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool cancelled(const GenerateOptions& options) {
  if (options.cancel != nullptr && options.cancel->load()) return true;
  return options.deadline && Clock::now() >= *options.deadline;
}

/// Prompt tokens of one call: as many as one step takes, fewer where a step takes long, so that progress and cancelling
/// stay alive. Results of the cpu backend do not depend on it; those of blas may in the last bits.
class ChunkSize {
 public:
  std::size_t next() const { return tokens_; }
  void took(double seconds) {
    constexpr double kLong = 2;
    constexpr std::size_t kLeast = 64;
    if (seconds > kLong) tokens_ = std::max(kLeast, tokens_ / 2);
  }

 private:
  std::size_t tokens_ = kMaxBatchTokens;
};

/// The logits after the prompt; nothing if cancelled.
std::span<const float> prefill(Session& session, SequenceId sequence, std::span<const Token> prompt,
                               const GenerateOptions& options,
                               const std::function<void(std::int64_t, std::int64_t)>& progress) {
  std::span<const float> logits;
  ChunkSize chunk;
  for (std::size_t done = 0; done < prompt.size();) {
    if (cancelled(options)) return {};
    const std::size_t n = std::min(chunk.next(), prompt.size() - done);
    const Append work{sequence, prompt.subspan(done, n), done + n == prompt.size() ? Logits::Last : Logits::None};
    const auto start = Clock::now();
    logits = session.eval({&work, 1});
    chunk.took(seconds_since(start));
    done += n;
    if (progress) progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(prompt.size()));
  }
  return logits;
}

/// What a full context goes on with: the tokens of its sequence, kept where the older half may be forgotten.
class Window {
 public:
  Window(Session& session, SequenceId sequence, std::span<const Token> prompt, std::optional<std::int64_t> keep)
      : session_(session), sequence_(sequence), keep_(keep) {
    if (keep_) held_.assign(prompt.begin(), prompt.end());
  }

  bool full() const { return session_.length(sequence_) == session_.context(); }
  /// Half of what follows the kept tokens makes room. A sequence that began with other tokens than the prompt's cannot
  /// be evaluated again.
  bool can_shift() const {
    return keep_ && session_.length(sequence_) == static_cast<std::int64_t>(held_.size()) && dropped() > 0;
  }
  /// The logits after one more token.
  std::span<const float> append(Token token) {
    if (!keep_) return eval({&token, 1});
    held_.push_back(token);
    if (!full()) return eval({&token, 1});
    const auto first = static_cast<std::size_t>(*keep_);
    held_.erase(held_.begin() + *keep_, held_.begin() + *keep_ + dropped());
    session_.rewind(sequence_, *keep_);
    return eval(std::span(held_).subspan(first));
  }

 private:
  std::int64_t dropped() const { return (session_.context() - *keep_) / 2; }
  std::span<const float> eval(std::span<const Token> tokens) {
    const Append work{sequence_, tokens, Logits::Last};
    return session_.eval({&work, 1});
  }

  Session& session_;
  SequenceId sequence_;
  std::optional<std::int64_t> keep_;
  std::vector<Token> held_;
};

/// Samples until something ends the answer. `first_token` is called once, when there is one.
void decode(Window window, Answer& answer, std::span<const float> logits, const GenerateOptions& options,
            const std::function<bool(std::string_view)>& text, const std::function<void()>& first_token) {
  bool sampled = false;
  while (!answer.ended()) {
    if (cancelled(options)) {
      answer.end(StopReason::Cancelled);
    } else {
      answer.sample(logits);
      if (!std::exchange(sampled, true)) first_token();
    }
    if (!answer.ended() && window.full() && !window.can_shift()) answer.end(StopReason::ContextFull);
    const std::string piece = answer.take_text();
    if (options.step) options.step(answer, piece);
    if (!piece.empty() && text && !text(piece)) answer.end(StopReason::Cancelled);
    if (answer.ended()) return;
    logits = window.append(answer.tokens().back());
  }
}

}  // namespace

GenerateResult generate(Session& session, Model& model, SequenceId sequence, std::span<const Token> prompt,
                        const GenerateOptions& options, const std::function<bool(std::string_view)>& text,
                        const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(!prompt.empty(), "generation without a prompt token");
  check(options.cached >= 0 && options.cached < static_cast<std::int64_t>(prompt.size()), "cached tokens of a prompt");
  const std::span<const Token> rest = prompt.subspan(static_cast<std::size_t>(options.cached));
  session.require_context(session.length(sequence) + static_cast<std::int64_t>(rest.size()));
  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(rest.size());

  Answer answer(model, options.answer, prompt);
  const auto start = Clock::now();
  const std::span<const float> logits = prefill(session, sequence, rest, options, progress);
  result.prompt_seconds = seconds_since(start);
  if (logits.empty()) {
    result.reason = StopReason::Cancelled;
    return result;
  }
  auto first = Clock::now();
  decode(Window(session, sequence, prompt, options.keep), answer, logits, options, text, [&] {
    result.first_token_seconds = seconds_since(start);
    first = Clock::now();
  });
  result.generate_seconds = seconds_since(first);
  result.reason = answer.reason();
  result.generated_tokens = static_cast<std::int64_t>(answer.tokens().size());
  result.tokens.assign(answer.tokens().begin(), answer.tokens().end());
  return result;
}

}  // namespace llm
