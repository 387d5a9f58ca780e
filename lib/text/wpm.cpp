// WordPiece: vocabulary model `bert`, as the BERT tokenizer of the transformers library defines it.
// Text is cleaned and cut at white space, punctuation and Chinese characters; a word becomes the longest tokens that
// it begins with, one after the other. The first token of a word begins with U+2581, the others do not.
#include "base/utf8.h"
#include "text/mapped_text.h"
#include "text/token_trie.h"
#include "text/unicode.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

constexpr std::size_t kMaxWordCharacters = 100;  ///< a longer one is unknown

enum class Accents : std::uint8_t { Kept, Stripped };
enum class Letters : std::uint8_t { Kept, Lowered };

class WpmTokenizer final : public Tokenizer {
 public:
  WpmTokenizer(Vocabulary, Letters, Accents, Warnings&);

 private:
  struct Words;

  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token token, std::string& out) const override { append_unescaped(vocabulary().text(token), out); }

  void add_text(const Fragment&, Words&) const;
  void add_character(char32_t, std::size_t end, Words&) const;
  void encode_word(std::string_view word, std::size_t begin, std::size_t characters, TokenSink&) const;

  Letters letters_;
  Accents accents_;
  TokenTrie starts_;  ///< without their U+2581
  TokenTrie rests_;
};

/// Words in the making.
struct WpmTokenizer::Words {
  const WpmTokenizer& tokenizer;
  TokenSink& out;
  MappedText text;
  std::size_t begin = 0, characters = 0;  ///< of the word that the text ends with
  std::u32string normalized = {};         ///< of one character

  void add(char32_t c, std::size_t end) {
    text.replace(utf8::encoded(c), end);
    ++characters;
  }
  void finish() {
    if (characters > 0) tokenizer.encode_word(text.text().substr(begin), begin, characters, out);
    begin = text.size();
    characters = 0;
  }
};

/// Written out as the published tokenizer has it, with its slip at U+2B920 (the block begins at U+2B820).
bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
}

bool is_dropped(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || unicode::is_other(c);
}

WpmTokenizer::WpmTokenizer(Vocabulary vocabulary, Letters letters, Accents accents, Warnings& warnings)
    : Tokenizer(std::move(vocabulary)), letters_(letters), accents_(accents) {
  const Vocabulary& v = this->vocabulary();
  std::vector<std::pair<std::string_view, Token>> starts, rests;
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    if (!v.encodes_text(id)) continue;
    std::string_view text = v.text(id);
    const bool starts_word = text.starts_with(kEscapedSpace) && text.size() > kEscapedSpace.size();
    if (starts_word) text.remove_prefix(kEscapedSpace.size());
    (starts_word ? starts : rests).push_back({text, id});
  }
  starts_ = TokenTrie(std::move(starts));
  rests_ = TokenTrie(std::move(rests));
  warn_duplicates(v, warnings);
}

void WpmTokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  Words words{*this, out, MappedText(out)};
  const std::size_t first = out.size();
  for (const Fragment& fragment : fragments) {
    if (fragment.token == kNoToken) {
      add_text(fragment, words);
      words.finish();
    } else {
      words.text.special(fragment.begin + fragment.text.size());
      out.push(fragment.token, words.begin = words.text.size());
    }
  }
  out.move_ends(first, [&](std::size_t end) { return words.text.source(end); });
}

void WpmTokenizer::add_text(const Fragment& fragment, Words& words) const {
  for (std::size_t at = 0; at < fragment.text.size();) {
    const utf8::Unit unit = utf8::unit_at(fragment.text, at);
    const std::string_view bytes = fragment.text.substr(at, unit.length);
    at += unit.length;
    if (unit.form != utf8::Form::Valid) continue;
    const char32_t c = utf8::code_point(bytes);
    if (is_dropped(c)) continue;
    const bool alone = is_chinese(c);
    if (alone) words.finish();
    add_character(c, fragment.begin + at, words);
    if (alone) words.finish();
  }
}

void WpmTokenizer::add_character(char32_t given, std::size_t end, Words& words) const {
  std::u32string& normalized = words.normalized;
  normalized.clear();
  if (accents_ == Accents::Stripped && given >= 0x80) {
    unicode::append_decomposed(given, normalized);
    std::erase_if(normalized, unicode::is_nonspacing_mark);
  } else {
    normalized += given;
  }
  for (char32_t c : normalized) {
    if (unicode::is_white_space(c)) {
      words.finish();
      continue;
    }
    const bool capital_i_with_dot = c == 0x130;  // the only small letter that is two characters: i and U+0307
    if (letters_ == Letters::Lowered) c = capital_i_with_dot ? U'i' : unicode::to_lower(c);
    const bool alone = is_ascii_punctuation(c) || unicode::is_punctuation(c);
    if (alone) words.finish();
    words.add(c, end);
    if (letters_ == Letters::Lowered && capital_i_with_dot) words.add(0x307, end);
    if (alone) words.finish();
  }
}

void WpmTokenizer::encode_word(std::string_view word, std::size_t begin, std::size_t characters, TokenSink& out) const {
  std::vector<TokenTrie::Match> matches;
  std::size_t at = 0;
  while (at < word.size() && characters <= kMaxWordCharacters) {
    const TokenTrie::Match match = (at == 0 ? starts_ : rests_).longest(word.substr(at));
    if (match.token == kNoToken) break;
    matches.push_back(match);
    at += match.length;
  }
  if (at < word.size()) {
    if (vocabulary().special.unk != kNoToken) out.push(vocabulary().special.unk, begin + word.size());
    return;
  }
  for (const TokenTrie::Match& match : matches) out.push(match.token, begin += match.length);
}

}  // namespace

std::unique_ptr<Tokenizer> load_wpm(const Metadata& metadata, Warnings& warnings) {
  const VocabularyDefaults defaults{.bos_text = "[CLS]", .unk_text = "[UNK]", .sep_text = "[SEP]"};
  Vocabulary v = read_vocabulary(metadata, defaults, warnings);
  // A text stands between [CLS] and [SEP], whatever the flags say.
  v.special.eos = v.special.sep;
  v.special.add_bos = v.special.bos != kNoToken;
  v.special.add_eos = v.special.eos != kNoToken;
  v.add_space_prefix = true;  // the first word begins with U+2581 like the others
  const bool lower = metadata.get_or<bool>(kLowercaseKey, true);
  const bool strip = metadata.get_or<bool>(kStripAccentsKey, lower);
  return std::make_unique<WpmTokenizer>(std::move(v), lower ? Letters::Lowered : Letters::Kept,
                                        strip ? Accents::Stripped : Accents::Kept, warnings);
}

}  // namespace llm
