#include "common/escapes.h"

#include <charconv>

namespace llm::app {
namespace {

constexpr std::string_view kLetters = "nrt'\"\\", kMeanings = "\n\r\t'\"\\";

}  // namespace

std::string process_escapes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i + 1);
    if (text[i] != '\\' || rest.empty()) {
      out += text[i];
      continue;
    }
    const std::size_t letter = kLetters.find(rest[0]);
    if (letter != std::string_view::npos) {
      out += kMeanings[letter];
      ++i;
      continue;
    }
    unsigned char byte = 0;
    constexpr std::size_t kHexEnd = 3;  // x and two digits
    const bool hex = rest[0] == 'x' && rest.size() >= kHexEnd &&
                     std::from_chars(rest.data() + 1, rest.data() + kHexEnd, byte, 16).ptr == rest.data() + kHexEnd;
    if (hex) {
      out += static_cast<char>(byte);
      i += kHexEnd;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace llm::app
