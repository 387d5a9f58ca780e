// Vocabulary model `llama`: pieces by score with byte fallback.
#include <random>

#include "support/catch.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

Token byte_id(unsigned char b) { return 3 + b; }  // in spm_vocabulary()

/// The definition, word by word: join the best scored pair, the leftmost of equals, until no pair is a token.
Ids naive_spm(const VocabularyFile& v, std::string_view text) {
  std::string escaped = "\u2581";
  for (const char c : text) escaped += c == ' ' ? "\u2581" : std::string(1, c);
  const auto id_of = [&](const std::string& s) {
    for (std::size_t i = 0; i < v.texts.size(); ++i) {
      if (v.texts[i] == s && v.kinds[i] == static_cast<int>(TokenKind::Normal)) return static_cast<Token>(i);
    }
    return kNoToken;
  };
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < escaped.size();) {
    const std::size_t n = static_cast<unsigned char>(escaped[i]) == 0xE2 ? 3 : 1;  // ASCII and U+2581 only
    parts.push_back(escaped.substr(i, n));
    i += n;
  }
  for (;;) {
    std::size_t best = parts.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const Token id = id_of(parts[i] + parts[i + 1]);
      if (id == kNoToken) continue;
      const auto score = [&](std::size_t at) {
        return v.scores[static_cast<std::size_t>(id_of(parts[at] + parts[at + 1]))];
      };
      if (best == parts.size() || score(i) > score(best)) best = i;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) {
    if (const Token id = id_of(part); id != kNoToken) {
      ids.push_back(id);
    } else {
      for (const char c : part) ids.push_back(byte_id(static_cast<unsigned char>(c)));
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("pieces join by score, the leftmost of equals first", "[spm]") {
  VocabularyFile v = spm_vocabulary();  // ids from 259: _ a b c ab _a abc _b with scores -1 ... -8
  v.add_space_prefix = false;
  const Token bc = v.add("bc", TokenKind::Normal, -0.5f), aa = v.add("aa", TokenKind::Normal, -20);
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("ab", kPlain) == Ids{263});
  CHECK(t->encode("bc", kPlain) == Ids{bc});
  CHECK(t->encode("abc", kPlain) == Ids{265});  // bc before ab, then a+bc
  CHECK(t->encode("abcb", kPlain) == Ids{265, 261});
  CHECK(t->encode("aaa", kPlain) == Ids{aa, 260});
  CHECK(t->encode("", kPlain).empty());
}

TEST_CASE("spaces become U+2581, with one in front where the file asks", "[spm]") {
  VocabularyFile v = spm_vocabulary();
  CHECK(v.load()->encode("a b", kPlain) == Ids{264, 266});
  CHECK(v.load()->encode(" a", kPlain) == Ids{259, 264});
  CHECK(v.load()->encode("", {}) == Ids{1});  // BOS alone
  v.add_space_prefix = false;
  CHECK(v.load()->encode("a b", kPlain) == Ids{260, 266});
  CHECK(v.load()->encode(" a", kPlain) == Ids{264});
  v.remove_extra_whitespaces = true;
  CHECK(v.load()->encode("  a   b  ", kPlain) == Ids{260, 266});
  CHECK(v.load()->encode("   ", kPlain).empty());
}

TEST_CASE("characters without a token go through as bytes and come back", "[spm]") {
  const LoadedTokenizer t = spm_vocabulary().load();
  CHECK(t->encode("\u00e9", kPlain) == Ids{259, byte_id(0xC3), byte_id(0xA9)});
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  CHECK(t->decode(t->encode(all, kPlain)) == all);
  for (const char* bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "a\xE6\xAD",
                          "\xE6\xAD"
                          "b"}) {
    CHECK(t->decode(t->encode(bad, kPlain)) == bad);
  }
  CHECK(t->encode("\xE6"
                  "a",
                  kPlain) == Ids{259, byte_id(0xE6), 260});  // a bad byte takes nothing with it
}

TEST_CASE("the spelling of a byte or control token is text", "[spm]") {
  VocabularyFile v = spm_vocabulary();
  for (const char* piece : {"<", "/", "s", ">", "</", "s>", "0", "x", "A", "<0", "xA", "<0xA"}) {
    v.add(piece, TokenKind::Normal, -30);
  }
  const LoadedTokenizer t = v.load();
  for (const char* text : {"</s>", "<s>", "<0x0A>", "<0x00>", "a</s>b"}) {
    for (const Token id : t->encode(text, kPlain)) {
      CHECK(t->kind(id) != TokenKind::Control);
      CHECK(t->piece(id) != "\n");
    }
    CHECK(t->decode(t->encode(text, kPlain)) == text);
  }
}

TEST_CASE("without byte tokens an unknown character is one unknown token", "[spm]") {
  VocabularyFile v;
  v.add("<unk>", TokenKind::Unknown);
  v.add("<s>", TokenKind::Control);
  v.add("\u2581");
  v.add("a");
  v.unk = 0, v.bos = 1;
  const LoadedTokenizer t = v.load();
  CHECK(t.warnings.empty());
  CHECK(t->encode("a\u20ac\U0001F600"
                  "a",
                  kPlain) == Ids{2, 3, 0, 0, 3});
  CHECK(t->encode("b", {}) == Ids{1, 2, 0});
}

TEST_CASE("random vocabularies encode as the definition says", "[spm]") {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int round = 0; round < 40; ++round) {
    VocabularyFile v = spm_vocabulary();
    v.texts.resize(259), v.kinds.resize(259), v.scores.resize(259);
    std::vector<std::string> pieces = {"a", "b", "c", "\u2581"};
    for (const std::string& piece : pieces) v.add(piece, TokenKind::Normal, -100);
    for (int i = 0; i < 30; ++i) {  // pieces across spaces as well: "a_b"
      const std::string joined = pieces[below(pieces.size())] + pieces[below(pieces.size())];
      if (joined.size() > 12 || std::find(v.texts.begin(), v.texts.end(), joined) != v.texts.end()) continue;
      if (round % 2 == 0 && joined.find("\u2581", 1) != std::string::npos) continue;
      pieces.push_back(joined);
      v.add(joined, TokenKind::Normal, -static_cast<float>(below(12)));
    }
    const LoadedTokenizer t = v.load();
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (std::size_t n = 1 + below(i < 15 ? 20 : 200); n > 0; --n) text += "aabbc d"[below(7)];
      REQUIRE(t->encode(text, kPlain) == naive_spm(v, text));
    }
  }
}
