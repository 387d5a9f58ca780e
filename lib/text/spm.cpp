// SentencePiece-style byte-pair encoding by scores: vocabulary model `llama`.
// Spaces are written as U+2581; of all neighbouring pieces whose joined text is a token the best scored join first;
// characters that are no token go through as byte tokens.
#include <algorithm>
#include <array>
#include <numeric>

#include "base/utf8.h"
#include "text/mapped_text.h"
#include "text/merge.h"
#include "text/space_cuts.h"
#include "text/token_table.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

class SpmTokenizer final : public Tokenizer {
 public:
  SpmTokenizer(Vocabulary, Warnings&);

 private:
  struct Call;
  enum class Prefix : std::uint8_t { None, Space };

  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token, std::string& out) const override;
  bool drops(std::uint8_t byte) const override {
    return vocabulary().special.unk == kNoToken && byte_token_[byte] == kNoToken;
  }

  void index_texts(Warnings&);
  void rank_scores();
  void append_escaped(const Fragment&, Prefix, MappedText& out) const;
  void encode_chunk(std::string_view chunk, Call&) const;
  void append_character(std::string_view character, std::size_t begin, TokenSink&) const;
  Token find(std::string_view text) const;

  TokenTable table_;
  std::size_t longest_ = 0;          ///< bytes of the longest token that text can become
  std::vector<std::uint32_t> rank_;  ///< [n_vocab] by falling score, equal scores equal
  std::array<Token, 256> byte_token_;
  SpaceCuts cuts_;
};

/// Memory of one encode call.
struct SpmTokenizer::Call {
  TokenSink& out;
  std::string_view text;  ///< escaped; chunks are views of it
  ChunkCache cache;
  SymbolMerger merger;
  std::vector<Symbol> symbols;
};

SpmTokenizer::SpmTokenizer(Vocabulary vocabulary, Warnings& warnings)
    : Tokenizer(std::move(vocabulary)), table_(n_vocab()), byte_token_(byte_tokens(this->vocabulary())) {
  index_texts(warnings);
  rank_scores();
}

void SpmTokenizer::index_texts(Warnings& warnings) {
  const Vocabulary& v = vocabulary();
  std::size_t duplicates = 0;
  std::string_view example;
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    const std::string_view text = v.text(id);
    if (text.empty()) continue;
    if (!table_.insert(id, v.texts)) {
      ++duplicates;
      example = text;
      continue;
    }
    if (!v.encodes_text(id)) continue;
    longest_ = std::max(longest_, text.size());
    cuts_.add_token(text);
  }
  warn_duplicates(duplicates, example, warnings);
}

void SpmTokenizer::rank_scores() {
  rank_.assign(n_vocab(), 0);
  const std::vector<float>& scores = vocabulary().scores;
  if (scores.empty()) return;
  std::vector<std::uint32_t> order(n_vocab());
  std::iota(order.begin(), order.end(), 0u);
  const auto better = [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; };
  // Most vocabularies are listed by falling score from somewhere near their front.
  if (!std::is_sorted(order.begin(), order.end(), better)) std::stable_sort(order.begin(), order.end(), better);
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    rank_[order[i]] = rank;
  }
}

Token SpmTokenizer::find(std::string_view text) const {
  if (text.size() > longest_) return kNoToken;
  const Token id = table_.find(text, vocabulary().texts);
  return id != kNoToken && vocabulary().encodes_text(id) ? id : kNoToken;
}

void SpmTokenizer::append_text(Token token, std::string& out) const {
  const std::string_view text = vocabulary().text(token);
  if (vocabulary().kind(token) == TokenKind::Byte) {
    out += static_cast<char>(byte_value(text));
  } else {
    append_unescaped(text, out);
  }
}

void SpmTokenizer::append_escaped(const Fragment& fragment, Prefix prefix, MappedText& out) const {
  const bool collapse = vocabulary().remove_extra_whitespaces;
  std::string_view text = fragment.text;
  std::size_t begin = fragment.begin;
  if (collapse) {
    const std::size_t leading = std::min(text.find_first_not_of(' '), text.size());
    begin += leading;
    text.remove_prefix(leading);
    text = text.substr(0, text.find_last_not_of(' ') + 1);
  }
  if (prefix == Prefix::Space) out.replace(kEscapedSpace, begin);
  if (!collapse) return llm::append_escaped(text, begin, out);
  while (!text.empty()) {  // words, one space between two
    const std::size_t word = std::min(text.find(' '), text.size());
    const std::size_t next = std::min(text.find_first_not_of(' ', word), text.size());
    out.copy(text.substr(0, word), begin);
    begin += next;
    if (word < text.size()) out.replace(kEscapedSpace, begin);
    text.remove_prefix(next);
  }
}

void SpmTokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  // All escaped text first: the cache keeps views of it.
  MappedText escaped(out);
  std::vector<std::size_t> ends;
  bool after_special = true;
  for (const Fragment& fragment : fragments) {
    const bool is_text = fragment.token == kNoToken;
    const bool prefix = vocabulary().add_space_prefix && after_special;
    if (is_text) append_escaped(fragment, prefix ? Prefix::Space : Prefix::None, escaped);
    if (!is_text) escaped.special(fragment.begin + fragment.text.size());
    ends.push_back(escaped.size());
    after_special = !is_text;
  }
  const std::string_view text = escaped.text();
  Call call{out, text, ChunkCache(text.size()), {}, {}};
  const std::size_t first = out.size();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (fragments[i].token != kNoToken) {
      out.push(fragments[i].token, ends[i]);
      begin = ends[i];
    }
    while (begin < ends[i]) {
      const std::size_t end = cuts_.chunk_end(text.substr(0, ends[i]), begin);
      encode_chunk(text.substr(begin, end - begin), call);
      begin = end;
    }
  }
  out.move_ends(first, [&](std::size_t end) { return escaped.source(end); });
}

void SpmTokenizer::encode_chunk(std::string_view chunk, Call& call) const {
  const std::uint64_t hash = hash_bytes(chunk);
  const auto begin = static_cast<std::size_t>(chunk.data() - call.text.data());
  if (call.cache.append_known(chunk, begin, hash, call.out)) return;
  call.symbols.clear();
  for (std::size_t at = 0; at < chunk.size();) {
    const utf8::Unit unit = utf8::unit_at(chunk, at);
    const std::size_t length = unit.form == utf8::Form::Valid ? unit.length : 1;
    call.symbols.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(length), kNoToken});
    at += length;
  }
  call.merger.run(call.symbols, [&](const Symbol& left, const Symbol& right) {
    const Token id = find(chunk.substr(left.begin, std::size_t{left.length} + right.length));
    return id == kNoToken ? Merge{} : Merge{rank_[static_cast<std::size_t>(id)], id};
  });
  const std::size_t start = call.out.size();
  for (const Symbol& symbol : call.symbols) {
    const std::size_t at = begin + symbol.begin;
    if (symbol.id != kNoToken) {
      call.out.push(symbol.id, at + symbol.length);
    } else {
      append_character(chunk.substr(symbol.begin, symbol.length), at, call.out);
    }
  }
  call.cache.remember(chunk, begin, hash, start, call.out);
}

/// A character that joined nothing: its own token, else its bytes, else the unknown token.
void SpmTokenizer::append_character(std::string_view character, std::size_t begin, TokenSink& out) const {
  if (const Token id = find(character); id != kNoToken) return out.push(id, begin + character.size());
  append_bytes(character, begin, byte_token_, vocabulary().special.unk, out);
}

}  // namespace

std::unique_ptr<Tokenizer> load_spm(const Metadata& metadata, Warnings& warnings) {
  const VocabularyDefaults defaults{.bos_text = "<s>", .eos_text = "</s>", .add_bos = true, .add_space_prefix = true};
  Vocabulary vocabulary = read_vocabulary(metadata, defaults, warnings);
  return std::make_unique<SpmTokenizer>(std::move(vocabulary), warnings);
}

}  // namespace llm
