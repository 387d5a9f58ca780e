// Byte-level byte-pair encoding with merges: vocabulary model `gpt2`.
// Token strings are in the characters of byte_map.h; here they are kept as the bytes that they stand for.
#include <atomic>
#include <memory>

#include "text/byte_map.h"
#include "text/merge.h"
#include "text/pretokenizer.h"
#include "text/token_table.h"
#include "text/vocabulary.h"
#include "text/vocabulary_models.h"

namespace llm {
namespace {

/// Whether the merges make a token out of its own text, so that a chunk equal to it need not be merged.
enum class Whole : std::uint8_t { NotYetKnown, Yes, No };

struct MergeEntry;

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(const Metadata&, Vocabulary, const PreTokenizerRule&, std::string_view pre_name, Warnings&);

 private:
  struct Call;

  void encode_fragments(std::span<const Fragment>, TokenSink&) const override;
  void append_text(Token, std::string& out) const override;
  std::string details() const override { return ", pre-tokenizer " + pre_name_; }

  void decode_texts(Warnings&);
  void read_merges(const Metadata&, Warnings&);
  void find_merge_tokens(std::string_view bytes, std::span<MergeEntry> batch, Token& previous) const;
  Token result_of(std::string_view both, Token previous) const;
  void encode_chunk(std::string_view chunk, std::size_t begin, Call&) const;
  void merge(std::string_view chunk, Call&) const;
  bool is_whole(Token, Call&) const;

  std::string pre_name_;
  PreTokenizer splitter_;
  std::string arena_;                    ///< the bytes of all tokens
  std::vector<std::string_view> bytes_;  ///< [n_vocab] views of arena_; empty for texts outside of the byte map
  std::size_t duplicates_ = 0;           ///< token strings that are there more than once
  TokenTable table_;                     ///< of bytes_
  Token byte_token_[256];
  Token unknown_ = kNoToken;  ///< for bytes that no token expresses; never a control token, which some files name so
  MergeTable merges_;
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

bool encodes_text(TokenKind kind) { return kind != TokenKind::Control && kind != TokenKind::Unknown; }

BpeTokenizer::BpeTokenizer(const Metadata& metadata, Vocabulary vocabulary, const PreTokenizerRule& rule,
                           std::string_view pre_name, Warnings& warnings)
    : Tokenizer(std::move(vocabulary)), pre_name_(pre_name), splitter_(rule), table_(n_vocab()) {
  decode_texts(warnings);
  read_merges(metadata, warnings);
  const Token unk = this->vocabulary().special.unk;
  if (unk != kNoToken && this->vocabulary().kind(unk) == TokenKind::Unknown) unknown_ = unk;
  whole_ = std::make_unique<std::atomic<Whole>[]>(n_vocab());
  const Whole text_token = rule.words == WordRule::WholeIfToken ? Whole::Yes : Whole::NotYetKnown;
  for (std::size_t i = 0; i < n_vocab(); ++i) {
    // User text never becomes a control token, even one that merges could reach.
    whole_[i].store(encodes_text(this->vocabulary().kinds[i]) ? text_token : Whole::No, std::memory_order_relaxed);
  }
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
    if (byte_map::append_bytes(text, arena_)) {
      bytes_[static_cast<std::size_t>(id)] = {arena_.data() + start, arena_.size() - start};
      insert(table_, id, bytes_);
    } else {
      rest.push_back(id);
    }
  }
  unmapped = TokenTable(rest.size());
  for (const Token id : rest) insert(unmapped, id, texts);
  warn_duplicates(duplicates_, example, warnings);

  for (unsigned b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    const Token id = table_.find({&c, 1}, bytes_);
    byte_token_[b] = id != kNoToken && encodes_text(vocabulary().kind(id)) ? id : kNoToken;
  }
}

/// Counts of merges that cannot act, for one warning.
struct IgnoredMerges {
  std::size_t malformed = 0, unknown = 0, repeated = 0;
  std::size_t example = 0;

  void count(std::size_t& which, std::size_t i) {
    if (malformed + unknown + repeated == 0) example = i;
    ++which;
  }
  void warn(std::span<const std::string_view> merges, Warnings& warnings) const {
    if (malformed + unknown + repeated == 0) return;
    const auto part = [](std::size_t n, std::string_view what) {
      return n == 0 ? std::string() : " " + std::to_string(n) + " " + std::string(what) + ";";
    };
    warnings.push_back({"merges-ignored", std::string(kMergesKey) + ":" +
                                              part(malformed, "not of the form \"left right\"") +
                                              part(unknown, "of which a part or the result is no token") +
                                              part(repeated, "repeated, the first counts") + " ignored (entry " +
                                              std::to_string(example) + ": \"" + escaped(merges[example]) + "\")"});
  }
};

/// One entry of the list: its parts as bytes, one after the other at `begin` of the batch's bytes, then as tokens.
struct MergeEntry {
  bool well_formed, mapped;
  std::size_t begin, cut, end;
  std::uint64_t left_hash = 0, right_hash = 0;
  Token left = kNoToken, right = kNoToken, result = kNoToken;
};

MergeEntry split_merge(std::string_view merge, std::string& bytes) {
  const std::size_t begin = bytes.size();
  const std::size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == merge.size()) return {false, false, begin, begin, begin};
  const bool left = byte_map::append_bytes(merge.substr(0, space), bytes);
  const std::size_t cut = bytes.size();
  const bool right = byte_map::append_bytes(merge.substr(space + 1), bytes);
  return {true, left && right, begin, cut, bytes.size()};
}

void BpeTokenizer::read_merges(const Metadata& metadata, Warnings& warnings) {
  const Metadata::Entry* entry = metadata.find(kMergesKey);
  const bool is_list = entry != nullptr && entry->type == GgufType::Array && entry->element == GgufType::String;
  if (!is_list) metadata.array<std::string_view>(kMergesKey);  // throws, naming what is wrong
  const std::span<const std::string_view> merges = entry->strings;
  merges_ = MergeTable(merges.size());
  IgnoredMerges ignored;
  Token result = 0;
  // In batches, so that the tables' memory is on its way before it is needed: this is most of a large vocabulary's
  // load.
  constexpr std::size_t kBatch = 64;
  std::string bytes;
  std::vector<MergeEntry> batch;
  for (std::size_t base = 0; base < merges.size(); base += kBatch) {
    bytes.clear();
    batch.clear();
    for (std::size_t i = base; i < std::min(base + kBatch, merges.size()); ++i) {
      batch.push_back(split_merge(merges[i], bytes));
    }
    find_merge_tokens(bytes, batch, result);
    for (std::size_t k = 0; k < batch.size(); ++k) {
      const MergeEntry& m = batch[k];
      if (!m.well_formed) {
        ignored.count(ignored.malformed, base + k);
      } else if (m.result == kNoToken) {
        ignored.count(ignored.unknown, base + k);
      } else if (!merges_.insert(m.left, m.right, {static_cast<std::uint32_t>(base + k), m.result})) {
        ignored.count(ignored.repeated, base + k);
      }
    }
  }
  ignored.warn(merges, warnings);
}

/// Fills in the tokens of a batch; `previous` is the last merge's result.
void BpeTokenizer::find_merge_tokens(std::string_view bytes, std::span<MergeEntry> batch, Token& previous) const {
  const auto left_text = [bytes](const MergeEntry& m) { return bytes.substr(m.begin, m.cut - m.begin); };
  const auto right_text = [bytes](const MergeEntry& m) { return bytes.substr(m.cut, m.end - m.cut); };
  for (MergeEntry& m : batch) {
    table_.prefetch(m.left_hash = hash_bytes(left_text(m)));
    table_.prefetch(m.right_hash = hash_bytes(right_text(m)));
  }
  for (MergeEntry& m : batch) {
    if (!m.mapped) continue;
    m.left = table_.find(left_text(m), m.left_hash, bytes_);
    m.right = table_.find(right_text(m), m.right_hash, bytes_);
    if (m.left == kNoToken || m.right == kNoToken) continue;
    const Token joined = result_of(bytes.substr(m.begin, m.end - m.begin), previous);
    if (joined == kNoToken || !encodes_text(vocabulary().kind(joined))) continue;
    m.result = previous = joined;
    merges_.prefetch(m.left, m.right);
  }
}

/// The token of a merge's joined text: as a rule that of the merge before or the one after it.
Token BpeTokenizer::result_of(std::string_view both, Token previous) const {
  if (duplicates_ == 0) {  // else a later one of equal tokens could be found
    const auto at = static_cast<std::size_t>(previous);
    if (bytes_[at] == both) return previous;
    if (at + 1 < bytes_.size() && bytes_[at + 1] == both) return previous + 1;
  }
  return table_.find(both, bytes_);
}

void BpeTokenizer::append_text(Token token, std::string& out) const {
  const std::string_view bytes = bytes_[static_cast<std::size_t>(token)];
  out += bytes.empty() ? vocabulary().text(token) : bytes;
}

void BpeTokenizer::encode_fragments(std::span<const Fragment> fragments, TokenSink& out) const {
  std::size_t total = 0;
  for (const Fragment& fragment : fragments) total += fragment.text.size();
  Call call{out, ChunkCache(total), {}, {}, {}};
  for (const Fragment& fragment : fragments) {
    if (fragment.token != kNoToken) {
      out.push(fragment.token, fragment.begin + fragment.text.size());
    } else {
      std::size_t begin = fragment.begin;
      splitter_.split(fragment.text, call.scratch, [&](std::string_view chunk) {
        encode_chunk(chunk, begin, call);
        begin += chunk.size();
      });
    }
  }
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

/// The rule that the file names; the default one, with a warning, if it names none.
const PreTokenizerRule& choose_rule(const Metadata& metadata, std::string_view& pre_name, Warnings& warnings) {
  pre_name = metadata.get_or<std::string_view>(kPreKey, "default");
  if (!metadata.has(kPreKey)) {
    warnings.push_back({"missing-pre-tokenizer",
                        "the file does not say how its vocabulary splits text (" + std::string(kPreKey) +
                            "): using 'default', which may be wrong for this model and make its answers much worse"});
  }
  if (const PreTokenizerRule* rule = find_pretokenizer(pre_name)) return *rule;
  std::string nearest;
  for (const std::string_view near : nearest_pretokenizers(pre_name, 5)) {
    nearest += nearest.empty() ? "" : ", ";
    nearest += near;
  }
  metadata.fail(kPreKey, "pre-tokenizer \"" + escaped(pre_name) + "\" is not known; nearest known names: " + nearest);
}

}  // namespace

std::unique_ptr<Tokenizer> load_bpe(const Metadata& metadata, Warnings& warnings) {
  std::string_view pre_name;
  const PreTokenizerRule& rule = choose_rule(metadata, pre_name, warnings);
  const VocabularyDefaults defaults{.eos_text = "<|endoftext|>", .add_bos = rule.bos == BosRule::Add};
  Vocabulary vocabulary = read_vocabulary(metadata, defaults, warnings);
  return std::make_unique<BpeTokenizer>(metadata, std::move(vocabulary), rule, pre_name, warnings);
}

}  // namespace llm
