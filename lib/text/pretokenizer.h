// Pre-tokenizers: how byte-level vocabularies cut a text into chunks that are encoded one by one.
// To add one: a row in the table of pretokenizer.cpp.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/newer_characters.h"
#include "text/pattern.h"

namespace llm {

enum class WordRule : std::uint8_t {
  Merge,         ///< a chunk is built up by merges, always
  WholeIfToken,  ///< a chunk that is a token is that token, whatever the merges would make of it
};

enum class BosRule : std::uint8_t { None, Add };  ///< where the file has no add_bos_token

/// How a vocabulary spells text.
enum class TextForm : std::uint8_t {
  Bytes,                       ///< one character of byte_map.h for each byte
  Characters,                  ///< as it is
  CharactersAndEscapedSpaces,  ///< as it is, but U+2581 for a space
};

struct PreTokenizerRule {
  std::string_view names;  ///< values of tokenizer.ggml.pre, a blank between two
  /// Each one cuts the chunks that those before it left: its matches and what is between them become chunks. Unused
  /// ones are empty.
  std::array<std::string_view, 6> patterns;
  WordRule words = WordRule::Merge;
  BosRule bos = BosRule::None;
  TextForm form = TextForm::Bytes;
};

/// nullptr if no row has this name.
const PreTokenizerRule* find_pretokenizer(std::string_view name);

std::vector<std::string_view> known_pretokenizers();

/// The known names that look most like `name`, best first.
std::vector<std::string_view> nearest_pretokenizers(std::string_view name, std::size_t count);

class PreTokenizer {
 public:
  explicit PreTokenizer(const PreTokenizerRule&);

  /// Calls `use(chunk)` for the chunks of a text from left to right. Bytes that are not UTF-8 are chunks of their own.
  template <class Use>
  void split(std::string_view text, PatternScratch& scratch, Use&& use) const {
    while (!text.empty()) {
      const std::size_t good = utf8::valid_prefix(text);
      cut_valid(text.substr(0, good), scratch, use);
      std::size_t bad = good;
      while (bad < text.size() && utf8::unit_at(text, bad).form != utf8::Form::Valid) {
        bad += utf8::unit_at(text, bad).length;
      }
      if (bad > good) use(text.substr(good, bad - good));
      text.remove_prefix(bad);
    }
  }

 private:
  /// Where the matcher may not know a character, it sees an older one.
  template <class Use>
  void cut_valid(std::string_view text, PatternScratch& scratch, Use& use) const {
    const std::optional<std::string> older = with_older_characters(text);
    if (!older) return cut(text, 0, scratch, use);
    const auto use_own = [&](std::string_view chunk) {
      use(text.substr(static_cast<std::size_t>(chunk.data() - older->data()), chunk.size()));
    };
    cut(std::string_view(*older), 0, scratch, use_own);
  }

  template <class Use>
  void cut(std::string_view text, std::size_t level, PatternScratch& scratch, Use& use) const {
    if (text.empty()) return;
    if (level == patterns_.size()) return use(text);
    std::size_t begin = 0, from = 0;
    while (from < text.size()) {
      const auto match = patterns_[level].find(text, from, scratch);
      if (!match) break;
      cut(text.substr(begin, match->begin - begin), level + 1, scratch, use);
      cut(text.substr(match->begin, match->end - match->begin), level + 1, scratch, use);
      begin = match->end;
      from = begin;
      if (match->end == match->begin && from < text.size())
        from += utf8::unit_at(text, from).length;  // a bare position
    }
    cut(text.substr(begin), level + 1, scratch, use);
  }

  std::vector<Pattern> patterns_;
};

}  // namespace llm
