// One answer: prompt tokens in, text out piece by piece, until something ends it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "runtime/answer.h"
#include "runtime/session.h"
#include "runtime/speculation.h"
#include "runtime/window.h"

namespace llm {

struct GenerateOptions {
  AnswerOptions answer;
  const std::atomic<bool>* cancel = nullptr;
  std::int64_t cached = 0;  ///< tokens of the prompt, from its first on, that are in the sequence already: not all
  /// The answer ends as TimeUp at the first step that would begin later.
  std::optional<Clock::time_point> deadline = {};
  /// When the context is full, the older half of what follows its first `keep` positions is forgotten and the rest
  /// evaluated again; nothing: the answer ends.
  std::optional<std::int64_t> keep = {};
  /// Drafts of its make the same answer come sooner where they come true; null: there are none.
  Speculation* speculation = nullptr;
  /// Gets the prompt tokens done so far, and at last that all are.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  /// Gets the answer after each step, with what became complete, which may be empty.
  std::function<void(const Answer&, const AnswerText&)> step = {};
};

struct GenerateResult {
  StopReason reason = StopReason::Length;
  bool form_is_whole = true;       ///< false: the answer was cut before it had the form that it must have
  std::int64_t prompt_tokens = 0;  ///< that were evaluated
  std::int64_t generated_tokens = 0;
  std::int64_t thinking_tokens = 0;  ///< of these
  std::vector<Token> tokens = {};    ///< those that were generated, without the end token
  double prompt_seconds = 0;         ///< until the logits after the prompt
  double first_token_seconds = 0;    ///< until the first token was sampled
  double generate_seconds = 0;       ///< from the first token on: what the other generated_tokens - 1 took
  SpeculationCounts speculation = {};
  Window::Shifts shifts = {};
};

/// Appends what the prompt (at least one token) has beyond options.cached to `sequence` and generates; the last token
/// sampled is not in the sequence.
GenerateResult generate(Session&, Model&, SequenceId sequence, std::span<const Token> prompt, const GenerateOptions&);

}  // namespace llm
