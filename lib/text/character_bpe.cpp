// Byte-pair encoding with merges over characters: vocabulary models `gemma4` and `whitespace`, and the pre-tokenizers
// of `gpt2` whose token strings are text as it is. Spaces may be written as U+2581; characters that are no token go
// through as byte tokens. Without patterns the whole text is one chunk.
#include <array>

#include "base/utf8.h"
#include "text/mapped_text.h"
#include "text/merge.h"
#include "text/merge_reader.h"
#include "text/pretokenizer_choice.h"
#include "text/space_cuts.h"
#include "text/unicode.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

/// What happens to white space and capitals before the text is split.
enum class Preparation : std::uint8_t {
  None,
  DropSpaces,          ///< white space separates words and is no token
  DropSpacesAndLower,  ///< and letters become small ones
};

class CharacterBpeTokenizer final : public Tokenizer {
 public:
  CharacterBpeTokenizer(const Metadata&, Vocabulary, const ChosenRule&, Preparation, Warnings&);

 private:
  struct Call;

  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token, std::string& out) const override;
  std::string details() const override { return ", pre-tokenizer " + pre_name_; }

  void index_texts(Warnings&);
  void encode_text(const Fragment&, MappedText&, std::vector<std::size_t>& cuts) const;
  void encode_part(std::string_view part, Call&) const;
  void encode_chunk(std::string_view chunk, Call&) const;
  void append_symbol(std::string_view text, const Symbol&, std::size_t begin, TokenSink&) const;

  std::string pre_name_;
  bool escapes_spaces_;
  WordRule words_;
  Preparation preparation_;
  PreTokenizer splitter_;
  TokenTable table_;
  std::size_t duplicates_ = 0;
  std::array<Token, 256> byte_token_;
  SpaceCuts cuts_;
  MergeTable merges_;
};

/// Memory of one encode call.
struct CharacterBpeTokenizer::Call {
  TokenSink& out;
  std::string_view text;  ///< prepared; chunks are views of it
  ChunkCache cache;
  PatternScratch scratch;
  SymbolMerger merger;
  std::vector<Symbol> symbols;
};

CharacterBpeTokenizer::CharacterBpeTokenizer(const Metadata& metadata, Vocabulary vocabulary, const ChosenRule& chosen,
                                             Preparation preparation, Warnings& warnings)
    : Tokenizer(std::move(vocabulary)),
      pre_name_(chosen.name),
      escapes_spaces_(chosen.rule.form == TextForm::CharactersAndEscapedSpaces),
      words_(chosen.rule.words),
      preparation_(preparation),
      splitter_(chosen.rule),
      table_(n_vocab()),
      byte_token_(byte_tokens(this->vocabulary())) {
  index_texts(warnings);
  const auto equal = duplicates_ == 0 ? MergeReader::Texts::AllDifferent : MergeReader::Texts::SomeEqual;
  merges_ = MergeReader(this->vocabulary(), this->vocabulary().texts, table_, chosen.rule.form, equal)
                .read(metadata, warnings);
}

void CharacterBpeTokenizer::index_texts(Warnings& warnings) {
  const Vocabulary& v = vocabulary();
  std::string_view example;
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    const std::string_view text = v.text(id);
    if (text.empty()) continue;
    if (!table_.insert(id, v.texts)) {
      ++duplicates_;
      example = text;
    } else if (v.encodes_text(id)) {
      cuts_.add_token(text);
    }
  }
  warn_duplicates(duplicates_, example, warnings);
}

void CharacterBpeTokenizer::append_text(Token token, std::string& out) const {
  const std::string_view text = vocabulary().text(token);
  if (vocabulary().kind(token) == TokenKind::Byte) {
    out += static_cast<char>(byte_value(text));
  } else if (escapes_spaces_) {
    append_unescaped(text, out);
  } else {
    out += text;
  }
}

/// Appends a fragment as the vocabulary spells it, and where it is cut whatever the patterns say.
void CharacterBpeTokenizer::encode_text(const Fragment& fragment, MappedText& out,
                                        std::vector<std::size_t>& cuts) const {
  if (preparation_ == Preparation::None) {
    if (escapes_spaces_) {
      append_escaped(fragment.text, fragment.begin, out);
    } else {
      out.copy(fragment.text, fragment.begin);
    }
  } else {
    for (std::size_t at = 0; at < fragment.text.size();) {
      const utf8::Unit unit = utf8::unit_at(fragment.text, at);
      const std::string_view bytes = fragment.text.substr(at, unit.length);
      at += unit.length;
      const bool valid = unit.form == utf8::Form::Valid;
      if (valid && unicode::is_white_space(utf8::code_point(bytes))) {
        cuts.push_back(out.size());
      } else if (valid && preparation_ == Preparation::DropSpacesAndLower) {
        out.replace(utf8::encoded(unicode::to_lower(utf8::code_point(bytes))), fragment.begin + at);
      } else {
        out.copy(bytes, fragment.begin + at - bytes.size());
      }
    }
  }
  cuts.push_back(out.size());
}

void CharacterBpeTokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  // All text first: the cache keeps views of it.
  MappedText mapped(out);
  std::vector<std::size_t> cuts, n_cuts;
  for (const Fragment& fragment : fragments) {
    if (fragment.token == kNoToken) encode_text(fragment, mapped, cuts);
    if (fragment.token != kNoToken) mapped.special(fragment.begin + fragment.text.size());
    n_cuts.push_back(cuts.size());
  }
  Call call{out, mapped.text(), ChunkCache(mapped.size()), {}, {}, {}};
  const std::size_t first = out.size();
  std::size_t begin = 0, cut = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (fragments[i].token != kNoToken) out.push(fragments[i].token, ++begin);
    for (; cut < n_cuts[i]; ++cut) {
      encode_part(call.text.substr(begin, cuts[cut] - begin), call);
      begin = cuts[cut];
    }
  }
  out.move_ends(first, [&](std::size_t end) { return mapped.source(end); });
}

void CharacterBpeTokenizer::encode_part(std::string_view part, Call& call) const {
  splitter_.split(part, call.scratch, [&](std::string_view piece) {
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t end = escapes_spaces_ ? cuts_.chunk_end(piece, begin) : piece.size();
      encode_chunk(piece.substr(begin, end - begin), call);
      begin = end;
    }
  });
}

void CharacterBpeTokenizer::encode_chunk(std::string_view chunk, Call& call) const {
  const auto begin = static_cast<std::size_t>(chunk.data() - call.text.data());
  const std::uint64_t hash = hash_bytes(chunk);
  if (call.cache.append_known(chunk, begin, hash, call.out)) return;
  const auto find = [&](std::string_view text) {
    const Token id = table_.find(text, vocabulary().texts);
    return id != kNoToken && vocabulary().encodes_text(id) ? id : kNoToken;
  };
  const std::size_t start = call.out.size();
  const Token whole = words_ == WordRule::WholeIfToken ? find(chunk) : kNoToken;
  if (whole != kNoToken) return call.out.push(whole, begin + chunk.size());
  call.symbols.clear();
  for (std::size_t at = 0; at < chunk.size();) {
    const utf8::Unit unit = utf8::unit_at(chunk, at);
    const std::size_t length = unit.form == utf8::Form::Valid ? unit.length : 1;
    call.symbols.push_back(
        {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(length), find(chunk.substr(at, length))});
    at += length;
  }
  call.merger.run(call.symbols,
                  [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  for (const Symbol& symbol : call.symbols) append_symbol(chunk, symbol, begin, call.out);
  call.cache.remember(chunk, begin, hash, start, call.out);
}

/// A token, else the bytes of a character that is none, else the unknown token.
void CharacterBpeTokenizer::append_symbol(std::string_view chunk, const Symbol& symbol, std::size_t begin,
                                          TokenSink& out) const {
  const std::size_t at = begin + symbol.begin, end = at + symbol.length;
  if (symbol.id != kNoToken) return out.push(symbol.id, end);
  const std::string_view bytes = chunk.substr(symbol.begin, symbol.length);
  append_bytes(bytes, at, byte_token_, vocabulary().special.unk, out);
}

}  // namespace

std::unique_ptr<Tokenizer> load_character_bpe(const Metadata& metadata, const ChosenRule& chosen, Warnings& warnings) {
  const VocabularyDefaults defaults{.add_bos = chosen.rule.bos == BosRule::Add};
  return std::make_unique<CharacterBpeTokenizer>(metadata, read_vocabulary(metadata, defaults, warnings), chosen,
                                                 Preparation::None, warnings);
}

std::unique_ptr<Tokenizer> load_gemma4(const Metadata& metadata, Warnings& warnings) {
  const ChosenRule chosen{*find_pretokenizer("gemma4"), "gemma4"};
  Vocabulary vocabulary = read_vocabulary(metadata, {.add_bos = true}, warnings);
  if (!vocabulary.special.add_bos && vocabulary.special.bos != kNoToken) {
    // Early conversions say no, but the model answers nonsense without it.
    warnings.push_back({"bos-added",
                        "tokenizer.ggml.add_bos_token is false, but vocabularies of model gemma4 begin "
                        "every text with BOS: added all the same"});
    vocabulary.special.add_bos = true;
  }
  return std::make_unique<CharacterBpeTokenizer>(metadata, std::move(vocabulary), chosen, Preparation::None, warnings);
}

std::unique_ptr<Tokenizer> load_whitespace(const Metadata& metadata, Warnings& warnings) {
  const ChosenRule chosen = metadata.has(kPreKey) ? choose_pretokenizer(metadata, warnings)
                                                  : ChosenRule{*find_pretokenizer("whitespace"), "whitespace"};
  if (chosen.rule.form != TextForm::Characters) {
    metadata.fail(kPreKey,
                  "\"" + escaped(chosen.name) + "\" with vocabulary model \"whitespace\"; required: whitespace");
  }
  const bool lower = metadata.get_or<bool>(kLowercaseKey, false);
  return std::make_unique<CharacterBpeTokenizer>(metadata, read_vocabulary(metadata, {}, warnings), chosen,
                                                 lower ? Preparation::DropSpacesAndLower : Preparation::DropSpaces,
                                                 warnings);
}

}  // namespace llm
