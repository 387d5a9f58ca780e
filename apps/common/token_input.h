// A text as tokens of a model, or the tokens themselves from a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace llm::app {

/// Ids from a file: a JSON array, or numbers between white space. Throws ErrorKind::Usage.
std::vector<Token> read_token_file(const std::string& path, std::int64_t vocab);
/// A text tokenised once, without recognising special tokens in it; one line feed at its end is dropped.
std::vector<Token> read_text_file(const std::string& path, const Tokenizer&);

/// "the vocabulary has no token for 2 bytes, "\x04" and "\xf1"", where the encoding of a text has lost them; else
/// empty.
std::string lost_bytes_text(std::string_view text, std::span<const Token> ids, const Tokenizer&);
/// A warning of it; `what` is the text's name.
void warn_of_lost_bytes(const std::string& what, std::string_view text, std::span<const Token> ids, const Tokenizer&);

/// How many stretches of `size` tokens a text of `tokens` has, at most `most` (0: any number); what is left at the end
/// is not used. Throws ErrorKind::Usage if there is none; `noun` is what the program calls one.
std::int64_t count_stretches(std::int64_t tokens, std::int64_t size, std::int64_t most, std::string_view noun);

}  // namespace llm::app
