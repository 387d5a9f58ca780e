// Unigram language models: vocabulary model `t5`. Text is normalised by the vocabulary's own map; of all ways to cut it
// into tokens the one with the best sum of scores is taken (Viterbi's algorithm).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "base/utf8.h"
#include "text/charsmap.h"
#include "text/mapped_text.h"
#include "text/merge.h"
#include "text/space_cuts.h"
#include "text/token_trie.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

constexpr double kUnknownPenalty = 10;  ///< below the worst score of a normal token

class UgmTokenizer final : public Tokenizer {
 public:
  UgmTokenizer(Vocabulary, Charsmap, Warnings&);

 private:
  struct Call;
  struct Best {
    double score;
    std::uint32_t length;  ///< bytes of the last token
    Token token;           ///< kNoToken: an unknown character
  };

  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token, std::string& out) const override;

  void index_texts();
  void normalize(const Fragment&, MappedText&) const;
  void encode_chunk(std::string_view chunk, Call&) const;
  void find_best(std::string_view chunk, Call&) const;
  void relax(std::string_view chunk, std::size_t at, std::vector<Best>& best) const;

  Charsmap charsmap_;
  TokenTrie trie_;
  std::vector<float> scores_;  ///< [n_vocab] as they count here
  double unknown_score_ = 0;
  std::array<Token, 256> byte_token_;
  SpaceCuts cuts_;
  bool cuts_at_spaces_ = false;  ///< U+2581 is a token, so that no run of unknown text goes past it
};

/// Memory of one encode call.
struct UgmTokenizer::Call {
  TokenSink& out;
  std::string_view text;  ///< normalised; chunks are views of it
  ChunkCache cache;
  std::vector<Best> best = {};  ///< [chunk.size() + 1] of the ways to cut what stands before each place
  std::vector<std::size_t> cuts = {};
};

UgmTokenizer::UgmTokenizer(Vocabulary vocabulary, Charsmap charsmap, Warnings& warnings)
    : Tokenizer(std::move(vocabulary)), charsmap_(std::move(charsmap)), byte_token_(byte_tokens(this->vocabulary())) {
  warn_duplicates(this->vocabulary(), warnings);
  index_texts();
}

void UgmTokenizer::index_texts() {
  const Vocabulary& v = vocabulary();
  scores_ = v.scores;
  scores_.resize(v.size(), 0);
  float worst = std::numeric_limits<float>::max();
  std::vector<std::pair<std::string_view, Token>> texts;
  for (Token id = 0; id < static_cast<Token>(v.size()); ++id) {
    const TokenKind kind = v.kind(id);
    const std::string_view text = v.text(id);
    if (!v.encodes_text(id) || kind == TokenKind::Unused || text.empty()) continue;
    float& score = scores_[static_cast<std::size_t>(id)];
    if (kind == TokenKind::UserDefined) score = 0;  // scores are logarithms: the best there is
    if (kind == TokenKind::Normal) worst = std::min(worst, score);
    texts.push_back({text, id});
    if (text == kEscapedSpace) cuts_at_spaces_ = true;
    cuts_.add_token(text);
  }
  trie_ = TokenTrie(std::move(texts));
  unknown_score_ = worst - kUnknownPenalty;
}

void UgmTokenizer::append_text(Token token, std::string& out) const {
  const std::string_view text = vocabulary().text(token);
  if (vocabulary().kind(token) == TokenKind::Byte) {
    out += static_cast<char>(byte_value(text));
  } else {
    append_unescaped(text, out);
  }
}

/// Characters by the map, then spaces: escaped, one before the first word if the vocabulary wants it, runs of them made
/// one and those at either end dropped if it wants that.
void UgmTokenizer::normalize(const Fragment& fragment, MappedText& out) const {
  const bool collapse = vocabulary().remove_extra_whitespaces;
  bool space_due = vocabulary().add_space_prefix, in_front = true;
  for (std::size_t at = 0; at < fragment.text.size();) {
    const std::string_view rest = fragment.text.substr(at);
    const utf8::Unit unit = utf8::unit_at(fragment.text, at);
    const bool valid = unit.form == utf8::Form::Valid;
    Charsmap::Match match{valid ? unit.length : 1, valid ? rest.substr(0, unit.length) : utf8::kReplacement};
    if (const auto mapped = charsmap_.longest(rest)) match = *mapped;
    at += match.length;
    if (out.size() > 3 * kMaxTextBytes) fail_length(out.size());
    for (const char& c : match.replacement) {
      if (c == ' ' && collapse) {
        space_due = space_due || !in_front;
      } else if (c == ' ') {
        if (space_due) out.replace(kEscapedSpace, fragment.begin + at - match.length);
        space_due = false;
        out.replace(kEscapedSpace, fragment.begin + at);
      } else {
        if (space_due) out.replace(kEscapedSpace, fragment.begin + at - match.length);
        space_due = in_front = false;
        out.replace({&c, 1}, fragment.begin + at);
      }
    }
  }
}

void UgmTokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  // All text first: the cache keeps views of it.
  MappedText mapped(out);
  std::vector<std::size_t> ends;
  for (const Fragment& fragment : fragments) {
    if (fragment.token == kNoToken) normalize(fragment, mapped);
    if (fragment.token != kNoToken) mapped.special(fragment.begin + fragment.text.size());
    ends.push_back(mapped.size());
  }
  Call call{out, mapped.text(), ChunkCache(mapped.size())};
  const std::size_t first = out.size();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (fragments[i].token != kNoToken) {
      out.push(fragments[i].token, ends[i]);
      begin = ends[i];
    }
    while (begin < ends[i]) {
      const std::size_t end = cuts_at_spaces_ ? cuts_.chunk_end(call.text.substr(0, ends[i]), begin) : ends[i];
      encode_chunk(call.text.substr(begin, end - begin), call);
      begin = end;
    }
  }
  out.move_ends(first, [&](std::size_t end) { return mapped.source(end); });
}

void UgmTokenizer::encode_chunk(std::string_view chunk, Call& call) const {
  const auto begin = static_cast<std::size_t>(chunk.data() - call.text.data());
  const std::uint64_t hash = hash_bytes(chunk);
  if (call.cache.append_known(chunk, begin, hash, call.out)) return;
  find_best(chunk, call);
  call.cuts.clear();
  for (std::size_t at = chunk.size(); at > 0; at -= call.best[at].length) call.cuts.push_back(at);
  std::reverse(call.cuts.begin(), call.cuts.end());

  const std::size_t start = call.out.size();
  std::size_t from = 0;
  for (std::size_t i = 0; i < call.cuts.size(); ++i) {
    const std::size_t at = call.cuts[i];
    const Token token = call.best[at].token;
    if (token != kNoToken) {
      call.out.push(token, begin + at);
    } else {
      // A run of unknown characters is one unknown token, or the bytes of all of them.
      if (i + 1 < call.cuts.size() && call.best[call.cuts[i + 1]].token == kNoToken) continue;
      append_bytes(chunk.substr(from, at - from), begin + from, byte_token_, vocabulary().special.unk, call.out);
    }
    from = at;
  }
  call.cache.remember(chunk, begin, hash, start, call.out);
}

void UgmTokenizer::find_best(std::string_view chunk, Call& call) const {
  call.best.assign(chunk.size() + 1, {-std::numeric_limits<double>::max(), 0, kNoToken});
  call.best[0].score = 0;
  for (std::size_t at = 0; at < chunk.size();) {
    relax(chunk, at, call.best);
    const utf8::Unit unit = utf8::unit_at(chunk, at);
    at += unit.form == utf8::Form::Valid ? unit.length : 1;
  }
}

/// Goes on from the best way to `at` by every token that stands there, and as unknown if its character is no token.
void UgmTokenizer::relax(std::string_view chunk, std::size_t at, std::vector<Best>& best) const {
  const double here = best[at].score;
  const auto offer = [&](std::size_t length, double score, Token token) {
    Best& there = best[at + length];
    if (here + score > there.score) there = {here + score, static_cast<std::uint32_t>(length), token};
  };
  const utf8::Unit unit = utf8::unit_at(chunk, at);
  const std::size_t character = unit.form == utf8::Form::Valid ? unit.length : 1;
  bool known = false;
  TokenTrie::Node node = TokenTrie::kRoot;
  for (std::size_t i = at; i < chunk.size(); ++i) {
    node = trie_.step(node, static_cast<std::uint8_t>(chunk[i]));
    if (node == TokenTrie::kNone) break;
    const Token token = trie_.token(node);
    if (token == kNoToken) continue;
    const std::size_t length = i + 1 - at;
    known |= length == character;
    offer(length, scores_[static_cast<std::size_t>(token)], token);
  }
  if (!known) offer(character, unknown_score_, kNoToken);
}

/// A sum with an infinite score is no way to cut a text, or hides all others.
void require_finite(const Metadata& metadata, const std::vector<float>& scores) {
  const auto bad = std::ranges::find_if(scores, [](float s) { return !std::isfinite(s); });
  if (bad == scores.end()) return;
  metadata.fail(kScoresKey, "the score of token " + std::to_string(bad - scores.begin()) + " is infinite");
}

}  // namespace

std::unique_ptr<Tokenizer> load_ugm(const Metadata& metadata, Warnings& warnings) {
  const VocabularyDefaults defaults{.eos_text = "</s>", .unk_text = "<unk>", .add_eos = true, .add_space_prefix = true};
  Vocabulary vocabulary = read_vocabulary(metadata, defaults, warnings);
  require_finite(metadata, vocabulary.scores);
  return std::make_unique<UgmTokenizer>(std::move(vocabulary), Charsmap(metadata), warnings);
}

}  // namespace llm
