// A text that is read into a sequence, in pieces between which it can be stopped.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/session.h"

namespace llm {

/// Appends `tokens` (at least one) to the sequence: the logits after the last. `go_on` gets the tokens that are read so
/// far; where it says no, no further step begins and there are no logits: what was read stays in the sequence.
std::span<const float> read_text(Session&, SequenceId, std::span<const Token> tokens, const GoOn& go_on);

}  // namespace llm
