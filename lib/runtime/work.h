// What sessions are given to do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "runtime/kv_cache.h"
#include "text/tokenizer.h"

namespace llm {

/// Which of the appended tokens rows of logits are wanted of.
enum class Logits : std::uint8_t { None, Last, All };

/// Tokens to append to one sequence.
struct Append {
  SequenceId sequence;
  std::span<const Token> tokens;
  Logits logits = Logits::Last;
};

/// Tokens to append to one sequence by a step whose tokens the backend draws.
struct Drawing {
  SequenceId sequence;
  std::span<const Token> tokens;  ///< of them drawn_by(row): what a row of the step begun before draws
  std::optional<DrawRule> rule;   ///< for the token after the last one
};

/// What the model's head reads of tokens that follow one another in a sequence.
struct HiddenRows {
  std::int64_t position = 0;  ///< of the first one
  std::span<const Token> tokens;
  std::span<const float> rows;  ///< [tokens][n_embd]
};
/// Told of each sequence of a step when the step has ended; it may run other programs.
using OnHidden = std::function<void(const HiddenRows&)>;

/// Asked when a step of several has ended, with the number of tokens computed so far.
using GoOn = std::function<bool(std::int64_t)>;

}  // namespace llm
