// Vocabulary model `gpt2`: byte-level pieces by merges.
#include <random>
#include <thread>

#include "support/catch.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

/// The definition: apply the earliest merge, at its leftmost place, until none applies.
Ids naive_bpe(const VocabularyFile& v, std::string_view chunk) {
  std::vector<std::string> parts;
  for (const char c : chunk) parts.emplace_back(1, c);
  const auto rank = [&](std::size_t i) {
    const std::string merge = parts[i] + " " + parts[i + 1];
    return std::find(v.merges->begin(), v.merges->end(), merge) - v.merges->begin();
  };
  for (;;) {
    std::size_t best = parts.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (rank(i) == std::ssize(*v.merges)) continue;
      if (best == parts.size() || rank(i) < rank(best)) best = i;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) {
    ids.push_back(static_cast<Token>(std::find(v.texts.begin(), v.texts.end(), part) - v.texts.begin()));
  }
  return ids;
}

}  // namespace

TEST_CASE("merges apply in the order of the list", "[bpe]") {
  const LoadedTokenizer t = bpe_vocabulary().load();
  CHECK(t.warnings.empty());
  CHECK(t->encode("abc", kPlain) == Ids{257});
  CHECK(t->encode("ab", kPlain) == Ids{256});
  CHECK(t->encode("bc", kPlain) == Ids{'b', 'c'});
  CHECK(t->encode("abab", kPlain) == Ids{256, 256});
  CHECK(t->encode("aabcc", kPlain) == Ids{'a', 257, 'c'});
  CHECK(t->encode("", kPlain).empty());
}

TEST_CASE("every byte has its token and comes back", "[bpe]") {
  const LoadedTokenizer t = bpe_vocabulary().load();
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  CHECK(t->decode(t->encode(all, kPlain)) == all);
  CHECK(t->encode("\xFF\xC3\xA9", kPlain) == Ids{0xFF, 0xC3, 0xA9});
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "ab\xE6\xAD",
                          "\xE6\xAD"
                          "ab"}) {
    CHECK(t->decode(t->encode(bad, kPlain)) == bad);
  }
}

TEST_CASE("a chunk that is a token: at once for llama-bpe, only by merges for gpt-2", "[bpe]") {
  VocabularyFile v = bpe_vocabulary("llama-bpe");
  const Token xyz = v.add("xyz");
  v.add_bos = false;
  CHECK(v.load()->encode("xyz", kPlain) == Ids{xyz});
  CHECK(v.load()->encode("xyza", kPlain) == Ids{'x', 'y', 'z', 'a'});
  v.pre = "gpt-2";
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("xyz", kPlain) == Ids{'x', 'y', 'z'});
  CHECK(t->encode("xyz xyz", kPlain) == Ids{'x', 'y', 'z', ' ', 'x', 'y', 'z'});
}

TEST_CASE("merges that form a cycle terminate", "[bpe]") {
  VocabularyFile v = bpe_vocabulary();
  v.texts.resize(256), v.kinds.resize(256), v.scores.resize(256);
  for (const char* text : {"ab", "ba", "aba", "abab"}) v.add(text);
  v.merges = std::vector<std::string>{"a b", "b a", "ab a", "ab ab"};
  v.bos.reset(), v.eos.reset();
  const LoadedTokenizer t = v.load();
  for (std::size_t n = 1; n <= 200; n += n < 10 ? 1 : 19) {
    std::string text;
    while (text.size() < n) text += text.size() % 2 == 0 ? 'a' : 'b';
    const Ids ids = t->encode(text, kPlain);
    CHECK(ids == naive_bpe(v, text));
    CHECK(ids.size() <= text.size());
    CHECK(t->decode(ids) == text);
  }
}

TEST_CASE("random merges encode as the definition says", "[bpe]") {
  std::mt19937 random(11);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int round = 0; round < 40; ++round) {
    VocabularyFile v = bpe_vocabulary();
    v.texts.resize(256), v.kinds.resize(256), v.scores.resize(256);
    v.bos.reset(), v.eos.reset();
    v.merges = std::vector<std::string>{};
    std::vector<std::string> pieces = {"a", "b", "c"};
    for (int i = 0; i < 25; ++i) {
      const std::string left = pieces[below(pieces.size())], right = pieces[below(pieces.size())];
      const std::string merge = left + " " + right;
      if (left.size() + right.size() > 10) continue;
      if (std::find(v.merges->begin(), v.merges->end(), merge) != v.merges->end()) continue;
      v.merges->insert(v.merges->begin() + static_cast<std::ptrdiff_t>(below(v.merges->size() + 1)), merge);
      if (std::find(v.texts.begin(), v.texts.end(), left + right) != v.texts.end()) continue;
      pieces.push_back(left + right);
      v.add(left + right);
    }
    const LoadedTokenizer t = v.load();
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (std::size_t n = 1 + below(i < 15 ? 20 : 200); n > 0; --n) text += "aabbc"[below(5)];
      REQUIRE(t->encode(text, kPlain) == naive_bpe(v, text));
    }
  }
}

TEST_CASE("a byte that the vocabulary lacks is the unknown token", "[bpe]") {
  VocabularyFile v;
  v.model = "gpt2", v.pre = "gpt-2", v.with_scores = false;
  v.add("a");
  v.merges = std::vector<std::string>{};
  CHECK(v.load()->encode("aba", kPlain) == Ids{0, 0});  // nothing can stand for it
  const Warnings told = v.load().warnings;
  REQUIRE(told.size() == 1);
  CHECK(told[0].code == "missing-bytes");
  // 256, but for "a", 29 control characters and DEL, 13 bytes that UTF-8 has not, 2 of planes without characters.
  CHECK_THAT(told[0].text, contains("no token stands for 210 bytes (from \"\\x09\" on)"));
  v.unk = static_cast<std::uint32_t>(v.add("<unk>", TokenKind::Unknown));
  CHECK(v.load()->encode("aba", kPlain) == Ids{0, 1, 0});
  CHECK(v.load().warnings.empty());
  v.unk = static_cast<std::uint32_t>(v.add("<end>", TokenKind::Control));  // as some files say
  CHECK(v.load()->encode("aba", kPlain) == Ids{0, 0});
}

TEST_CASE("of missing bytes those are told that texts have", "[bpe]") {
  VocabularyFile v = bpe_vocabulary();
  for (const unsigned never : {0x00u, 0x1Fu, 0x7Fu, 0xC0u, 0xC1u, 0xF1u, 0xF2u, 0xF5u, 0xFFu})
    v.texts[never] = "unused" + std::to_string(never);
  CHECK(v.load().warnings.empty());
  v.texts[0xE9] = "unused";
  const LoadedTokenizer t = v.load();
  REQUIRE(t.warnings.size() == 1);
  CHECK_THAT(t.warnings[0].text, contains("no token stands for 1 byte (from \"\\xe9\" on)"));
  CHECK(t->encode("a\xE9z", kPlain) == Ids{'a', 'z'});
}

TEST_CASE("long runs and hostile text come back", "[bpe]") {
  const LoadedTokenizer spm = spm_vocabulary().load();
  std::string zwj;
  for (int i = 0; i < 20000; ++i) zwj += "\U0001F469\u200D";
  std::string marks;
  for (int i = 0; i < 50000; ++i) marks += "\u0301";
  std::string noise;
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) noise += static_cast<char>(random());
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "smollm", "default"}) {
    const LoadedTokenizer t = bpe_vocabulary(pre).load();
    for (const std::string& text : {std::string(200000, 'A'), std::string(200000, '\n'), std::string(100000, ' '),
                                    std::string(100000, '7'), std::string(100000, '!'), zwj, marks, noise}) {
      CHECK(t->decode(t->encode(text, kPlain)) == text);
    }
  }
  for (const std::string& text : {std::string(200000, 'a'), std::string(100000, ' '), zwj, noise}) {
    CHECK(spm->decode(spm->encode(text, kPlain)) == text);
  }
}

TEST_CASE("threads that share a tokenizer get the same ids", "[bpe]") {
  std::string text;
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) text += "aabbcc  \n"[random() % 9];
  const Ids expected = bpe_vocabulary().load()->encode(text, kPlain);
  const LoadedTokenizer shared = bpe_vocabulary().load();
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = shared->encode(text, kPlain); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) CHECK(result == expected);
}

TEST_CASE("bytes that a text loses are told by their values", "[bpe]") {
  VocabularyFile v = bpe_vocabulary();
  v.texts[0x04] = "unused4", v.texts[0xF1] = "unusedF1", v.texts['y'] = "unusedY";
  v.add("<y>", TokenKind::UserDefined);
  const LoadedTokenizer t = v.load();
  using Lost = std::map<std::uint8_t, std::size_t>;
  const auto lost = [&](const std::string& text) { return t->lost_bytes(text, t->encode(text, kPlain)); };
  CHECK(lost("a\x04z \xF1\x80\x80\x80 \x04").size() == 2);
  CHECK(lost("a\x04z \xF1\x80\x80\x80 \x04") == Lost{{0x04, 2}, {0xF1, 1}});
  CHECK(lost("ab z").empty());
  CHECK(lost("<y>").empty());  // where a token has it, nothing is lost
  CHECK(lost("<y>y") == Lost{{'y', 1}});
  v.unk = static_cast<std::uint32_t>(v.add("<unk>", TokenKind::Unknown));
  const LoadedTokenizer with_unknown = v.load();
  CHECK(with_unknown->lost_bytes("\x04", with_unknown->encode("\x04", kPlain)).empty());
}
