// Vocabularies that are refused, and those that are used with exactly one warning.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "support/catch.h"
#include "text/token_table.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

template <class T>
GgufWriter with_array(const VocabularyFile& v, std::string_view key, const std::vector<T>& values) {
  GgufWriter w = v.writer({key});
  w.set_array(key, std::span<const T>(values));
  return w;
}

template <class T>
GgufWriter with_value(const VocabularyFile& v, std::string_view key, T value) {
  GgufWriter w = v.writer({key});
  w.set(key, value);
  return w;
}

void refused(const GgufWriter& writer, std::string_view word) {
  INFO(word);
  try {
    load_tokenizer(writer);
  } catch (const Error& e) {
    INFO(e.what());
    CHECK(e.kind() == ErrorKind::Model);
    CHECK(std::string_view(e.what()).find(word) != std::string_view::npos);
    return;
  }
  FAIL("was accepted");
}

LoadedTokenizer warned(const GgufWriter& writer, std::string_view word) {
  INFO(word);
  LoadedTokenizer t = load_tokenizer(writer);
  REQUIRE(t.warnings.size() == 1);
  INFO(t.warnings[0].text);
  CHECK(t.warnings[0].text.find(word) != std::string::npos);
  CHECK(t.warnings[0].text.find('\n') == std::string::npos);
  return t;
}

}  // namespace

TEST_CASE("the base vocabularies load without a warning", "[malformed]") {
  CHECK(spm_vocabulary().load().warnings.empty());
  CHECK(bpe_vocabulary().load().warnings.empty());
  CHECK(spm_vocabulary().texts.size() == 267);
  CHECK(bpe_vocabulary().texts.size() == 259);
}

TEST_CASE("token arrays that cannot be used are refused", "[malformed]") {
  const VocabularyFile v = spm_vocabulary();
  const std::size_t n = v.texts.size();
  refused(v.writer({"tokenizer.ggml.tokens"}), "tokens");
  refused(with_array(v, "tokenizer.ggml.tokens", std::vector<std::string>{}), "tokens");
  refused(with_array(v, "tokenizer.ggml.tokens", std::vector<std::uint32_t>(n)), "tokens");
  refused(with_array(v, "tokenizer.ggml.scores", std::vector<float>(10)), "scores");
  refused(with_array(v, "tokenizer.ggml.scores", std::vector<std::uint8_t>(n)), "scores");
  refused(with_array(v, "tokenizer.ggml.token_type", std::vector<std::int32_t>(10, 1)), "token_type");
  refused(with_array(v, "tokenizer.ggml.token_type", std::vector<std::uint8_t>(n, 1)), "token_type");
  std::vector<float> scores = v.scores;
  scores[5] = std::numeric_limits<float>::quiet_NaN();
  refused(with_array(v, "tokenizer.ggml.scores", scores), "scores");
  refused(with_value(v, "tokenizer.ggml.scores", 1.0f), "tokens");
}

TEST_CASE("byte tokens must be spelled as such", "[malformed]") {
  for (const char* text : {"<0x-1>", "<0xZZ>", "<0xff>", "<0x0>", "q0"}) {
    VocabularyFile v = spm_vocabulary();
    v.texts[3] = text;
    refused(v.writer(), text);
  }
  VocabularyFile all = spm_vocabulary();
  for (std::size_t b = 0; b < 256; ++b) all.texts[3 + b] = "q" + std::to_string(b);
  refused(all.writer(), "q0");
}

TEST_CASE("merges that cannot be used", "[malformed]") {
  VocabularyFile v = bpe_vocabulary();
  refused(v.writer({"tokenizer.ggml.merges"}), "merges");
  refused(with_array(v, "tokenizer.ggml.merges", std::vector<std::uint32_t>{1, 2}), "merges");

  const auto with_merges = [](std::vector<std::string> merges) {
    VocabularyFile file = bpe_vocabulary();
    file.merges = std::move(merges);
    return file.writer();
  };
  const auto still_works = [](const LoadedTokenizer& t) { CHECK(t->encode("abc", {}) == std::vector<Token>{257}); };
  still_works(warned(with_merges({"a b", "ab", "ab c"}), "merges"));
  still_works(warned(with_merges({"a b", "", "ab c"}), "merges"));
  still_works(warned(with_merges({"a b", "ab c", "z q"}), "merges"));
  still_works(warned(with_merges({"a b", "ab c", " ", "b ", "\xFF \xFE"}), "merges"));
  warned(with_merges(std::vector<std::string>(10000, "a b")), "merges");
  // The first of two ranks counts: "bc" is repeated behind "ab".
  VocabularyFile ranks = bpe_vocabulary();
  const Token bc = ranks.add("bc");
  ranks.merges = std::vector<std::string>{"b c", "a b", "b c"};
  CHECK(warned(ranks.writer(), "merges")->encode("abc", {}) == std::vector<Token>{'a', bc});
}

TEST_CASE("models and pre-tokenizers that are not known are refused by name", "[malformed]") {
  const VocabularyFile spm = spm_vocabulary(), bpe = bpe_vocabulary();
  refused(with_value(spm, "tokenizer.ggml.model", "zzz"), "zzz");
  refused(with_value(spm, "tokenizer.ggml.model", "zzz"), "model");
  refused(with_value(spm, "tokenizer.ggml.model", std::uint32_t{1}), "model");
  refused(spm.writer({"tokenizer.ggml.model"}), "model");
  refused(with_value(bpe, "tokenizer.ggml.pre", "zzz"), "pre");
  refused(with_value(bpe, "tokenizer.ggml.pre", "lama-bpe"), "llama-bpe");
  refused(with_value(bpe, "tokenizer.ggml.pre", "a\x1b[31m"), "a\\x1b[31m");
  refused(with_value(spm, "tokenizer.chat_template", std::uint32_t{1}), "chat_template");
  refused(with_value(spm, "tokenizer.ggml.add_bos_token", "yes"), "add_bos_token");
}

TEST_CASE("a file without the name of its pre-tokenizer is read with a loud warning", "[malformed]") {
  const LoadedTokenizer t = warned(bpe_vocabulary().writer({"tokenizer.ggml.pre"}), "tokenizer.ggml.pre");
  CHECK(t.warnings[0].code == "missing-pre-tokenizer");
  CHECK(t->describe().find("default") != std::string::npos);
}

TEST_CASE("a flag that asks for a token that is not there is refused", "[malformed]") {
  VocabularyFile v = spm_vocabulary();
  v.bos.reset();
  v.texts[1] = "<x>";
  CHECK(v.load()->encode("a", {}) == std::vector<Token>{264});  // the default gives way
  v.add_bos = true;
  refused(v.writer(), "bos");
  VocabularyFile eos = bpe_vocabulary();
  eos.texts[258] = "<x>";
  eos.eos.reset();
  eos.add_eos = true;
  refused(eos.writer(), "eos");
}

TEST_CASE("what can be lived with gives one warning", "[malformed]") {
  VocabularyFile v = spm_vocabulary();
  v.kinds[260] = 99;
  CHECK(warned(v.writer(), "token_type")->encode("ba", {}) == std::vector<Token>{1, 266, 260});

  v = spm_vocabulary();
  v.bos = 0xFFFFFFFFu;
  CHECK(warned(v.writer(), "bos_token_id")->special().bos == 1);
  v = spm_vocabulary();
  v.eos = 267;
  CHECK(warned(v.writer(), "eos_token_id")->special().eos == 2);

  v = spm_vocabulary();
  v.texts[264] = v.texts[265] = v.texts[266] = "a";
  CHECK(warned(v.writer(), "tokens")->encode("a", {}) == std::vector<Token>{1, 259, 260});

  v = spm_vocabulary();
  v.texts[266] = "";
  CHECK(warned(v.writer(), "tokens")->encode("b", {}) == std::vector<Token>{1, 259, 261});

  for (VocabularyFile raw : {spm_vocabulary(), bpe_vocabulary()}) {
    raw.texts[257] = "\xFF\xFE";
    raw.kinds[257] = static_cast<int>(TokenKind::Normal);
    raw.merges = raw.merges ? std::optional(std::vector<std::string>{"a b"}) : std::nullopt;
    CHECK(warned(raw.writer(), "tokens")->piece(257) == "\xFF\xFE");
  }
}

TEST_CASE("a token of a mebibyte is a token", "[malformed]") {
  VocabularyFile v = spm_vocabulary();
  v.texts[266] = std::string(1 << 20, 'z');
  const LoadedTokenizer t = v.load();
  CHECK(t.warnings.empty());
  CHECK(t->piece(266).size() == 1 << 20);
  CHECK(t->encode("abc", {}) == std::vector<Token>{1, 259, 265});
  VocabularyFile special = bpe_vocabulary();
  const Token id = special.add(std::string(1 << 20, 'z'), TokenKind::UserDefined);
  CHECK(special.load()->encode(std::string(1 << 20, 'z') + "ab", {}) == std::vector<Token>{id, 256});
}

TEST_CASE("strings that have one place in a table with a known hash have others in each process", "[malformed]") {
  // The function without its seed: what a file could be made for.
  const auto known = [](std::string_view eight) {
    std::uint64_t word = 0;
    std::memcpy(&word, eight.data(), sizeof word);
    const auto fold = [](std::uint64_t x) {
      const unsigned __int128 product = static_cast<unsigned __int128>(x ^ 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
      return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
    };
    return fold(fold(8) ^ word);
  };
  std::size_t n = 0, together = 0;
  for (std::uint64_t i = 0; n < 64; ++i) {
    std::string text(8, ' ');
    std::memcpy(text.data(), &i, sizeof i);
    if ((known(text) & 0xff) != 0) continue;
    ++n;
    together += (hash_bytes(text) & 0xff) == 0 ? 1 : 0;
  }
  CHECK(together < 32);
}
