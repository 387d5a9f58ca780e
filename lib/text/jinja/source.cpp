#include "text/jinja/source.h"

#include <algorithm>

#include "text/jinja/str.h"

namespace llm::jinja {
namespace {

constexpr std::size_t kExcerptBefore = 30, kExcerptAfter = 40;  // bytes around the place

std::string normalized(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\r') {
      text += raw[i];
      continue;
    }
    text += '\n';
    if (i + 1 < raw.size() && raw[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

/// The line's text around the offset, cut between characters.
std::string excerpt(std::string_view text, std::size_t offset) {
  if (text.empty()) return {};
  const std::size_t before = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const std::size_t line = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = std::min(text.find('\n', offset), text.size());
  std::size_t from = std::max(line, offset - std::min(offset, kExcerptBefore));
  while (from > line && !begins_character(text[from])) --from;
  std::size_t to = std::min(end, offset + kExcerptAfter);
  while (to < end && !begins_character(text[to])) ++to;
  return escaped(text.substr(from, to - from), 200);
}

}  // namespace

Source::Source(TemplateName n, std::string_view raw) : name(std::move(n)), text(normalized(raw)) {}

ErrorParts Source::error_at(std::size_t offset, std::string_view message) const {
  offset = std::min(offset, text.size());
  const std::string_view before(text.data(), offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column =
      1 + count_characters(newline == std::string_view::npos ? before : before.substr(newline + 1));
  std::string subject = name.subject.empty() ? "" : name.subject + ", ";
  subject += "line " + std::to_string(line) + ", column " + std::to_string(column);
  std::string problem(message);
  if (const std::string around = excerpt(text, offset); !around.empty()) problem += "; at \"" + around + "\"";
  return {.file = name.file, .offset = {}, .subject = std::move(subject), .problem = std::move(problem)};
}

void Source::fail(std::size_t offset, std::string_view message) const {
  throw Error(ErrorKind::Notation, error_at(offset, message));
}

void Source::fail_limit(std::size_t offset, std::string_view what) const {
  throw LimitError(ErrorKind::Notation, error_at(offset, "template limit: too many or too large " + std::string(what)));
}

}  // namespace llm::jinja
