#include "text/special_matcher.h"

#include <algorithm>

namespace llm {
namespace {

std::size_t byte(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

bool is_special(TokenKind kind) {
  return kind == TokenKind::Control || kind == TokenKind::Unknown || kind == TokenKind::UserDefined;
}

}  // namespace

SpecialMatcher::SpecialMatcher(const Vocabulary& vocabulary) {
  for (Token id = 0; id < static_cast<Token>(vocabulary.size()); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    if (!is_special(kind) || vocabulary.text(id).empty()) continue;
    specials_.push_back({vocabulary.text(id), id, kind == TokenKind::UserDefined, vocabulary.is_markup(id)});
  }
  std::stable_sort(specials_.begin(), specials_.end(),
                   [](const Special& a, const Special& b) { return a.text < b.text; });
  const auto same = [](const Special& a, const Special& b) { return a.text == b.text; };
  specials_.erase(std::unique(specials_.begin(), specials_.end(), same), specials_.end());  // the first id stays
  for (const Special& s : specials_) {
    first_byte_.set(byte(s.text, 0));
    if (s.text.size() == 1) {
      one_byte_.set(byte(s.text, 0));
    } else {
      first_two_bytes_.set(byte(s.text, 0) << 8 | byte(s.text, 1));
    }
  }
}

SpecialMatcher::Match SpecialMatcher::next(std::string_view text, std::size_t from, std::span<const TextSpan>& plain,
                                           PlainStretches found) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    const std::size_t first = byte(text, at);
    if (!first_byte_[first]) continue;
    const bool two = at + 1 < text.size() && first_two_bytes_[first << 8 | byte(text, at + 1)];
    if (!two && !one_byte_[first]) continue;
    const auto passed = [at](const TextSpan& s) { return s.end <= at || s.begin == s.end; };
    while (!plain.empty() && passed(plain.front())) plain = plain.subspan(1);
    const Match match = longest_at(text, at, plain.empty() ? text.size() : plain.front().begin, found);
    if (match.token != kNoToken) return match;
  }
  return {text.size(), 0, kNoToken};
}

/// `markup_end`: where the text that may hold markup ends; a place before `at` if it does not begin there.
SpecialMatcher::Match SpecialMatcher::longest_at(std::string_view text, std::size_t at, std::size_t markup_end,
                                                 PlainStretches found) const {
  Match best{at, 0, kNoToken};
  // The tokens that agree with the text so far are a range of the sorted list; each further byte narrows it.
  auto low = specials_.begin(), high = specials_.end();
  for (std::size_t depth = 0; at + depth < text.size(); ++depth) {
    const std::size_t want = byte(text, at + depth);
    const auto at_depth = [depth](const Special& s) { return byte(s.text, depth); };
    low = std::partition_point(low, high, [&](const Special& s) { return at_depth(s) < want; });
    high = std::partition_point(low, high, [&](const Special& s) { return at_depth(s) == want; });
    if (low == high) break;
    if (low->text.size() == depth + 1) {  // sorts first among those that it is a prefix of
      const bool anywhere = found == PlainStretches::NoMarkup ? !low->markup : low->user_defined;
      if (anywhere || at + depth + 1 <= markup_end) best = {at, depth + 1, low->token};
      ++low;
    }
  }
  return best;
}

}  // namespace llm
