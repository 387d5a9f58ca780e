// Vocabulary models `rwkv`, `plamo2`, `gemma4`, `whitespace`, `hybriddna` and `none`.
#include <limits>
#include <random>

#include "support/catch.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

std::string noise(std::size_t n) {
  std::mt19937 random(9);
  std::string out;
  while (n-- > 0) out += static_cast<char>(random());
  return out;
}

std::string python_escape(unsigned b) {
  const char* hex = "0123456789abcdef";
  if (b == '\\') return "\\\\";
  if (b == '\n') return "\\n";
  if (b >= 0x20 && b < 0x7F) return {static_cast<char>(b)};
  return std::string("\\x") + hex[b >> 4] + hex[b & 15];
}

}  // namespace

TEST_CASE("rwkv: the longest token at each place, strings as Python writes them", "[rwkv]") {
  VocabularyFile v;
  v.model = "rwkv";
  v.with_scores = false;
  v.add("<s>", TokenKind::Control);
  for (unsigned b = 0; b < 256; ++b) v.add(python_escape(b));
  const Token ab = v.add("ab"), abcd = v.add("abcd"), bc = v.add("bc"), ticks = v.add("\\'\\'"),
              line = v.add("\\t\\r\\n");
  const Token umlaut = v.add("\\xc3\\xa4"), odd = v.add("\\xg");
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("abc", kPlain) == Ids{ab, 1 + 'c'});
  CHECK(t->encode("abcdbc", kPlain) == Ids{abcd, bc});
  CHECK(t->encode("''\t\r\n\u00e4\\xg", kPlain) == Ids{ticks, line, umlaut, odd});
  CHECK(t->piece(line) == "\t\r\n");
  CHECK(t->encode("", kPlain).empty());
  const std::string bytes = noise(5000);
  CHECK(t->decode(t->encode(bytes, kPlain)) == bytes);
  for (const Token id : t->encode("<s>", kPlain)) CHECK(id != 0);
  CHECK(t->encode("<s>a", {.add_special = true, .parse_special = true}) == Ids{0, 1 + 'a'});
  const EncodedPrompt e = t->encode(PromptText{"abcd<s>ab", {{0, 4}}});
  CHECK(e.ids == Ids{abcd, 0, ab});
  CHECK(e.sources[1].bytes == TextSpan{4, 7});
}

TEST_CASE("plamo2: the best sum of rounded scores, the longer token of equal ones, bytes for unknown characters",
          "[plamo2]") {
  VocabularyFile v;
  v.model = "plamo2";
  v.add("<|plamo:unk|>", TokenKind::Unknown);
  v.add("<|plamo:bos|>", TokenKind::Control);
  for (unsigned b = 0; b < 256; ++b) v.add(byte_text(b), TokenKind::Byte);
  const Token a = v.add("a", TokenKind::Normal, -1), b = v.add("b", TokenKind::Normal, -1);
  const Token ab = v.add("ab", TokenKind::Normal, -2), ba = v.add("ba", TokenKind::Normal, -0.5);
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("ab", kPlain) == Ids{ab});  // equal sums
  CHECK(t->encode("aba", kPlain) == Ids{a, ba});
  CHECK(t->encode("bb", kPlain) == Ids{b, b});
  CHECK(t->encode("a\u00e9", kPlain) == Ids{a, 2 + 0xC3, 2 + 0xA9});
  CHECK(t->encode("\xEF\xBB\xBF"
                  "a",
                  kPlain) == Ids{a});
  const std::string bytes = noise(5000);
  CHECK(t->decode(t->encode(bytes, kPlain)) == bytes);

  VocabularyFile broken = v;  // a token that ends inside of a character, and costs nothing
  const Token part = broken.add("\xE3\x81", TokenKind::Normal, 0);
  CHECK(broken.load()->encode("\u3042a", kPlain) == Ids{2 + 0xE3, 2 + 0x81, 2 + 0x82, a});
  CHECK(broken.load()->encode("\xE3\x81", kPlain) == Ids{part});

  VocabularyFile without = v;
  without.texts[5] = "x", without.kinds[5] = 1;
  CHECK_THROWS_AS(without.load(), Error);
}

TEST_CASE("plamo2 agrees with all cuts tried", "[plamo2]") {
  std::mt19937 random(23);
  for (int round = 0; round < 20; ++round) {
    VocabularyFile v;
    v.model = "plamo2";
    for (unsigned b = 0; b < 256; ++b) v.add(byte_text(b), TokenKind::Byte);
    for (int i = 0; i < 8; ++i) {
      std::string text;
      for (auto n = 1 + random() % 4; n > 0; --n) text += "abc"[random() % 3];
      if (std::find(v.texts.begin(), v.texts.end(), text) == v.texts.end()) {
        v.add(text, TokenKind::Normal, -static_cast<float>(random() % 96) / 8);
      }
    }
    const LoadedTokenizer t = v.load();
    const auto best = [&](auto&& self, std::string_view text) -> double {
      if (text.empty()) return 0;
      double found = -1000 + self(self, text.substr(1));
      for (std::size_t i = 256; i < v.texts.size(); ++i) {
        if (text.starts_with(v.texts[i])) {
          found = std::max(found, v.scores[i] + self(self, text.substr(v.texts[i].size())));
        }
      }
      return found;
    };
    for (int i = 0; i < 10; ++i) {
      std::string text;
      for (auto n = 1 + random() % 9; n > 0; --n) text += "abc"[random() % 3];
      double score = 0;
      for (const Token id : t->encode(text, kPlain)) score += id < 256 ? -1000 : v.scores[static_cast<std::size_t>(id)];
      REQUIRE(score == best(best, text));
    }
  }
}

TEST_CASE("gemma4: characters and merges over whole texts, spaces escaped, bytes for the rest", "[gemma4]") {
  VocabularyFile v;
  v.model = "gemma4";
  v.add("<bos>", TokenKind::Control);
  v.bos = 0;
  for (unsigned b = 0; b < 256; ++b) v.add(byte_text(b), TokenKind::Byte);
  const Token s = v.add("\u2581"), a = v.add("a"), b = v.add("b"), line = v.add("\n"), sa = v.add("\u2581a");
  const Token lines = v.add("\n\n"), ab = v.add("ab"), joined = v.add("b\u2581a");
  v.merges = std::vector<std::string>{"\n \n", "\u2581 a", "a b", "b \u2581a"};
  const LoadedTokenizer t = v.load();
  CHECK(t.warnings.empty());
  CHECK(t->encode(" ab", kPlain) == Ids{sa, b});  // the earlier merge
  CHECK(t->encode("ab", kPlain) == Ids{ab});
  CHECK(t->encode("b a", kPlain) == Ids{joined});  // past a space, since a merge says so
  CHECK(t->encode("a\n\n\na", kPlain) == Ids{a, lines, line, a});
  CHECK(t->encode("a  \u00e9", kPlain) == Ids{a, s, s, 1 + 0xC3, 1 + 0xA9});
  CHECK(t->encode("a", {.add_special = true, .parse_special = true}) == Ids{0, a});
  const std::string text = "ab a\n \u4e2d\u2581" + noise(3000);
  std::string expected = text;  // a U+2581 in the text is a space ever after
  expected.replace(expected.find("\u2581"), 3, " ");
  CHECK(t->decode(t->encode(text, kPlain)) == expected);
  CHECK(t->describe() == "gemma4, pre-tokenizer gemma4, 265 tokens");

  v.add_bos = false;
  const LoadedTokenizer forced = v.load();
  REQUIRE(forced.warnings.size() == 1);
  CHECK(forced.warnings[0].code == "bos-added");
  CHECK(forced->special().add_bos);
}

TEST_CASE("whitespace: words of characters, white space is no token", "[whitespace]") {
  VocabularyFile v;
  v.model = "whitespace", v.pre = "whitespace", v.with_scores = false;
  v.unk = static_cast<std::uint32_t>(v.add("<unk>", TokenKind::Unknown));
  const Token a = v.add("a"), b = v.add("b"), ab = v.add("ab"), han = v.add("\u4e2d");
  v.merges = std::vector<std::string>{"a b"};
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("ab a\u3000b\n\u4e2d", kPlain) == Ids{ab, a, b, han});
  CHECK(t->encode("A", kPlain) == Ids{0});
  GgufWriter lower = v.writer();
  lower.set("tokenizer.ggml.normalizer.lowercase", true);
  CHECK(load_tokenizer(lower)->encode("A bAB", kPlain) == Ids{a, b, ab});
  v.pre = "qwen2";
  CHECK_THROWS_AS(v.load(), Error);
}

TEST_CASE("hybriddna: six bases to a token between tags", "[dna]") {
  VocabularyFile v = bpe_vocabulary();
  v.model = "hybriddna";
  const Token open = v.add("<dna>"), close = v.add("</dna>"), unknown = v.add("<oov>");
  const Token bases = v.add("ACGTAC\uE000"), filled = v.add("GGAAAA\uE000");
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("ab<dna>ACGTACgg</dna>ab", kPlain) == Ids{256, open, bases, filled, close, 256});
  CHECK(t->encode("<dna>NNNNNN", kPlain) == Ids{open, unknown});
  CHECK(t->encode("ACGTAC", kPlain) == Ids{'A', 'C', 'G', 'T', 'A', 'C'});
  CHECK(t->decode(Ids{open, bases, close}) == "<dna>ACGTAC</dna>");
  const EncodedPrompt e = t->encode(PromptText{"ab<dna>ACGTACgg", {}}, AddSpecial::Never);
  CHECK(e.sources.back().bytes == TextSpan{13, 15});
}

TEST_CASE("none: a number of tokens and no text", "[none]") {
  GgufWriter w;
  w.set("general.architecture", "llama");
  w.set("llama.vocab_size", std::uint32_t{1000});
  w.set("tokenizer.ggml.model", "none");
  const LoadedTokenizer t = load_tokenizer(w);
  CHECK(t->n_vocab() == 1000);
  CHECK(t->encode("").empty());
  CHECK_THROWS_WITH(t->encode("a"), contains("no vocabulary"));
  CHECK(t->decode(Ids{1, 2, 999}).empty());
  CHECK(!t->is_end_of_generation(0));
}
