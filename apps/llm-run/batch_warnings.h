// What rows ask for and do not get, told once before they run.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "batch_request.h"
#include "options.h"
#include "prompt.h"

namespace llm::app {

/// Keys of rows that mean nothing, and what schemas have that has no effect.
Warnings warnings_of_keys(std::span<const BatchRequest>);
/// Where a template makes the prompts: a column that happens to be called as an option is one.
void note_options_beside(std::span<const BatchRequest>);
/// A row may say which model it was written for. All run on this one.
Warnings warnings_of_other_models(std::span<const BatchRequest>, const ModelOptions&, const Metadata&);
/// A row's tools, and what else it gives to a chat template that has no use for it, would be lost without a word.
Warnings warnings_of_unread_variables(std::span<const BatchRequest>, const PromptMaker&);
/// A role that neither everybody knows nor the chat template names is a slip, most often: models answer it all the
/// same.
Warnings warnings_of_unknown_roles(std::span<const BatchRequest>, const PromptMaker&);

/// Of lines whose prompts have bytes that the vocabulary has nothing for, with what lost_bytes_text() says of each.
Warnings warnings_of_lost_bytes(std::span<const std::pair<std::size_t, std::string>> lines);

}  // namespace llm::app
