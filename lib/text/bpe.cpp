// Byte-level byte-pair encoding with merges: vocabulary model `gpt2`.
// Token strings are in the characters of byte_map.h; here they are kept as the bytes that they stand for.
#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "text/byte_map.h"
#include "text/dna.h"
#include "text/merge.h"
#include "text/merge_reader.h"
#include "text/pretokenizer_choice.h"
#include "text/token_table.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

/// Whether the merges make a token out of its own text, so that a chunk equal to it need not be merged.
enum class Whole : std::uint8_t { NotYetKnown, Yes, No };

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(const Metadata&, Vocabulary, const PreTokenizerRule&, std::string_view pre_name, Warnings&);

 private:
  struct Call;

  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token, std::string& out) const override;
  bool drops(std::uint8_t byte) const override { return unknown_ == kNoToken && byte_token_[byte] == kNoToken; }
  std::string details() const override { return ", pre-tokenizer " + pre_name_; }

  void decode_texts(Warnings&);
  void encode_fragment(const Fragment&, Call&) const;
  void encode_chunk(std::string_view chunk, std::size_t begin, Call&) const;
  void merge(std::string_view chunk, Call&) const;
  bool is_whole(Token, Call&) const;

  std::string pre_name_;
  PreTokenizer splitter_;
  std::string arena_;                    ///< the bytes of all tokens
  std::vector<std::string_view> bytes_;  ///< [n_vocab] views of arena_; empty for texts outside of the byte map
  std::size_t duplicates_ = 0;           ///< token strings that are there more than once
  TokenTable table_;                     ///< of bytes_, without special tokens
  std::array<Token, 256> byte_token_;
  Token unknown_ = kNoToken;  ///< for bytes that no token expresses; never a control token, which some files name so
  MergeTable merges_;
  std::optional<DnaVocabulary> dna_;             ///< of model hybriddna
  std::unique_ptr<std::atomic<Whole>[]> whole_;  ///< [n_vocab], filled in as tokens are met; any thread finds the same
};

/// Memory of one encode call.
struct BpeTokenizer::Call {
  TokenSink& out;
  ChunkCache cache;
  PatternScratch scratch;
  SymbolMerger merger;
  std::vector<Symbol> symbols;
};

/// Tokens of other kinds are found as they are written or not at all: user text never becomes one of them, even if
/// merges could reach it.
bool spells_bytes(const Vocabulary& v, Token id) { return v.encodes_text(id) && v.kind(id) != TokenKind::UserDefined; }

/// Whether people's texts have it, so that its loss is worth a word. Falcon's vocabulary lacks most control characters,
/// and StarCoder's 0xf1, which begins characters of planes that Unicode has assigned none in, as 0xf2 does; 0xc0, 0xc1
/// and those from 0xf5 on are not in UTF-8.
bool is_common(std::size_t byte) {
  const bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r';
  return !control && byte != 0x7f && byte != 0xc0 && byte != 0xc1 && byte != 0xf1 && byte != 0xf2 && byte < 0xf5;
}

void warn_of_missing_bytes(const std::array<Token, 256>& tokens, Warnings& warnings) {
  std::size_t missing = 0;
  char first = 0;
  for (std::size_t b = tokens.size(); b-- > 0;) {
    if (tokens[b] == kNoToken && is_common(b)) ++missing, first = static_cast<char>(b);
  }
  if (missing == 0) return;
  const std::string from = escaped({&first, 1});
  warnings.push_back({"missing-bytes", std::string(kTokensKey) + ": no token stands for " + counted(missing, "byte") +
                                           " (from \"" + from +
                                           "\" on), and there is no unknown token: texts lose them"});
}

BpeTokenizer::BpeTokenizer(const Metadata& metadata, Vocabulary vocabulary, const PreTokenizerRule& rule,
                           std::string_view pre_name, Warnings& warnings)
    : Tokenizer(std::move(vocabulary)), pre_name_(pre_name), splitter_(rule), table_(n_vocab()) {
  decode_texts(warnings);
  const auto equal = duplicates_ == 0 ? MergeReader::Texts::AllDifferent : MergeReader::Texts::SomeEqual;
  merges_ = MergeReader(this->vocabulary(), bytes_, table_, TextForm::Bytes, equal).read(metadata, warnings);
  const Token unk = this->vocabulary().special.unk;
  if (unk != kNoToken && this->vocabulary().kind(unk) == TokenKind::Unknown) unknown_ = unk;
  if (unknown_ == kNoToken) warn_of_missing_bytes(byte_token_, warnings);
  if (this->vocabulary().model == "hybriddna") dna_ = DnaVocabulary::find(this->vocabulary());
  whole_ = std::make_unique<std::atomic<Whole>[]>(n_vocab());
  const Whole text_token = rule.words == WordRule::WholeIfToken ? Whole::Yes : Whole::NotYetKnown;
  for (std::size_t i = 0; i < n_vocab(); ++i) whole_[i].store(text_token, std::memory_order_relaxed);
}

void BpeTokenizer::decode_texts(Warnings& warnings) {
  const std::vector<std::string_view>& texts = vocabulary().texts;
  std::size_t total = 0;
  for (const std::string_view text : texts) total += text.size();
  arena_.reserve(total);  // no character stands for more bytes than it takes: the views below stay valid
  bytes_.resize(texts.size());

  TokenTable unmapped;  // texts outside of the byte map, special ones as a rule: only looked at for duplicates
  std::vector<Token> rest;
  std::string_view example;
  const auto insert = [&](TokenTable& table, Token id, TokenTable::Texts keys) {
    if (table.insert(id, keys)) return;
    ++duplicates_;
    example = vocabulary().text(id);
  };
  for (Token id = 0; id < static_cast<Token>(texts.size()); ++id) {
    const std::string_view text = vocabulary().text(id);
    if (text.empty()) continue;
    const std::size_t start = arena_.size();
    if (spells_bytes(vocabulary(), id) && byte_map::append_bytes(text, arena_)) {
      bytes_[static_cast<std::size_t>(id)] = {arena_.data() + start, arena_.size() - start};
      insert(table_, id, bytes_);
    } else {
      rest.push_back(id);
    }
  }
  unmapped = TokenTable(rest.size());
  for (const Token id : rest) insert(unmapped, id, texts);
  warn_duplicates(duplicates_, example, warnings);

  byte_token_ = byte_tokens(vocabulary());
  for (unsigned b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    if (const Token id = table_.find({&c, 1}, bytes_); id != kNoToken) byte_token_[b] = id;
  }
}

void BpeTokenizer::append_text(Token token, std::string& out) const {
  if (dna_ && vocabulary().text(token).ends_with(kSixBasesMark)) {
    out += vocabulary().text(token).substr(0, vocabulary().text(token).size() - kSixBasesMark.size());
    return;
  }
  if (vocabulary().kind(token) == TokenKind::Byte) {
    out += static_cast<char>(byte_value(vocabulary().text(token)));
    return;
  }
  const std::string_view bytes = bytes_[static_cast<std::size_t>(token)];
  out += bytes.empty() ? vocabulary().text(token) : bytes;
}

void BpeTokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  std::size_t total = 0;
  for (const Fragment& fragment : fragments) total += fragment.text.size();
  Call call{out, ChunkCache(total), {}, {}, {}};
  for (const Fragment& fragment : fragments) {
    if (dna_ && fragment.token == kNoToken) {
      for (const auto& [bytes, token] : dna_->split(fragment.text)) {
        encode_fragment(
            {fragment.text.substr(bytes.begin, bytes.end - bytes.begin), token, fragment.begin + bytes.begin}, call);
      }
    } else {
      encode_fragment(fragment, call);
    }
  }
}

void BpeTokenizer::encode_fragment(const Fragment& fragment, Call& call) const {
  if (fragment.token != kNoToken) return call.out.push(fragment.token, fragment.begin + fragment.text.size());
  std::size_t begin = fragment.begin;
  splitter_.split(fragment.text, call.scratch, [&](std::string_view chunk) {
    encode_chunk(chunk, begin, call);
    begin += chunk.size();
  });
}

/// `begin`: where the chunk is in the text.
void BpeTokenizer::encode_chunk(std::string_view chunk, std::size_t begin, Call& call) const {
  const std::uint64_t hash = hash_bytes(chunk);
  const Token token = table_.find(chunk, hash, bytes_);
  if (token != kNoToken && is_whole(token, call)) {
    call.out.push(token, begin + chunk.size());
    return;
  }
  if (call.cache.append_known(chunk, begin, hash, call.out)) return;
  const std::size_t start = call.out.size();
  merge(chunk, call);
  for (const Symbol& symbol : call.symbols) {
    const Token id = symbol.id != kNoToken ? symbol.id : unknown_;
    // Else a byte that the vocabulary cannot express.
    if (id != kNoToken) call.out.push(id, begin + symbol.begin + symbol.length);
  }
  call.cache.remember(chunk, begin, hash, start, call.out);
}

void BpeTokenizer::merge(std::string_view chunk, Call& call) const {
  call.symbols.clear();
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    call.symbols.push_back({static_cast<std::uint32_t>(i), 1, byte_token_[static_cast<std::uint8_t>(chunk[i])]});
  }
  call.merger.run(call.symbols,
                  [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
}

bool BpeTokenizer::is_whole(Token token, Call& call) const {
  std::atomic<Whole>& known = whole_[static_cast<std::size_t>(token)];
  Whole whole = known.load(std::memory_order_relaxed);
  if (whole == Whole::NotYetKnown) {
    merge(bytes_[static_cast<std::size_t>(token)], call);
    whole = call.symbols.size() == 1 && call.symbols[0].id == token ? Whole::Yes : Whole::No;
    known.store(whole, std::memory_order_relaxed);
  }
  return whole == Whole::Yes;
}

}  // namespace

std::unique_ptr<Tokenizer> load_bpe(const Metadata& metadata, Warnings& warnings) {
  const ChosenRule chosen = choose_pretokenizer(metadata, warnings);
  if (chosen.rule.form != TextForm::Bytes) return load_character_bpe(metadata, chosen, warnings);
  const VocabularyDefaults defaults{.eos_text = "<|endoftext|>", .add_bos = chosen.rule.bos == BosRule::Add};
  Vocabulary vocabulary = read_vocabulary(metadata, defaults, warnings);
  return std::make_unique<BpeTokenizer>(metadata, std::move(vocabulary), chosen.rule, chosen.name, warnings);
}

}  // namespace llm
