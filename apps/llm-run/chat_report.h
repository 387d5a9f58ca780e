// What a chat tells about its model, its conversation and its answers, as text.
#pragma once

#include <string>

#include "conversation.h"
#include "options.h"

namespace llm::app {

/// One line: tokens, speeds, what was cached, why the answer ended; `seed` is a seed_text().
std::string timing(const Conversation::Answered&, const std::string& seed);
std::string model_info(const RunOptions&, Model&, const Session&, const PromptMaker&);
std::string license_text(const Model&);
/// What /read and /glob have read for the next message.
struct PendingText {
  const std::string& text;
  const Tokenizer& tokenizer;
};
/// Tokens of each message, of all, of the context, of what waits, in lines of at most `width` columns.
std::string context_table(const Conversation&, const Session&, const PendingText&, std::size_t width);
/// The tokens of an answer, numbered from 1.
std::string token_list(std::span<const Token>, const Tokenizer&, std::size_t width);
/// The likeliest tokens in the place of one, with what the model gives them.
std::string alternatives(const Logprobs&, const Tokenizer&);

}  // namespace llm::app
