// Vocabulary model `bert`: words of letters, pieces by the longest match.
#include "support/catch.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

VocabularyFile wpm_vocabulary() {
  VocabularyFile v;
  v.model = "bert";
  v.with_scores = false;
  v.add("[PAD]", TokenKind::Control);
  v.add("[UNK]", TokenKind::Unknown);
  v.add("[CLS]", TokenKind::Control);
  v.add("[SEP]", TokenKind::Control);
  // 4 ... : words, and pieces that continue one
  for (const char* t : {"\u2581un", "\u2581hello", "aff", "able", "\u2581,", "\u2581!", "\u2581\u4e2d", "\u2581a",
                        "\u2581cafe", "\u2581caf\u00e9", "e", "\u2581Hello", "\u2581["}) {
    v.add(t);
  }
  return v;
}
enum : Token { kPad, kUnk, kCls, kSep, kUn, kHello, kAff, kAble, kComma, kMark, kMiddle, kA, kCafe, kCaf_e, kE, kBig };

}  // namespace

TEST_CASE("words become the longest pieces, unknown ones one token", "[wpm]") {
  const LoadedTokenizer t = wpm_vocabulary().load();
  CHECK(t.warnings.empty());
  CHECK(t->encode("unaffable", kPlain) == Ids{kUn, kAff, kAble});
  CHECK(t->encode("hello,unaffable!", kPlain) == Ids{kHello, kComma, kUn, kAff, kAble, kMark});
  CHECK(t->encode("unaffableX hello", kPlain) == Ids{kUnk, kHello});
  CHECK(t->encode("affable", kPlain) == Ids{kUnk});  // these pieces do not begin a word
  CHECK(t->encode("a\u4e2da", kPlain) == Ids{kA, kMiddle, kA});
  CHECK(t->encode("", kPlain).empty());
  CHECK(t->encode(" \t\n ", kPlain).empty());
  // 100 characters are a word that is looked up, 101 are not.
  std::string word = "un";
  while (word.size() < 100) word += "e";
  CHECK(t->encode(word, kPlain).size() == 99);
  CHECK(t->encode(word + "e", kPlain) == Ids{kUnk});
}

TEST_CASE("case, accents, controls and text that is not UTF-8", "[wpm]") {
  const LoadedTokenizer t = wpm_vocabulary().load();
  CHECK(t->encode("HELLO Caf\u00c9 cafe\u0301", kPlain) == Ids{kHello, kCafe, kCafe});
  CHECK(t->encode(std::string("he\x01l\0l\xFFo\u200B", 12), kPlain) == Ids{kHello});
  GgufWriter cased = wpm_vocabulary().writer();
  cased.set("tokenizer.ggml.normalizer.lowercase", false);
  const LoadedTokenizer c = load_tokenizer(cased);
  CHECK(c->encode("Hello hello caf\u00e9", kPlain) == Ids{kBig, kHello, kCaf_e});
  CHECK(c->encode("cafe\u0301", kPlain) == Ids{kUnk});
  GgufWriter accents = wpm_vocabulary().writer();
  accents.set("tokenizer.ggml.normalizer.strip_accents", false);
  CHECK(load_tokenizer(accents)->encode("CAF\u00c9", kPlain) == Ids{kCaf_e});
}

TEST_CASE("a text stands between [CLS] and [SEP]; typed, they are text", "[wpm]") {
  VocabularyFile v = wpm_vocabulary();
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("hello", {.add_special = true, .parse_special = false}) == Ids{kCls, kHello, kSep});
  CHECK(t->encode("[SEP]", {.add_special = false, .parse_special = true}) == Ids{kSep});
  for (const Token id : t->encode("[SEP] [CLS]", kPlain)) CHECK(t->kind(id) != TokenKind::Control);
  CHECK(t->decode(Ids{kCls, kUn, kAff, kAble, kHello, kSep}) == "unaffable hello");
}

TEST_CASE("sources of words", "[wpm]") {
  const LoadedTokenizer t = wpm_vocabulary().load();
  const PromptText p{"CAFE\u0301  unaffable", {}};
  const EncodedPrompt e = t->encode(p, AddSpecial::Never);
  REQUIRE(e.ids == Ids{kCafe, kUn, kAff, kAble});
  CHECK(e.sources[0].bytes == TextSpan{0, 4});  // the mark is dropped and goes to what follows
  CHECK(e.sources[1].bytes.end == 10);
  CHECK(e.sources[3].bytes.end == p.text.size());
}
