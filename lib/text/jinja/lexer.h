// A template's text as tokens, with the white space that its tags take away already gone: Jinja's lexer with
// trim_blocks and lstrip_blocks on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/source.h"
#include "text/jinja/value.h"

namespace llm::jinja {

enum class TokenType : std::uint8_t {
  Data,  ///< text between tags
  BlockBegin,
  BlockEnd,
  VariableBegin,
  VariableEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,  ///< `text` says which
  End,
};

struct Token {
  TokenType type;
  std::size_t offset;     ///< in the source
  std::string_view text;  ///< of the source
  Value value;            ///< of a String, an Integer or a Float
};

/// Throws ErrorKind::Notation. The last token is End.
std::vector<Token> tokenize(const Source&);

}  // namespace llm::jinja
