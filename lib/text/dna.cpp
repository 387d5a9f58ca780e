#include "text/dna.h"

#include <algorithm>

namespace llm {
namespace {

constexpr std::string_view kOpen = "<dna>", kClose = "</dna>", kUnknownBases = "<oov>";
constexpr std::size_t kBases = 6;

}  // namespace

std::optional<DnaVocabulary> DnaVocabulary::find(const Vocabulary& v) {
  DnaVocabulary found;
  found.open_ = found.close_ = found.unknown_ = kNoToken;
  for (Token id = static_cast<Token>(v.size()) - 1; id >= 0; --id) {
    const std::string_view text = v.text(id);
    if (text == kUnknownBases) found.unknown_ = id;
    if (v.kind(id) == TokenKind::Control) continue;  // these are found, or not, as all control tokens are
    if (text == kOpen) found.open_ = id;
    if (text == kClose) found.close_ = id;
    if (text.size() == kBases + kSixBasesMark.size() && text.ends_with(kSixBasesMark)) {
      found.six_[std::string(text.substr(0, kBases))] = id;
    }
  }
  if (found.open_ == kNoToken || found.close_ == kNoToken || found.unknown_ == kNoToken) return std::nullopt;
  return found;
}

Token DnaVocabulary::six_bases(std::string_view bases) const {
  std::string key(bases);
  for (char& c : key) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  key.resize(kBases, 'A');
  const auto found = six_.find(key);
  return found == six_.end() ? unknown_ : found->second;
}

std::vector<DnaVocabulary::Part> DnaVocabulary::split(std::string_view text) const {
  std::vector<Part> parts;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t open = std::min(text.find(kOpen, at), text.size());
    if (open > at) parts.push_back({{at, open}, kNoToken});
    if (open == text.size()) break;
    at = open + kOpen.size();
    parts.push_back({{open, at}, open_});
    const std::size_t end = std::min(text.find(kClose, at), text.size());
    for (; at < end; at += std::min(kBases, end - at)) {
      const std::size_t n = std::min(kBases, end - at);
      parts.push_back({{at, at + n}, six_bases(text.substr(at, n))});
    }
    if (end == text.size()) break;
    at = end + kClose.size();
    parts.push_back({{end, at}, close_});
  }
  return parts;
}

}  // namespace llm
