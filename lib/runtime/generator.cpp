#include "runtime/generator.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"

namespace llm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool cancelled(const GenerateOptions& options) { return options.cancel != nullptr && options.cancel->load(); }

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

std::vector<Token> end_tokens(const Tokenizer& tokenizer) {
  std::vector<Token> found;
  for (std::size_t t = 0; t < tokenizer.n_vocab(); ++t) {
    if (tokenizer.is_end_of_generation(static_cast<Token>(t))) found.push_back(static_cast<Token>(t));
  }
  return found;
}

/// The state of one answer.
class Answer {
 public:
  Answer(Session& session, Model& model, SequenceId sequence, const GenerateOptions& options)
      : session_(session),
        tokenizer_(model.tokenizer()),
        sequence_(sequence),
        options_(options),
        sampler_(options.sampling),
        decoder_(model.tokenizer()),
        // A model may have more rows than its vocabulary has tokens.
        n_tokens_(std::min(static_cast<std::size_t>(model.dims().vocab), model.tokenizer().n_vocab())) {
    if (options.end_token == GenerateOptions::EndToken::Ignored) sampler_.forbid(end_tokens(tokenizer_));
  }

  /// The logits after the prompt; nothing if cancelled.
  std::span<const float> prefill(std::span<const Token> prompt,
                                 const std::function<void(std::int64_t, std::int64_t)>& progress) {
    std::span<const float> logits;
    ChunkSize chunk;
    for (std::size_t done = 0; done < prompt.size();) {
      if (cancelled(options_)) return {};
      const std::size_t n = std::min(chunk.next(), prompt.size() - done);
      const Append work{sequence_, prompt.subspan(done, n), done + n == prompt.size() ? Logits::Last : Logits::None};
      const auto start = Clock::now();
      logits = session_.eval({&work, 1});
      chunk.took(seconds_since(start));
      done += n;
      if (progress) progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(prompt.size()));
    }
    remember(prompt);
    return logits;
  }

  /// Samples until something ends it. `first_token` is called once, when there is one.
  StopReason decode(std::span<const float> logits, const std::function<bool(std::string_view)>& text,
                    const std::function<void()>& first_token) {
    for (;;) {
      if (generated_ == options_.max_tokens) return StopReason::Length;
      if (cancelled(options_)) return StopReason::Cancelled;
      const Token token = sampler_.sample(logits.first(n_tokens_), static_cast<std::uint64_t>(generated_));
      if (generated_ == 0) first_token();
      if (options_.end_token == GenerateOptions::EndToken::Stops && tokenizer_.is_end_of_generation(token)) {
        return StopReason::EndOfGeneration;
      }
      sampler_.accept(token);
      ++generated_;
      if (!give(text, decoder_.push(token))) {
        refused_ = true;
        return StopReason::Cancelled;
      }
      if (generated_ == options_.max_tokens) return StopReason::Length;
      if (session_.length(sequence_) == session_.context()) return StopReason::ContextFull;
      const Append work{sequence_, {&token, 1}, Logits::Last};
      logits = session_.eval({&work, 1});
    }
  }

  void finish(const std::function<bool(std::string_view)>& text) {
    if (!refused_) give(text, decoder_.finish());
  }
  std::int64_t generated() const { return generated_; }

 private:
  /// What comes before the answer: for the penalties, and so that the answer's first token is joined to it (a leading
  /// space, a character whose first bytes end the prompt).
  void remember(std::span<const Token> prompt) {
    for (const Token t : prompt) sampler_.accept(t);
    constexpr std::size_t kJoined = 8;  // more tokens than a character has bytes
    for (const Token t : prompt.last(std::min(kJoined, prompt.size()))) (void)decoder_.push(t);
  }

  static bool give(const std::function<bool(std::string_view)>& text, std::string_view piece) {
    return piece.empty() || !text || text(piece);
  }

  Session& session_;
  const Tokenizer& tokenizer_;
  SequenceId sequence_;
  const GenerateOptions& options_;
  Sampler sampler_;
  StreamDecoder decoder_;
  std::size_t n_tokens_;
  std::int64_t generated_ = 0;
  bool refused_ = false;  ///< the caller wants no more text
};

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::EndOfGeneration:
      return "eos";
    case StopReason::Length:
      return "length";
    case StopReason::ContextFull:
      return "context";
    case StopReason::Cancelled:
      return "cancelled";
  }
  return "unknown";
}

GenerateResult generate(Session& session, Model& model, SequenceId sequence, std::span<const Token> prompt,
                        const GenerateOptions& options, const std::function<bool(std::string_view)>& text,
                        const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(!prompt.empty(), "generation without a prompt token");
  session.require_context(session.length(sequence) + static_cast<std::int64_t>(prompt.size()));
  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(prompt.size());

  Answer answer(session, model, sequence, options);
  const auto start = Clock::now();
  const std::span<const float> logits = answer.prefill(prompt, progress);
  result.prompt_seconds = seconds_since(start);
  if (logits.empty()) {
    result.reason = StopReason::Cancelled;
    return result;
  }
  auto first = Clock::now();
  result.reason = answer.decode(logits, text, [&] {
    result.first_token_seconds = seconds_since(start);
    first = Clock::now();
  });
  result.generate_seconds = seconds_since(first);
  result.generated_tokens = answer.generated();
  answer.finish(text);
  return result;
}

}  // namespace llm
