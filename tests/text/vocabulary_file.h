// Small vocabularies written as GGUF files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

namespace llm::test {

using Ids = std::vector<Token>;
inline constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
inline constexpr EncodeOptions kMarkup{.add_special = false, .parse_special = true};

/// A tokenizer with the file that it reads from.
struct LoadedTokenizer {
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
  Warnings warnings;
  const Tokenizer* operator->() const { return tokenizer.get(); }
  const Tokenizer& operator*() const { return *tokenizer; }
};

inline LoadedTokenizer load_tokenizer(const std::filesystem::path& path) {
  Warnings warnings;
  GgufFile file = GgufFile::open(path, warnings);
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(file.metadata(), warnings);
  return {std::move(file), std::move(tokenizer), std::move(warnings)};
}

inline LoadedTokenizer load_tokenizer(const GgufWriter& writer) {
  const TempDir folder;  // the mapping outlives the name
  writer.write(folder / "vocabulary.gguf");
  return load_tokenizer(folder / "vocabulary.gguf");
}

inline std::string byte_text(unsigned b) {
  const char* hex = "0123456789ABCDEF";
  return std::string("<0x") + hex[b >> 4] + hex[b & 15] + ">";
}

/// What goes into a file; an empty optional leaves its key out.
struct VocabularyFile {
  std::optional<std::string> model = "llama", pre;
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<std::int32_t> kinds;
  std::optional<std::vector<std::string>> merges;
  std::optional<std::uint32_t> bos, eos, unk;
  std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
  bool with_scores = true, with_kinds = true;

  std::int32_t add(std::string text, TokenKind kind = TokenKind::Normal, float score = 0) {
    texts.push_back(std::move(text));
    kinds.push_back(static_cast<std::int32_t>(kind));
    scores.push_back(score);
    return static_cast<std::int32_t>(texts.size()) - 1;
  }

  /// All keys except those in `without`, which a caller sets otherwise.
  GgufWriter writer(std::vector<std::string_view> without = {}) const {
    GgufWriter w;
    const auto wanted = [&](std::string_view key) {
      return std::find(without.begin(), without.end(), key) == without.end();
    };
    const auto set = [&](std::string_view key, const auto& value) {
      if (value && wanted(key)) w.set(key, *value);
    };
    w.set("general.architecture", "llama");
    if (model && wanted("tokenizer.ggml.model")) w.set("tokenizer.ggml.model", std::string_view(*model));
    if (pre && wanted("tokenizer.ggml.pre")) w.set("tokenizer.ggml.pre", std::string_view(*pre));
    if (wanted("tokenizer.ggml.tokens")) w.set_array("tokenizer.ggml.tokens", std::span<const std::string>(texts));
    if (with_scores && wanted("tokenizer.ggml.scores")) {
      w.set_array("tokenizer.ggml.scores", std::span<const float>(scores));
    }
    if (with_kinds && wanted("tokenizer.ggml.token_type")) {
      w.set_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(kinds));
    }
    if (merges && wanted("tokenizer.ggml.merges")) {
      w.set_array("tokenizer.ggml.merges", std::span<const std::string>(*merges));
    }
    set("tokenizer.ggml.bos_token_id", bos);
    set("tokenizer.ggml.eos_token_id", eos);
    set("tokenizer.ggml.unknown_token_id", unk);
    set("tokenizer.ggml.add_bos_token", add_bos);
    set("tokenizer.ggml.add_eos_token", add_eos);
    set("tokenizer.ggml.add_space_prefix", add_space_prefix);
    set("tokenizer.ggml.remove_extra_whitespaces", remove_extra_whitespaces);
    return w;
  }
  LoadedTokenizer load() const { return load_tokenizer(writer()); }
};

/// <unk> <s> </s>, 256 byte tokens and eight pieces: 267 tokens, as the smallest llama files have them.
inline VocabularyFile spm_vocabulary() {
  VocabularyFile v;
  v.add("<unk>", TokenKind::Unknown);
  v.add("<s>", TokenKind::Control);
  v.add("</s>", TokenKind::Control);
  for (unsigned b = 0; b < 256; ++b) v.add(byte_text(b), TokenKind::Byte);
  float score = 0;
  for (const char* piece : {"\u2581", "a", "b", "c", "ab", "\u2581a", "abc", "\u2581b"}) {
    v.add(piece, TokenKind::Normal, score -= 1);
  }
  v.bos = 1, v.eos = 2, v.unk = 0;
  return v;
}

/// How byte-level vocabularies write a byte, spelled out here once more from its definition.
inline std::string byte_character(unsigned b) {
  unsigned c = b;
  const auto printable = [](unsigned x) {
    return (x >= '!' && x <= '~') || (x >= 0xA1 && x <= 0xAC) || (x >= 0xAE && x <= 0xFF);
  };
  if (!printable(b)) {
    c = 256;
    for (unsigned x = 0; x < b; ++x) c += printable(x) ? 0 : 1;
  }
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
}

inline std::string byte_characters(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += byte_character(static_cast<unsigned char>(c));
  return out;
}

/// All 256 bytes (id = byte), "ab", "abc" and <|endoftext|> (258), with the merges of the two pieces.
inline VocabularyFile bpe_vocabulary(std::string pre = "gpt-2") {
  VocabularyFile v;
  v.model = "gpt2";
  v.pre = std::move(pre);
  v.with_scores = false;
  for (unsigned b = 0; b < 256; ++b) v.add(byte_character(b));
  v.add("ab");
  v.add("abc");
  v.add("<|endoftext|>", TokenKind::Control);
  v.merges = std::vector<std::string>{"a b", "ab c"};
  v.bos = 258, v.eos = 258;
  return v;
}

}  // namespace llm::test
