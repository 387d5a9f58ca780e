// What shapes the answers of a batch: a run that goes on has to have the same.
#pragma once

#include "batch_request.h"
#include "options.h"
#include "prompt.h"

namespace llm::app {

/// By the options' names: what is in files, not what they are called.
Json shaping_options(const RunOptions&, const SamplerOptions&, const PromptMaker&, const Backend&);

}  // namespace llm::app
