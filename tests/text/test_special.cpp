// Special tokens: markup and plain text, BOS and EOS, the ends of a generation.
#include "support/catch.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {}  // namespace

TEST_CASE("control tokens are markup only where asked, user-defined tokens always match", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  const Token user = v.add("<tool>", TokenKind::UserDefined);
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("ab<|endoftext|>ab", kMarkup) == Ids{256, 258, 256});
  CHECK(t->decode(t->encode("ab<|endoftext|>ab", kPlain)) == "ab<|endoftext|>ab");
  for (const Token id : t->encode("ab<|endoftext|>ab", kPlain)) CHECK(t->kind(id) != TokenKind::Control);
  CHECK(t->encode("a<tool>b", kMarkup) == Ids{'a', user, 'b'});
  CHECK(t->encode("a<tool>b", kPlain) == Ids{'a', user, 'b'});
}

TEST_CASE("text cannot reach a control token by merges or as a whole chunk", "[special]") {
  for (const char* pre : {"gpt-2", "llama-bpe"}) {
    VocabularyFile v = bpe_vocabulary(pre);
    v.kinds[257] = static_cast<int>(TokenKind::Control);  // "abc"
    v.add_bos = false;
    const LoadedTokenizer t = v.load();
    CHECK(t->encode("abc", kPlain) == Ids{256, 'c'});
    CHECK(t->encode("abc", kMarkup) == Ids{257});
  }
}

TEST_CASE("the longest special token wins, from left to right", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  const Token one = v.add("<x>", TokenKind::Control), two = v.add("<x><x>", TokenKind::Control);
  const Token spaces = v.add("   ", TokenKind::UserDefined), single = v.add("~", TokenKind::UserDefined);
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("<x><x><x>", kMarkup) == Ids{two, one});
  CHECK(t->encode("<x><x", kMarkup) == Ids{one, '<', 'x'});
  CHECK(t->encode("a     ~", kPlain) == Ids{'a', spaces, ' ', ' ', single});
}

TEST_CASE("equal token strings: the first id is used", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  const Token first = v.add("<x>", TokenKind::Control);
  v.add("<x>", TokenKind::Control);
  v.add("ab");
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("ab<x>", kMarkup) == Ids{256, first});
  REQUIRE(t.warnings.size() == 1);
  CHECK(t.warnings[0].code == "duplicate-tokens");
}

TEST_CASE("BOS and EOS as the flags ask, and the defaults of each model", "[special]") {
  VocabularyFile v = spm_vocabulary();
  CHECK(v.load()->encode("a") == Ids{1, 264});
  CHECK(v.load()->encode("a", kMarkup) == Ids{264});
  v.add_bos = false, v.add_eos = true;
  CHECK(v.load()->encode("a") == Ids{264, 2});
  CHECK(v.load()->encode("a</s>") == Ids{264, 2});
  v.add_bos.reset(), v.bos.reset(), v.eos.reset(), v.add_eos.reset();
  CHECK(v.load()->special().bos == 1);  // by its text
  CHECK(v.load()->special().eos == 2);

  CHECK(bpe_vocabulary("gpt-2").load()->encode("ab") == Ids{256});
  CHECK(bpe_vocabulary("llama-bpe").load()->encode("ab") == Ids{258, 256});
  VocabularyFile with = bpe_vocabulary("qwen2");
  with.add_bos = true, with.add_eos = true;
  CHECK(with.load()->encode("") == Ids{258, 258});
}

TEST_CASE("text after a special token starts with a space of its own", "[special]") {
  const LoadedTokenizer t = spm_vocabulary().load();
  CHECK(t->encode("a</s>a</s>b", kMarkup) == Ids{264, 2, 264, 2, 266});
}

TEST_CASE("tokens that end a generation", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  const Token end = v.add("<|im_end|>", TokenKind::Control), turn = v.add("<end_of_turn>", TokenKind::Control);
  const Token start = v.add("<|im_start|>", TokenKind::Control), plain = v.add("</s>");
  v.eos = static_cast<std::uint32_t>(start);
  const LoadedTokenizer t = v.load();
  for (const Token id : {258, end, turn, start}) CHECK(t->is_end_of_generation(id));  // start: named as EOS
  for (const Token id : {Token{'a'}, 256, plain}) CHECK_FALSE(t->is_end_of_generation(id));
  CHECK_FALSE(t->is_end_of_generation(kNoToken));
  CHECK(t->special().eot == end);

  VocabularyFile parts = bpe_vocabulary();  // a message of several parts
  const Token part_end = parts.add("<|end|>", TokenKind::Control),
              answer_end = parts.add("<|return|>", TokenKind::Control);
  const Token call = parts.add("<|call|>", TokenKind::Control);
  const LoadedTokenizer p = parts.load();
  CHECK_FALSE(p->is_end_of_generation(part_end));
  CHECK(p->is_end_of_generation(answer_end));
  CHECK(p->is_end_of_generation(call));
}

TEST_CASE("an end-of-turn text with the wrong type becomes a control token, with a warning", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  const Token end = v.add("<|im_end|>");
  const LoadedTokenizer t = v.load();
  CHECK(t->kind(end) == TokenKind::Control);
  CHECK(t->encode("<|im_end|>", kMarkup) == Ids{end});
  REQUIRE(t.warnings.size() == 1);
  CHECK(t.warnings[0].text.find("<|im_end|>") != std::string::npos);
}

TEST_CASE("without token types the special tokens are known by id and text", "[special]") {
  VocabularyFile v = spm_vocabulary();
  v.with_kinds = false;
  const LoadedTokenizer t = v.load();
  CHECK(t.warnings.empty());
  CHECK(t->kind(0) == TokenKind::Unknown);
  CHECK(t->kind(1) == TokenKind::Control);
  CHECK(t->piece(3 + '!') == "!");
  CHECK(t->encode("!", {}) == Ids{1, 259, 3 + '!'});
}

TEST_CASE("marks of turns are control tokens, even where a file types them as user-defined", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  const Token start = v.add("<start_of_turn>", TokenKind::UserDefined), tool = v.add("<tool>", TokenKind::UserDefined);
  const LoadedTokenizer t = v.load();
  CHECK(t.warnings.empty());
  CHECK(t->kind(start) == TokenKind::Control);
  CHECK(t->encode("<start_of_turn>", kMarkup) == Ids{start});
  for (const Token id : t->encode("<start_of_turn>model", kPlain)) CHECK(id != start);
  CHECK(t->encode("<tool>", kPlain) == Ids{tool});
}

TEST_CASE("a mask token swallows the white space before it where its tokenizer does", "[special]") {
  VocabularyFile v = bpe_vocabulary("roberta-bpe");
  const Token mask = v.add("<mask>", TokenKind::Control);
  CHECK(v.load()->encode("a \t<mask> b", kMarkup) == Ids{'a', mask, ' ', 'b'});
  CHECK(v.load()->encode(" <mask>", kMarkup) == Ids{mask});
  v.pre = "gpt-2";
  CHECK(v.load()->encode("a <mask>", kMarkup) == Ids{'a', ' ', mask});
}

TEST_CASE("special tokens of great length, with zero bytes, or one the beginning of the other", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  const std::string text = "<" + std::string(100000, 'x') + ">";
  const Token longest = v.add(text, TokenKind::Control), opening = v.add("<xx", TokenKind::Control);
  const Token zero = v.add(std::string("<\0>", 3), TokenKind::Control);
  const LoadedTokenizer t = v.load();
  CHECK(t->encode(text + "a" + text, kMarkup) == Ids{longest, 'a', longest});
  CHECK(t->encode("<xxx", kMarkup) == Ids{opening, 'x'});
  CHECK(t->encode(std::string("a<\0>\0", 5), kMarkup) == Ids{'a', zero, 0});
  CHECK(t->encode(text, kPlain).size() == text.size());
}

TEST_CASE("user-defined tokens of byte-level vocabularies are their text, not bytes", "[special]") {
  VocabularyFile v = bpe_vocabulary();
  v.texts[0xFC] = "unused", v.kinds[0xFC] = static_cast<std::int32_t>(TokenKind::Unused);
  const Token umlaut = v.add("\u00fc", TokenKind::UserDefined);  // the character that stands for byte 0xFC elsewhere
  const LoadedTokenizer t = v.load();
  CHECK(t->encode("a\u00fcb", kPlain) == Ids{'a', umlaut, 'b'});
  CHECK(t->decode(Ids{umlaut}) == "\u00fc");
  CHECK(t->encode("\xFC", kPlain).empty());
}
