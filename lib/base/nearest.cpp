#include "base/nearest.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace llm {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table [i][j]: the distance of a's first i characters and b's first j.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

namespace {

/// "schema" of "--json-schema": a whole word of it, or several, as they are written; of the first one a part is enough.
bool has_words(std::string_view name, std::string_view words) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  if (name.starts_with(words)) return true;
  const auto is_edge = [&](std::size_t at) { return at >= name.size() || name[at] == '-' || name[at] == '_'; };
  for (std::size_t at = name.find(words); at != std::string_view::npos; at = name.find(words, at + 1)) {
    if ((at == 0 || is_edge(at - 1)) && is_edge(at + words.size())) return true;
  }
  return false;
}

/// The shortest of those with such words; dashes before them do not count, nor do one or two letters.
std::string with_words(std::string_view given, std::span<const std::string> known) {
  constexpr std::size_t kTooFew = 3;
  given.remove_prefix(std::min(given.find_first_not_of('-'), given.size()));
  std::string best;
  for (const std::string& name : known) {
    const bool better = best.empty() || name.size() < best.size();
    if (given.size() >= kTooFew && better && has_words(name, given)) best = name;
  }
  return best;
}

}  // namespace

std::string nearest_name(std::string_view given, std::span<const std::string> known) {
  const auto same_letters = [&](const std::string& name) {
    return std::equal(name.begin(), name.end(), given.begin(), given.end(),
                      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  };
  const auto same = std::find_if(known.begin(), known.end(), same_letters);
  if (same != known.end()) return *same;
  constexpr std::size_t kFar = 3;
  std::string best;
  std::size_t least = std::min(kFar, given.size() / 2 + 1);
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(given, name);
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  if (best.empty() || least > 1) {
    if (std::string words = with_words(given, known); !words.empty()) return words;
  }
  return best;
}

}  // namespace llm
