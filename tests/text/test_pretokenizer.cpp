// How each rule cuts text; the expected chunks follow from the published expressions by hand.
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/paths.h"
#include "text/pretokenizer.h"

using namespace llm;

namespace {

using Chunks = std::vector<std::string>;

Chunks chunks(std::string_view rule, std::string_view text) {
  const PreTokenizerRule* found = find_pretokenizer(rule);
  REQUIRE(found != nullptr);
  const PreTokenizer splitter(*found);
  PatternScratch scratch;
  Chunks out;
  splitter.split(text, scratch, [&](std::string_view chunk) { out.emplace_back(chunk); });
  return out;
}

std::string repeated(std::string_view part, std::size_t n) {
  std::string out;
  while (n-- > 0) out += part;
  return out;
}

}  // namespace

TEST_CASE("gpt-2 chunks", "[pretokenizer]") {
  CHECK(chunks("gpt-2", "Hello  world's 123!") == Chunks{"Hello", " ", " world", "'s", " 123", "!"});
  CHECK(chunks("gpt-2", "I'LL we'll") == Chunks{"I", "'", "LL", " we", "'ll"});  // lower case only
  CHECK(chunks("gpt-2", "a \n b\t") == Chunks{"a", " \n", " b", "\t"});
  CHECK(chunks("gpt-2", "\nx\n\n\ny") == Chunks{"\n", "x", "\n\n", "\n", "y"});
  CHECK(chunks("gpt-2", "caf\u00e9\u0301 \u0968\u00bd") == Chunks{"caf\u00e9", "\u0301", " \u0968\u00bd"});
}

TEST_CASE("llama-bpe chunks", "[pretokenizer]") {
  CHECK(chunks("llama-bpe", "1234567 12") == Chunks{"123", "456", "7", " ", "12"});
  CHECK(chunks("llama-bpe", "We'RE it'S") == Chunks{"We", "'RE", " it", "'S"});
  CHECK(chunks("llama-bpe", "a.b !c") == Chunks{"a", ".b", " !", "c"});
  CHECK(chunks("llama-bpe", "x  \r\n\r\n  y") == Chunks{"x", "  \r\n\r\n", " ", " y"});
  CHECK(chunks("llama-bpe", "...\n\nz   ") == Chunks{"...\n\n", "z", "   "});
  // Unicode case folding: U+017F folds to s.
  CHECK(chunks("llama-bpe", "it'\u017F") == Chunks{"it", "'\u017F"});
}

TEST_CASE("qwen2, smollm and default chunks", "[pretokenizer]") {
  CHECK(chunks("qwen2", "x12 3") == Chunks{"x", "1", "2", " ", "3"});
  CHECK(chunks("qwen2", "don'T\n\n") == Chunks{"don", "'T", "\n\n"});
  CHECK(chunks("smollm", "x12 3a") == Chunks{"x", "1", "2", " ", "3", "a"});
  CHECK(chunks("smollm", "a 4b") == Chunks{"a", " ", "4", "b"});
  CHECK(chunks("default", "ab, 1234 c=d") == Chunks{"ab", ",", " ", "123", "4", " c", "=", "d"});
}

TEST_CASE("white space is Unicode's: U+0085 and U+3000 are, U+180E and U+200B are not", "[pretokenizer]") {
  CHECK(chunks("gpt-2", "a\u0085\u3000b") == Chunks{"a", "\u0085", "\u3000", "b"});
  CHECK(chunks("gpt-2", "a\u180E\u200Bb") == Chunks{"a", "\u180E\u200B", "b"});
}

TEST_CASE("bytes that are not UTF-8 are chunks of their own", "[pretokenizer]") {
  CHECK(chunks("gpt-2",
               "ab\xFF\xFE"
               "cd \xE2\x82") == Chunks{"ab", "\xFF\xFE", "cd", " ", "\xE2\x82"});
}

TEST_CASE("chunks are not empty and join to the text", "[pretokenizer]") {
  std::mt19937 random(1);
  const std::vector<std::string> parts = {"a",    "Z",        "9",      " ",          "\n",     "\r",     "'",    "s",
                                          "ll",   ".",        "\u00e9", "\u0301",     "\u4e2d", "\u3000", "\t",   "$",
                                          "\xC3", "\xF0\x9F", "\x80",   "\U0001F600", "\u0663", "\u200D", "\xFF", "VE"};
  for (const char* rule : {"default", "gpt-2", "llama-bpe", "qwen2", "smollm"}) {
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (auto n = random() % 60; n > 0; --n) text += parts[random() % parts.size()];
      std::string joined;
      for (const std::string& chunk : chunks(rule, text)) {
        REQUIRE(!chunk.empty());
        joined += chunk;
      }
      REQUIRE(joined == text);
    }
  }
}

TEST_CASE("every rule cuts as the tokenizers package does by the published expressions", "[pretokenizer]") {
  std::ifstream in(test::source_dir() / "tests/text/pretokenizer_golden.json");
  const auto golden = nlohmann::json::parse(in);
  const auto texts = golden.at("texts").get<std::vector<std::string>>();
  for (const auto& [rule, rows] : golden.at("rules").items()) {
    REQUIRE(rows.size() == texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Chunks expected;
      std::size_t at = 0;
      for (const std::size_t length : rows[i]) {
        expected.push_back(texts[i].substr(at, length));
        at += length;
      }
      INFO(rule << ", text " << i);
      CHECK(chunks(rule, texts[i]) == expected);
    }
  }
}

TEST_CASE("long runs take time in proportion to their length in every rule", "[pretokenizer]") {
  // A run that is searched again from each of its places would take minutes, or more stack than there is.
  std::set<const PreTokenizerRule*> done;
  for (const std::string_view rule : known_pretokenizers()) {
    if (!done.insert(find_pretokenizer(rule)).second) continue;
    INFO(rule);
    for (const std::string& text :
         {std::string(100000, 'a'), std::string(100000, 'A'), std::string(100000, ' '), std::string(100000, '7'),
          std::string(100000, '\n'), std::string(100000, '!'), std::string(100000, '7') + "x",
          std::string(100000, ' ') + "\u6211", repeated(" \n", 50000), repeated("a ", 50000),
          repeated("\U0001F600", 25000), repeated("\u0301", 50000), repeated("\u4e2d", 100000),
          repeated("e\u0301 ", 25000), repeated("7 ", 50000)}) {
      std::size_t total = 0;
      for (const std::string& chunk : chunks(rule, text)) total += chunk.size();
      CHECK(total == text.size());
    }
  }
}

TEST_CASE("every name that files are known to have has a rule", "[pretokenizer]") {
  for (const char* name : {"default",
                           "minicpm5",
                           "llama3",
                           "llama-v3",
                           "llama-bpe",
                           "falcon3",
                           "falcon-h1",
                           "pixtral",
                           "midm-2.0",
                           "lfm2",
                           "jina-v5-nano",
                           "deepseek-llm",
                           "deepseek-coder",
                           "deepseek-v3",
                           "spark2_5",
                           "youtu",
                           "falcon",
                           "mpt",
                           "starcoder",
                           "gpt-2",
                           "phi-2",
                           "jina-es",
                           "jina-de",
                           "gigachat",
                           "jina-v2-es",
                           "jina-v2-de",
                           "a.x-4.0",
                           "mellum",
                           "modern-bert",
                           "jais-2",
                           "gemma4",
                           "granite-embed-multi-311m",
                           "sarvam-moe",
                           "jina-v1-en",
                           "jina-v2-code",
                           "roberta-bpe",
                           "whitespace",
                           "refact",
                           "command-r",
                           "qwen2",
                           "deepseek-r1-qwen",
                           "kormo",
                           "f2llmv2",
                           "qwen35",
                           "stablelm2",
                           "olmo",
                           "dbrx",
                           "smaug-bpe",
                           "poro-chat",
                           "glm4",
                           "chatglm-bpe",
                           "viking",
                           "jais",
                           "tekken",
                           "smollm",
                           "codeshell",
                           "bloom",
                           "gpt3-finnish",
                           "exaone",
                           "exaone4",
                           "exaone-moe",
                           "chameleon",
                           "minerva-7b",
                           "megrez",
                           "gpt-4o",
                           "llama4",
                           "kanana2",
                           "talkie",
                           "granite-embed-multi-97m",
                           "tiny_aya",
                           "cohere2moe",
                           "superbpe",
                           "trillion",
                           "granite-docling",
                           "bailingmoe",
                           "bailingmoe2",
                           "llada-moe",
                           "seed-coder",
                           "hunyuan",
                           "hunyuan-dense",
                           "hy_v4",
                           "joyai-llm",
                           "kimi-k2",
                           "ufakzeka",
                           "grok-2",
                           "afmoe",
                           "laguna",
                           "minimax-m2",
                           "solar-open",
                           "mellum2"}) {
    CHECK(find_pretokenizer(name) != nullptr);
  }
  for (const char* name : {"llama-bpe", "tekken", "chameleon", "gemma4"}) {
    CHECK(find_pretokenizer(name)->bos == BosRule::Add);
  }
  for (const char* name : {"llama3", "tekken", "glm4", "youtu", "minicpm5", "granite-embed-multi-97m"}) {
    CHECK(find_pretokenizer(name)->words == WordRule::WholeIfToken);
  }
  for (const char* name : {"qwen2", "gpt-4o", "dbrx", "deepseek-v3", "chatglm-bpe"}) {
    CHECK(find_pretokenizer(name)->words == WordRule::Merge);
    CHECK(find_pretokenizer(name)->bos == BosRule::None);
  }
}

TEST_CASE("digits are grouped from the right", "[pretokenizer]") {
  CHECK(chunks("afmoe", "1234567 x12") == Chunks{"1", "234", "567", " x", "12"});
  CHECK(chunks("afmoe", "123456") == Chunks{"123", "456"});
  CHECK(chunks("tiny_aya", "12345 1234a") == Chunks{"12", "345", " ", "123", "4", "a"});
  CHECK(chunks("superbpe", "in 1234567 words") == Chunks{"in ", "1", "234", "567", " words"});
}

TEST_CASE("names: aliases share a rule, unknown ones have neighbours", "[pretokenizer]") {
  CHECK(find_pretokenizer("llama3") == find_pretokenizer("llama-bpe"));
  CHECK(find_pretokenizer("deepseek-r1-qwen") == find_pretokenizer("qwen2"));
  CHECK(find_pretokenizer("zzz") == nullptr);
  CHECK(find_pretokenizer("") == nullptr);
  CHECK(nearest_pretokenizers("lama-bpe", 3).front() == "llama-bpe");
  CHECK(nearest_pretokenizers("qwen-2", 1).front() == "qwen2");
  CHECK(nearest_pretokenizers(std::string(100000, 'x'), 4).size() == 4);
}
