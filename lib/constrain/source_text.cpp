#include "constrain/source_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace llm {

Character SourceText::character(std::size_t at) const {
  if (at_end(at)) fail(at, "it ends too early");
  const Character c = character_at(text_, at);
  if (c.bytes == 0) fail(at, "this is not UTF-8");
  return c;
}

std::size_t SourceText::line_begin(std::size_t at) const {
  const std::size_t feed = at == 0 ? std::string_view::npos : text_.rfind('\n', at - 1);
  return feed == std::string_view::npos ? 0 : feed + 1;
}

std::string SourceText::line_of(std::size_t at) const {
  return "line " + std::to_string(1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

void SourceText::fail(std::size_t at, const std::string& problem) const {
  at = std::min(at, text_.size());
  const std::size_t begin = line_begin(at);
  // Columns count characters: bytes that continue one are left out.
  const std::size_t column = 1 + utf8::count_characters(text_.substr(begin, at - begin));
  constexpr std::size_t kExcerpt = 40;
  const std::string_view rest = text_.substr(at, std::min(text_.find('\n', at), text_.size()) - at);
  ErrorParts parts;
  parts.file = file_;
  parts.subject = std::string(what_) + ", " + line_of(at) + ", column " + std::to_string(column);
  parts.problem = problem + (at == text_.size() ? ", at its end"
                             : rest.empty()     ? ", at the end of the line"
                                                : ", at \"" + escaped(rest, kExcerpt) + "\"");
  throw Error(ErrorKind::Notation, std::move(parts));
}

}  // namespace llm
