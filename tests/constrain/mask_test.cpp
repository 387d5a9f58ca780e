// Masks against every token fed byte by byte, on real vocabularies; the places that a constraint keeps.
#include <cstdlib>
#include <random>

#include "base/utf8.h"
#include "constrain/constraint.h"
#include "gguf/file.h"
#include "matching.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace llm;
using namespace llm::test;

namespace {

struct Loaded {
  GgufFile file;
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const TokenTree> tree;
};

Loaded load(const std::filesystem::path& path) {
  Warnings warnings;
  GgufFile file = GgufFile::open(path, warnings);
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::load(file.metadata(), warnings);
  auto tree = std::make_shared<const TokenTree>(*tokenizer);
  return {std::move(file), std::move(tokenizer), std::move(tree)};
}

Loaded sample() { return load(source_dir() / "models/samples/fable-dense.gguf"); }

std::shared_ptr<TokenMasks> masks_of(Grammar grammar, const Loaded& vocabulary) {
  return std::make_shared<TokenMasks>(std::make_shared<const Grammar>(std::move(grammar)), vocabulary.tree);
}

bool has(std::span<const std::uint64_t> bits, Token token) {
  const auto t = static_cast<std::size_t>(token);
  return (bits[t / 64] >> (t % 64) & 1) != 0;
}

/// Each token by itself: its bytes through the stacks from where they are; end tokens where the text is complete.
TokenBits brute_force(const Tokenizer& tokenizer, Stacks& stacks, Stacks::StandingId at) {
  TokenBits bits((tokenizer.n_vocab() + 63) / 64);
  for (std::size_t t = 0; t < tokenizer.n_vocab(); ++t) {
    const auto token = static_cast<Token>(t);
    bool ok = false;
    if (tokenizer.is_end_of_generation(token)) {
      ok = stacks.standing(at).complete;
    } else if (tokenizer.kind(token) != TokenKind::Control && tokenizer.kind(token) != TokenKind::Unknown) {
      const std::string piece = tokenizer.piece(token);
      Stacks::StandingId s = piece.empty() ? Stacks::kNowhere : at;
      for (const char c : piece) {
        if (s != Stacks::kNowhere) s = stacks.step(s, static_cast<std::uint8_t>(c));
      }
      ok = s != Stacks::kNowhere;
    }
    if (ok) bits[t / 64] |= std::uint64_t{1} << (t % 64);
  }
  return bits;
}

/// Walks through random texts of the grammar and compares all masks on the way. Returns the texts.
std::vector<std::string> compare_on_random_walks(Grammar compiled, const Loaded& vocabulary, int walks, int longest) {
  const Grammar grammar = compiled;
  const auto masks = masks_of(std::move(compiled), vocabulary);
  std::mt19937 random(17);
  std::vector<std::string> texts;
  for (int walk = 0; walk < walks; ++walk) {
    Constraint constraint(masks);
    Stacks stacks(grammar);
    Stacks::StandingId at = stacks.begin();
    std::string text;
    for (int i = 0; i < longest && !constraint.must_end(); ++i) {
      const TokenBits expected = brute_force(*vocabulary.tokenizer, stacks, at);
      const std::span<const std::uint64_t> got = constraint.allowed();
      REQUIRE(got.size() == expected.size());
      std::vector<Token> possible;
      for (std::size_t t = 0; t < vocabulary.tokenizer->n_vocab(); ++t) {
        const auto token = static_cast<Token>(t);
        if (has(got, token) != has(expected, token)) {
          FAIL("after \"" << text << "\": token " << t << " \"" << vocabulary.tokenizer->piece(token) << "\" should be "
                          << (has(expected, token) ? "allowed" : "forbidden"));
        }
        if (has(got, token) && !vocabulary.tokenizer->is_end_of_generation(token)) possible.push_back(token);
      }
      if (possible.empty()) break;
      // Long tokens are rare among the possible ones, and the interesting ones.
      Token next = possible[random() % possible.size()];
      for (int more = 0; more < 3; ++more) {
        const Token other = possible[random() % possible.size()];
        if (vocabulary.tokenizer->piece(other).size() > vocabulary.tokenizer->piece(next).size()) next = other;
      }
      REQUIRE(constraint.accept(next));
      const std::string piece = vocabulary.tokenizer->piece(next);
      for (const char c : piece) at = stacks.step(at, static_cast<std::uint8_t>(c));
      text += piece;
      REQUIRE(may_begin(grammar, text));
    }
    CHECK(constraint.can_end() == matches(grammar, text));
    texts.push_back(text);
  }
  return texts;
}

constexpr const char* kSmallJson = R"gbnf(
root   ::= object
value  ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( string ":" ws value ws ( "," ws string ":" ws value ws )* )? "}"
array  ::= "[" ws ( value ws ( "," ws value ws )* )? "]"
string ::= "\"" ( [^"\\\x00-\x1f] | "\\" ( ["\\/bfnrt] | "u" [0-9a-fA-F]{4} ) )* "\""
number ::= "-"? ( "0" | [1-9] [0-9]* ) ( "." [0-9]+ )? ( [eE] [-+]? [0-9]+ )?
ws     ::= [ \t\n\r]{0,20}
)gbnf";

constexpr const char* kGrammars[] = {
    kSmallJson,
    "root ::= \"\\\"\" [^\"]{0,40} \"\\\"\"",                     // counted
    "root ::= ([a-z]{20} \" \"){20,}",                            // nested counters, least numbers
    "root ::= [a-z]+ | [a-f]+ \" \" root | \"the \" root \".\"",  // ambiguous
    "root ::= (\"- \" [^\\n]+ \"\\n\")+",                         // lists
    "root ::= [α-ωΑ-Ω ]+ | [ぁ-ゟ]+ | [😀-🙏]+",                    // parts of characters
    "root ::= \"(\" root \")\" root | \"x\"?",
    // Counted, with both bounds so near that a token may reach them.
    "root ::= \"\\\"\" [^\"]{3,30} \"\\\"\"",
    "root ::= ([a-z] | \"é\" | \"The \"){13,17} [a-z0-9]{2} [ .]+",
};

}  // namespace

TEST_CASE("masks are what every token by itself says", "[masks]") {
  const Loaded vocabulary = sample();
  for (const char* text : kGrammars) {
    INFO(text);
    compare_on_random_walks(grammar_from_gbnf(text), vocabulary, 5, 40);
  }
}

TEST_CASE("masks of large vocabularies", "[masks]") {
  const auto archive = shared_file("data/tokenizers/vocabs.tar.xz");
  if (!archive) return;
  const TempDir folder;
  for (const std::string name : {"llama-bpe", "llama-spm"}) {
    INFO(name);
    const std::string member = "ggml-vocab-" + name + ".gguf";
    const std::string command = "tar -xJf '" + archive->string() + "' -C '" + folder.path().string() + "' " + member;
    REQUIRE(std::system(command.c_str()) == 0);
    const Loaded vocabulary = load(folder / member);
    for (const std::size_t i : {0u, 1u, 5u, 7u, 8u})
      compare_on_random_walks(grammar_from_gbnf(kGrammars[i]), vocabulary, 1, 16);
  }
}

TEST_CASE("tokens that split characters make whole characters", "[masks]") {
  // Bytes of these characters are tokens of their own in the sample's vocabulary.
  const Loaded vocabulary = sample();
  const std::string cases[] = {"root ::= [ぁ-ゟ]{4}", "root ::= \"😀\" [à-ÿ]{2} | [Ѐ-ӿ]{3}"};
  for (const std::string& text : cases) {
    for (const std::string& written : compare_on_random_walks(grammar_from_gbnf(text), vocabulary, 8, 60)) {
      CHECK(matches(grammar_from_gbnf(text), written));
      CHECK(utf8::valid(written));
    }
  }
}

TEST_CASE("a constraint can be copied and rewound", "[constraint]") {
  const Loaded vocabulary = sample();
  const auto masks = masks_of(grammar_from_gbnf(kSmallJson), vocabulary);
  Constraint constraint(masks);
  std::vector<TokenBits> seen;
  const std::vector<Token> tokens = vocabulary.tokenizer->encode("{\"name\": [1, {\"é\": \"x\\n\"}], \"b\": -2.5}",
                                                                 {.add_special = false, .parse_special = false});
  std::vector<Token> text_tokens;  // a space that the tokenizer adds is no part of the text
  for (const Token t : tokens) {
    if (!text_tokens.empty() || vocabulary.tokenizer->piece(t) != " ") text_tokens.push_back(t);
  }
  for (const Token t : text_tokens) {
    seen.emplace_back(constraint.allowed().begin(), constraint.allowed().end());
    CHECK_FALSE(constraint.must_end());
    REQUIRE(constraint.accept(t));
  }
  CHECK(constraint.accepted() == text_tokens.size());
  CHECK(constraint.can_end());
  CHECK(constraint.must_end());
  CHECK_FALSE(constraint.accept(text_tokens[0]));
  CHECK_FALSE(constraint.accept(-1));
  CHECK_FALSE(constraint.accept(static_cast<Token>(vocabulary.tokenizer->n_vocab())));

  Constraint copy = constraint;
  for (std::size_t n = text_tokens.size(); n > 0; --n) {
    copy.rewind(1);
    CHECK(copy.accepted() == n - 1);
    const auto bits = copy.allowed();
    CHECK(TokenBits(bits.begin(), bits.end()) == seen[n - 1]);
  }
  for (const Token t : text_tokens) REQUIRE(copy.accept(t));
  CHECK(copy.must_end());
  CHECK(constraint.must_end());
}

TEST_CASE("a text may end only where the grammar may", "[constraint]") {
  const Loaded vocabulary = sample();
  const auto masks = masks_of(grammar_from_gbnf("root ::= \"a\" \"b\"?"), vocabulary);
  const std::span<const Token> ends = vocabulary.tree->end_tokens();
  REQUIRE_FALSE(ends.empty());
  const auto token = [&](std::string_view text) {
    for (std::size_t t = 0; t < vocabulary.tokenizer->n_vocab(); ++t) {
      if (vocabulary.tokenizer->piece(static_cast<Token>(t)) == text) return static_cast<Token>(t);
    }
    return kNoToken;
  };
  Constraint constraint(masks);
  for (const Token end : ends) CHECK_FALSE(has(constraint.allowed(), end));
  CHECK_FALSE(constraint.accept(ends[0]));
  REQUIRE(constraint.accept(token("a")));
  for (const Token end : ends) CHECK(has(constraint.allowed(), end));
  CHECK(has(constraint.allowed(), token("b")));
  CHECK_FALSE(constraint.must_end());
  REQUIRE(constraint.accept(token("b")));
  CHECK(constraint.must_end());
  CHECK(has(constraint.allowed(), ends[0]));
}

TEST_CASE("a vocabulary that cannot write what must come is named", "[constraint]") {
  const auto path = shared_file("data/models/babyllama-tok105-f32.gguf");
  if (!path) return;
  const Loaded vocabulary = load(*path);  // letters only, and no tokens for bytes
  Constraint constraint(masks_of(grammar_from_gbnf("root ::= \"😀\""), vocabulary));
  CHECK_THROWS_WITH(constraint.allowed(), contains("no token begins with what must come next (\"😀\")"));
  Constraint range(masks_of(grammar_from_regex("[\\u0410-\\u0412]\\x04?|\\x04"), vocabulary));
  try {
    range.allowed();
    FAIL("allowed");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Notation);
    CHECK_THAT(e.what(), contains("the form of the answer: this model's vocabulary cannot write it") &&
                             contains("\"\\x04\"") && contains("\"А\""));
  }
}
