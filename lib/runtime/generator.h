// One answer: prompt tokens in, text out piece by piece, until something ends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "runtime/sampler.h"
#include "runtime/session.h"

namespace llm {

enum class StopReason : std::uint8_t { EndOfGeneration, Length, ContextFull, Cancelled };
std::string_view name(StopReason);

struct GenerateOptions {
  std::int64_t max_tokens = -1;  ///< -1: until something else ends it
  SamplerOptions sampling;
  enum class EndToken : std::uint8_t { Stops, Ignored } end_token = EndToken::Stops;
  const std::atomic<bool>* cancel = nullptr;
};

struct GenerateResult {
  StopReason reason = StopReason::Length;
  std::int64_t prompt_tokens = 0, generated_tokens = 0;
  double prompt_seconds = 0;       ///< until the logits after the prompt
  double first_token_seconds = 0;  ///< until the first token was sampled
  double generate_seconds = 0;     ///< from the first token on: what the other generated_tokens - 1 took
};

/// Appends the prompt (at least one token) to `sequence` and generates; the last token sampled is not in the sequence.
/// `text` gets whole UTF-8 sequences as they become complete and returns false to stop. `progress` (may be empty) gets
/// the prompt tokens done so far.
GenerateResult generate(Session&, Model&, SequenceId sequence, std::span<const Token> prompt, const GenerateOptions&,
                        const std::function<bool(std::string_view)>& text,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress);

}  // namespace llm
