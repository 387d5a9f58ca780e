#include "common/columns.h"

#include <locale.h>

#include <algorithm>
#include <cwchar>

#include "base/error.h"
#include "base/utf8.h"

namespace llm::app {
namespace {

/// The code point at the front, or the replacement that stands for what is none.
struct Character {
  std::size_t bytes;
  char32_t code;
};
Character first_character(std::string_view text) {
  const utf8::Unit unit = utf8::unit_at(text, 0);
  const bool valid = unit.form == utf8::Form::Valid;
  return {unit.length, utf8::code_point(valid ? text.substr(0, unit.length) : utf8::kReplacement)};
}

}  // namespace

int columns_of(char32_t c) {
  // The program's own locale may be one of single bytes.
  static const locale_t utf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (utf8 == nullptr) return 1;
  const locale_t before = ::uselocale(utf8);
  const int columns = ::wcwidth(static_cast<wchar_t>(c));
  ::uselocale(before);
  return std::max(0, columns);
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character c = first_character(text);
    columns += static_cast<std::size_t>(columns_of(c.code));
    text.remove_prefix(c.bytes);
  }
  return columns;
}

std::string_view fitting_prefix(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t used = 0; end < text.size();) {
    const Character c = first_character(text.substr(end));
    used += static_cast<std::size_t>(columns_of(c.code));
    if (used > columns) break;
    end += c.bytes;
  }
  return text.substr(0, end);
}

std::string escaped_to_fit(std::string_view text, std::size_t columns) {
  constexpr std::size_t kMostBytes = 4;  // of a character in a column
  // As many bytes as fit: what escaped() cuts is whole characters, escapes among them.
  std::size_t fits = 3, too_many = kMostBytes * columns + 1;
  while (too_many - fits > 1) {
    const std::size_t bytes = (fits + too_many) / 2;
    (columns_of(escaped(text, bytes)) <= columns ? fits : too_many) = bytes;
  }
  return escaped(text, fits);
}

std::string folded(std::string_view text, std::size_t width, std::size_t indent) {
  std::string lines;
  while (!text.empty()) {
    if (!lines.empty()) lines += "\n" + std::string(indent, ' ');
    std::size_t end = fitting_prefix(text, width - indent).size();
    if (end == 0) end = first_character(text).bytes;  // wider than a line
    const std::size_t mark = text.substr(0, end).find_last_of(" ,;");
    if (end < text.size() && mark != std::string_view::npos) end = mark + 1;
    lines += text.substr(0, end);
    text.remove_prefix(end);
  }
  return lines;
}

std::string columned(std::span<const std::string> words, std::size_t width) {
  constexpr std::size_t kGap = 2;
  std::size_t widest = 1;
  for (const std::string& word : words) widest = std::max(widest, columns_of(word));
  const std::size_t across = std::max<std::size_t>(1, (width + kGap) / (widest + kGap));
  const std::size_t rows = (words.size() + across - 1) / across;
  std::string text;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = row; i < words.size(); i += rows) {
      text += words[i];
      if (i + rows < words.size()) text += std::string(widest + kGap - columns_of(words[i]), ' ');
    }
    text += "\n";
  }
  return text;
}

}  // namespace llm::app
