// The settings of an answer, from the command line and the model.
#pragma once

#include <memory>

#include "options.h"
#include "runtime/answer.h"
#include "runtime/session.h"

namespace llm::app {

/// `sampling` are the options' or those of a run that goes on. Notes options that change nothing. Throws
/// ErrorKind::Usage for a bias on a token that the vocabulary lacks.
AnswerOptions resolve_answer_options(const RunOptions&, const SamplingChoices& sampling,
                                     std::shared_ptr<TokenMasks> constraint, const Model&);
/// Of a context that is longer than what the model was trained with.
void note_long_context(const RunOptions&, const Model&);
/// Of one sequence.
SessionOptions session_options(const RunOptions&, const Model&);

}  // namespace llm::app
