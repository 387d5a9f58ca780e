#include "text/newer_characters.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace llm {
namespace {

struct NewerCharacters {
  char32_t first, last, like;
};
constexpr NewerCharacters kNewer[] = {
#include "text/newer_characters.inc"
};

/// 0 for a character that is not newer.
char32_t older(char32_t c) {
  const auto* after = std::upper_bound(std::begin(kNewer), std::end(kNewer), c,
                                       [](char32_t code, const NewerCharacters& n) { return code < n.first; });
  return after != std::begin(kNewer) && c <= std::prev(after)->last ? std::prev(after)->like : 0;
}

}  // namespace

std::optional<std::string> with_older_characters(std::string_view text) {
  constexpr unsigned char kThreeBytes = 0xE0, kFourBytes = 0xF0;  // the least first bytes; none is newer with fewer
  std::optional<std::string> changed;
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = lead >= kFourBytes ? 4 : lead >= kThreeBytes ? 3 : 1;  // or a byte of a shorter one
    if (length > 1) {
      if (const char32_t like = older(utf8::code_point(text.substr(at, length))); like != 0) {
        if (!changed) changed.emplace(text);
        changed->replace(at, length, utf8::encoded(like));
      }
    }
    at += length;
  }
  return changed;
}

}  // namespace llm
