// Continuous batching: rows join and leave the running batch at every step, prompts are read in chunks beside the rows
// that generate, and what prompts have in common at their beginning is computed once. Results do not depend on what
// runs together (law 6), so neither the order nor the number of rows at once shows in them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shared.h"
#include "runtime/answer.h"
#include "runtime/prefix_order.h"
#include "runtime/session.h"

namespace llm {

struct BatchRow {
  Shared<std::vector<Token>> prompt;  ///< at least one token, no more than the context
  Shared<AnswerOptions> answer;
  std::uint64_t choice = 0;  ///< among those of the same prompt and options: added to answer->row
  /// From its first step on; at the first step that would begin later it ends as TimeUp, with what it has.
  std::optional<double> max_seconds = {};

  AnswerOptions options() const {
    AnswerOptions own = *answer;
    own.row += choice;
    return own;
  }
};

struct BatchResult {
  std::size_t row = 0;  ///< index among the rows
  StopReason reason = StopReason::Cancelled;
  /// Why the row failed: a numeric fault, a prompt that is too long, a constraint that cannot be met. The others go on.
  std::optional<Error> error;
  std::vector<Token> tokens;              ///< generated, without the end token
  std::size_t text_tokens = 0;            ///< of these, before a stop string that ended it
  std::vector<Logprobs> logprobs;         ///< of each of tokens, if they were asked for
  std::vector<std::size_t> text_offsets;  ///< of each of tokens: Answer::text_offsets()
  std::string text, thinking;
  std::int64_t thinking_tokens = 0;  ///< of tokens
  std::int64_t shared_tokens = 0;    ///< of the prompt, taken from a row before it
  /// Wall time from the row's first step to its first token, and from there to its end, in the company it had.
  double prompt_seconds = 0, generate_seconds = 0;
};

/// What has been done so far.
struct BatchProgress {
  std::size_t rows_done = 0, rows_running = 0, rows_waiting = 0;
  std::int64_t prompt_tokens = 0;  ///< computed
  std::int64_t shared_tokens = 0;  ///< of prompts, not computed because another row had them
  std::int64_t generated_tokens = 0;
  std::int64_t preempted = 0;  ///< times that a row gave its memory back and was computed again later
};

enum class BatchControl : std::uint8_t {
  Continue,
  Drain,  ///< begin no more rows; those that run finish
  Stop,   ///< give the rows that run back as Cancelled, now
};

struct BatchCallbacks {
  std::function<void(BatchResult&&)> finished;                 ///< in the order in which rows end
  std::function<BatchControl(const BatchProgress&)> progress;  ///< after every step; may be empty
};

/// Sequences that a session for `parallel` rows at once needs: one more holds a beginning between two rows.
constexpr int batch_sequences(int parallel) { return parallel + 1; }

/// Runs all rows, at most `parallel` at once. The session has batch_sequences(parallel) free sequences, which are free
/// again afterwards, also after an exception.
void run_batch(Model&, Session&, std::span<const BatchRow> rows, int parallel, const BatchCallbacks&,
               RowOrder = RowOrder::ByBeginning);

}  // namespace llm
