// The stream decoder and whole-sequence decoding.
#include <map>

#include "base/utf8.h"
#include "support/catch.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

std::string stream(const Tokenizer& tokenizer, const std::vector<Token>& tokens,
                   StreamStart start = StreamStart::Beginning) {
  StreamDecoder decoder(tokenizer, start);
  std::string out;
  for (const Token t : tokens) out += decoder.push(t);
  return out + decoder.finish();
}

std::vector<Token> byte_tokens(std::string_view bytes) {
  std::vector<Token> ids;
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));  // id = byte in bpe_vocabulary()
  return ids;
}

}  // namespace

TEST_CASE("a stream gives out whole characters for every way to cut a text into tokens", "[stream]") {
  const std::string text = "a\u00e9\u20ac\U0001F600";  // 1 + 2 + 3 + 4 bytes
  const std::size_t boundaries[] = {0, 1, 3, 6, 10};
  VocabularyFile v = bpe_vocabulary();
  std::map<std::pair<std::size_t, std::size_t>, Token> token;  // of every stretch of the text
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t end = begin + 1; end <= text.size(); ++end) {
      token[{begin, end}] = v.add(byte_characters(text.substr(begin, end - begin)));
    }
  }
  const LoadedTokenizer t = v.load();
  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    StreamDecoder decoder(*t);
    std::string out;
    std::size_t begin = 0;
    for (std::size_t end = 1; end <= text.size(); ++end) {
      if (end < text.size() && (cuts >> (end - 1) & 1) == 0) continue;
      out += decoder.push(token.at({begin, end}));
      begin = end;
      std::size_t complete = 0;
      for (const std::size_t b : boundaries) complete = b <= end ? b : complete;
      REQUIRE(out == text.substr(0, complete));
    }
    REQUIRE(decoder.finish().empty());
    REQUIRE(out == text);
  }
}

TEST_CASE("bytes that never become UTF-8 come out as the Unicode standard's example has them", "[stream]") {
  const LoadedTokenizer t = bpe_vocabulary().load();
  // The Unicode Standard, section 3.9, table 3-11: one U+FFFD for each maximal subpart.
  const std::string bytes = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
  CHECK(stream(*t, byte_tokens(bytes)) == "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  // Tables 3-8 to 3-10: non-shortest forms, surrogates, and bytes that start nothing.
  CHECK(stream(*t, byte_tokens("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41")) ==
        "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
        "A");
  CHECK(stream(*t, byte_tokens("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41")) ==
        "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
        "A");
  CHECK(stream(*t, byte_tokens("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42")) ==
        "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"
        "A"
        "\uFFFD\uFFFD"
        "B");
  // An end inside a sequence: one replacement, from finish().
  StreamDecoder decoder(*t);
  std::string pushed;
  for (const Token id : byte_tokens("x\xF0\x9F\x98")) pushed += decoder.push(id);
  CHECK(pushed == "x");
  CHECK(decoder.finish() == "\uFFFD");
  CHECK(decoder.finish().empty());
}

TEST_CASE("no character goes on behind a token without text", "[stream]") {
  const LoadedTokenizer t = spm_vocabulary().load();
  const auto byte = [](unsigned b) { return static_cast<Token>(3 + b); };
  const Token end = 2, a = 260;
  CHECK(stream(*t, {byte(0xC3), byte(0xA9)}) == "\u00e9");
  CHECK(stream(*t, {byte(0xC3), end, byte(0xA9)}) == "\uFFFD\uFFFD");
  StreamDecoder decoder(*t);
  (void)decoder.push(byte(0xC3));
  CHECK(decoder.push(end) == "\uFFFD");
  CHECK(decoder.push(a) == "a");
}

TEST_CASE("decoding a sequence keeps its bytes as they are", "[stream]") {
  const LoadedTokenizer t = bpe_vocabulary().load();
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  CHECK(t->decode(byte_tokens(all)) == all);
}

TEST_CASE("the space that a vocabulary adds at the beginning is dropped once", "[stream]") {
  const LoadedTokenizer t = spm_vocabulary().load();
  const Token a = 260, space_a = 264, bos = 1, space_b = 266;
  REQUIRE(t->token_text(space_a) == "\u2581a");
  CHECK(t->decode(std::vector<Token>{space_a, space_b}) == "a b");
  CHECK(t->decode(std::vector<Token>{bos, space_a, space_b}) == "a b");
  CHECK(t->spelling(std::vector<Token>{bos, space_a}) == "<s> a");
  CHECK(t->decode(std::vector<Token>{a, space_a}) == "a a");
  CHECK(stream(*t, {space_a, space_b}) == "a b");
  CHECK(stream(*t, {bos, space_a, space_b}) == "a b");
  CHECK(stream(*t, {space_a, space_b}, StreamStart::Continuation) == " a b");
  CHECK(t->piece(space_a) == " a");

  VocabularyFile without = spm_vocabulary();
  without.add_space_prefix = false;
  CHECK(without.load()->decode(std::vector<Token>{space_a, space_b}) == " a b");
}

TEST_CASE("pieces by kind of token", "[stream]") {
  VocabularyFile v = bpe_vocabulary();
  const Token user = v.add("<tool>", TokenKind::UserDefined);
  const Token unused = v.add("[unused0]", TokenKind::Unused);
  const Token spaced = v.add(byte_characters(" \xC3"));
  const Token unmapped = v.add("\u4e2d");  // not in the byte map: stands for itself
  const LoadedTokenizer t = v.load();
  CHECK(t->piece(258).empty());
  CHECK(t->spelling(258) == "<|endoftext|>");
  CHECK(t->piece(user) == "<tool>");
  CHECK(t->spelling(unused).empty());
  CHECK(t->piece(spaced) == " \xC3");
  CHECK(t->piece(unmapped) == "\u4e2d");
  CHECK(t->token_text(257) == "abc");
  CHECK(t->kind(258) == TokenKind::Control);
  CHECK(t->describe() == "gpt2, pre-tokenizer gpt-2, 263 tokens");
  CHECK_THROWS_AS(t->piece(263), Error);
  CHECK_THROWS_AS(t->piece(-1), Error);
}
