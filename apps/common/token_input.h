// A text as tokens of a model, or the tokens themselves from a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace llm::app {

/// Ids from a file: a JSON array, or numbers between white space. Throws ErrorKind::Usage.
std::vector<Token> read_token_file(const std::string& path, std::int64_t vocab);
/// A text tokenised once, without recognising special tokens in it; one line feed at its end is dropped.
std::vector<Token> read_text_file(const std::string& path, const Tokenizer&);

}  // namespace llm::app
