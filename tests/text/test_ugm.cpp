// Vocabulary model `t5`: the best sum of scores, and the map of characters.
#include <cmath>
#include <limits>
#include <random>

#include "support/catch.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

VocabularyFile ugm_vocabulary() {
  VocabularyFile v;
  v.model = "t5";
  v.add("<pad>", TokenKind::Control);
  v.add("</s>", TokenKind::Control);
  v.add("<unk>", TokenKind::Unknown);
  v.eos = 1, v.unk = 2;
  return v;
}

/// A double array for strings that share no first byte: children of the root in a block of 256, each with a block of
/// its own.
std::vector<std::uint8_t> charsmap(const std::vector<std::pair<std::string, std::string>>& rules) {
  constexpr std::uint32_t kBlock = 256;
  std::vector<std::uint32_t> units(kBlock, 0x100u << 10);  // labels are 0: no text matches
  std::string replacements;
  const auto offset_to = [&](std::size_t from, std::size_t block) {
    return static_cast<std::uint32_t>(from ^ block) << 10;
  };
  std::size_t next = kBlock;
  units.resize(2 * kBlock);
  units[0] = offset_to(0, next);
  for (const auto& [text, replacement] : rules) {
    std::size_t base = kBlock;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto label = static_cast<std::uint8_t>(text[i]);
      const std::size_t at = base ^ label;
      next += kBlock;
      units.resize(next + kBlock, 0);
      units[at] = label | offset_to(at, next) | (i + 1 == text.size() ? 1u << 8 : 0);
      base = next;
    }
    units[base] = 1u << 31 | static_cast<std::uint32_t>(replacements.size());
    replacements += replacement + '\0';
  }
  std::vector<std::uint8_t> bytes;
  const auto add = [&](std::uint32_t u) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(u >> 8 * i));
  };
  add(static_cast<std::uint32_t>(units.size() * 4));
  for (const std::uint32_t u : units) add(u);
  bytes.insert(bytes.end(), replacements.begin(), replacements.end());
  return bytes;
}

LoadedTokenizer with_map(const VocabularyFile& v, const std::vector<std::uint8_t>& map) {
  GgufWriter w = v.writer();
  w.set_array("tokenizer.ggml.precompiled_charsmap", std::span<const std::uint8_t>(map));
  return load_tokenizer(w);
}

/// The best score over all ways to cut a text of "\u2581" and letters, by trying them all.
double best_score(const VocabularyFile& v, std::string_view text) {
  if (text.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 3; i < v.texts.size(); ++i) {
    if (text.starts_with(v.texts[i]))
      best = std::max(best, v.scores[i] + best_score(v, text.substr(v.texts[i].size())));
  }
  return best;
}

}  // namespace

TEST_CASE("the best sum of scores wins, not the longest token", "[ugm]") {
  VocabularyFile v = ugm_vocabulary();
  v.add_space_prefix = false;
  const Token a = v.add("a", TokenKind::Normal, -2), b = v.add("b", TokenKind::Normal, -2);
  const Token ab = v.add("ab", TokenKind::Normal, -5), bb = v.add("bb", TokenKind::Normal, -1);
  const LoadedTokenizer t = v.load();
  CHECK(t.warnings.empty());
  CHECK(t->encode("ab", kPlain) == Ids{a, b});
  CHECK(t->encode("abb", kPlain) == Ids{a, bb});
  v.scores[static_cast<std::size_t>(ab)] = -3;
  CHECK(v.load()->encode("ab", kPlain) == Ids{ab});
  CHECK(t->encode("", kPlain).empty());
  CHECK(t->encode("a", {.add_special = true, .parse_special = false}) == Ids{a, 1});
}

TEST_CASE("random vocabularies find the best of all cuts", "[ugm]") {
  std::mt19937 random(17);
  for (int round = 0; round < 30; ++round) {
    VocabularyFile v = ugm_vocabulary();
    v.add_space_prefix = false;
    for (const char* c : {"a", "b", "\u2581"}) v.add(c, TokenKind::Normal, -static_cast<float>(random() % 64) / 8);
    for (int i = 0; i < 8; ++i) {
      std::string text;
      for (auto n = 2 + random() % 3; n > 0; --n) text += random() % 5 == 0 ? "\u2581" : random() % 2 ? "a" : "b";
      if (std::find(v.texts.begin(), v.texts.end(), text) != v.texts.end()) continue;
      v.add(text, TokenKind::Normal, -static_cast<float>(random() % 96) / 8);
    }
    const LoadedTokenizer t = v.load();
    for (int i = 0; i < 10; ++i) {
      std::string text, escaped;
      for (auto n = 1 + random() % 9; n > 0; --n) text += " ab"[random() % 3];
      for (const char c : text) escaped += c == ' ' ? "\u2581" : std::string(1, c);
      double score = 0;
      for (const Token id : t->encode(text, kPlain)) score += v.scores[static_cast<std::size_t>(id)];
      REQUIRE(score == best_score(v, escaped));  // multiples of 1/8: sums are exact
    }
  }
}

TEST_CASE("unknown text: one token for a run of it, or bytes where the vocabulary has them", "[ugm]") {
  VocabularyFile v = ugm_vocabulary();
  v.add_space_prefix = false;
  const Token a = v.add("a", TokenKind::Normal, -2);
  CHECK(v.load()->encode("axyza\u4e2d", kPlain) == Ids{a, 2, a, 2});
  const Token zero = static_cast<Token>(v.texts.size());
  for (unsigned b = 0; b < 256; ++b) v.add(byte_text(b), TokenKind::Byte);
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("a\u00e9", kPlain) == Ids{a, zero + 0xC3, zero + 0xA9});
  CHECK(t->decode(t->encode("a\u00e9\u4e2d", kPlain)) == "a\u00e9\u4e2d");
  CHECK(t->encode("\xFF", kPlain) == Ids{zero + 0xEF, zero + 0xBF, zero + 0xBD});  // U+FFFD
}

TEST_CASE("infinite scores are refused", "[ugm]") {
  for (const float score : {-INFINITY, INFINITY}) {
    VocabularyFile v = ugm_vocabulary();
    v.add("a", TokenKind::Normal, -1);
    v.add("b", TokenKind::Normal, score);  // -infinity: no way to cut "b"
    CHECK_THROWS_WITH(v.load(), contains("the score of token 4 is infinite"));
  }
}

TEST_CASE("spaces: a prefix, kept or made one", "[ugm]") {
  VocabularyFile v = ugm_vocabulary();
  const Token s = v.add("\u2581", TokenKind::Normal, -2), a = v.add("a", TokenKind::Normal, -2);
  const LoadedTokenizer kept = v.load();
  CHECK(kept->encode("a  a", kPlain) == Ids{s, a, s, s, a});
  CHECK(kept->encode(" a ", kPlain) == Ids{s, s, a, s});
  CHECK(kept->decode(Ids{s, a, s, a}) == "a a");
  v.remove_extra_whitespaces = true;
  const LoadedTokenizer collapsed = v.load();
  CHECK(collapsed->encode("  a   a  ", kPlain) == Ids{s, a, s, a});
  CHECK(collapsed->encode("   ", kPlain).empty());
  v.add_space_prefix = false;
  CHECK(v.load()->encode("  a   a  ", kPlain) == Ids{a, s, a});
}

TEST_CASE("the vocabulary's map replaces the longest string that it knows", "[ugm]") {
  VocabularyFile v = ugm_vocabulary();
  v.add_space_prefix = false;
  const Token a = v.add("a", TokenKind::Normal, -2), f = v.add("f", TokenKind::Normal, -2);
  const Token i = v.add("i", TokenKind::Normal, -2), s = v.add("\u2581", TokenKind::Normal, -2);
  // U+FB01 becomes "fi", A with a ring goes away, a line end becomes a space.
  const LoadedTokenizer t = with_map(v, charsmap({{"\uFB01", "fi"}, {"\u00C5", ""}, {"\n", " "}}));
  CHECK(t->encode("a\uFB01a", kPlain) == Ids{a, f, i, a});
  CHECK(t->encode("a\u00C5\na", kPlain) == Ids{a, s, a});
  CHECK(t->encode("\u00C5", kPlain).empty());
  const PromptText p{"a\uFB01", {{1, 4}}};
  const EncodedPrompt e = t->encode(p, AddSpecial::Never);
  REQUIRE(e.ids == Ids{a, f, i});
  CHECK(e.sources[1].bytes == TextSpan{1, 4});
  CHECK(e.sources[1].origin == TokenOrigin::User);
}

TEST_CASE("maps that are none are refused, damaged ones are safe", "[ugm]") {
  VocabularyFile v = ugm_vocabulary();
  v.add("a", TokenKind::Normal, -2);
  const std::vector<std::uint8_t> good = charsmap({{"b", "a"}});
  CHECK_NOTHROW(with_map(v, good));
  for (const std::size_t size : {std::size_t{1}, std::size_t{4}, std::size_t{100}, good.size() - 1}) {
    CHECK_THROWS_AS(with_map(v, {good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}), Error);
  }
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::uint8_t> bad = good;
    for (int k = 0; k < 20; ++k) bad[4 + random() % (bad.size() - 5)] = static_cast<std::uint8_t>(random());
    std::string text;
    for (int k = 0; k < 50; ++k) text += static_cast<char>(random());
    CHECK_NOTHROW(with_map(v, bad)->encode(text, kPlain));
  }
}

TEST_CASE("a replacement that would multiply a text is refused", "[ugm]") {
  VocabularyFile v = ugm_vocabulary();
  v.add_space_prefix = false;
  v.add("b");
  const LoadedTokenizer t = with_map(v, charsmap({{"a", std::string(256, 'b')}}));
  CHECK(t->encode("a", kPlain).size() == 256);
  CHECK_THROWS_WITH(with_map(v, charsmap({{"a", std::string(257, 'b')}})),
                    contains("precompiled_charsmap") && contains("a replacement of 257 bytes; at most 256"));
}
