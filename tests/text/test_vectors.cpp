// Ids of real vocabularies, made by the tokenizers that the models were trained with.
#include <bitset>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "base/utf8.h"
#include "support/catch.h"
#include "support/paths.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The vocabularies unpacked once for all test cases; nothing if there are none.
const std::filesystem::path* vocabularies() {
  static const TempDir folder;
  static const bool unpacked = [] {
    const auto archive = shared_file("data/tokenizers/vocabs.tar.xz");
    if (!archive) return false;
    const std::string command = "tar -xJf '" + archive->string() + "' -C '" + folder.path().string() + "'";
    return std::system(command.c_str()) == 0;
  }();
  return unpacked ? &folder.path() : nullptr;
}

std::filesystem::path vocabulary(const std::filesystem::path& folder, std::string_view name) {
  return folder / ("ggml-vocab-" + std::string(name) + ".gguf");
}

/// Loaded once for all test cases.
const LoadedTokenizer& loaded(const std::filesystem::path& folder, std::string_view name) {
  static std::map<std::string, LoadedTokenizer> all;
  auto found = all.find(std::string(name));
  if (found == all.end()) found = all.emplace(name, load_tokenizer(vocabulary(folder, name))).first;
  return found->second;
}

std::vector<std::string> texts_of(const std::filesystem::path& path) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string all = contents(path);
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (std::size_t at = all.find(kSeparator); at != std::string::npos; at = all.find(kSeparator, begin)) {
    texts.push_back(all.substr(begin, at - begin));
    begin = at + kSeparator.size();
  }
  texts.push_back(all.substr(begin));
  return texts;
}

/// One line for each of `n` texts; behind the last one there may be a line end.
std::vector<Ids> ids_of(const std::filesystem::path& path, std::size_t n) {
  std::istringstream lines(contents(path) + "\n");
  std::vector<Ids> all;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    all.push_back({std::istream_iterator<Token>(numbers), {}});
  }
  if (all.size() == n + 1 && all.back().empty()) all.pop_back();
  return all;
}

constexpr const char* kVocabularies[] = {"llama-spm",    "phi-3",          "llama-bpe", "gpt-2",     "qwen2",
                                         "mpt",          "refact",         "starcoder", "command-r", "falcon",
                                         "deepseek-llm", "deepseek-coder", "qwen35",    "gemma-4"};

/// Code points of all lengths, about as many bytes of each.
std::string random_utf8(std::size_t n) {
  std::mt19937 random(2);
  std::string out;
  while (out.size() < n) {
    const char32_t ends[] = {0x80, 0x800, 0x10000, 0x110000};
    const auto c = static_cast<char32_t>(random() % ends[random() % 4]);
    if (c < 0xD800 || c > 0xDFFF) out += utf8::encoded(c);
  }
  return out;
}

/// Every code point of the planes that have characters, and some of each block of 256 in the others.
std::string all_blocks() {
  std::string out;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if (c < 0x20000 || c % 0x40 == 7 || (c >= 0xE0000 && c < 0xE0200)) out += utf8::encoded(c);
  }
  return out;
}

/// For texts that are too long to be shown.
std::string first_difference(std::string_view found, std::string_view expected) {
  if (found == expected) return "none";
  std::size_t i = 0;
  while (i < found.size() && i < expected.size() && found[i] == expected[i]) ++i;
  return "at byte " + std::to_string(i) + ": " + escaped(found.substr(i, 20)) + ", expected " +
         escaped(expected.substr(i, 20));
}

}  // namespace

TEST_CASE("real vocabularies give the ids of their own tokenizers", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  for (const char* name : kVocabularies) {
    INFO(name);
    const auto path = vocabulary(*folder, name);
    const LoadedTokenizer& t = loaded(*folder, name);
    CHECK(t.warnings.empty());
    const std::vector<std::string> texts = texts_of(path.string() + ".inp");
    const std::vector<Ids> ids = ids_of(path.string() + ".out", texts.size());
    REQUIRE(texts.size() > 40);
    REQUIRE(texts.size() == ids.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      INFO(texts[i]);
      CHECK(t->encode(texts[i], kPlain) == ids[i]);
      CHECK(t->decode(ids[i]) == texts[i]);
    }
  }
}

TEST_CASE("the text of a special token, typed by a user, stays text in real vocabularies", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  for (const char* name : kVocabularies) {
    INFO(name);
    const LoadedTokenizer& t = loaded(*folder, name);
    for (Token special = 0; special < static_cast<Token>(t->n_vocab()); ++special) {
      if (t->kind(special) != TokenKind::Control) continue;
      const std::string text(t->token_text(special));
      INFO(text);
      const std::string typed = "a" + text + " " + text;
      const Ids ids = t->encode(typed, kPlain);
      std::size_t controls = 0;
      for (const Token id : ids) {
        controls += t->kind(id) == TokenKind::Control || t->kind(id) == TokenKind::Unknown ? 1 : 0;
      }
      CHECK(controls == 0);
      CHECK(t->decode(ids) == typed);
      // As a user's part of a prompt, between markup that is parsed.
      const EncodedPrompt prompt =
          t->encode(PromptText{text + text + text, {{text.size(), 2 * text.size()}}}, AddSpecial::Never);
      REQUIRE(prompt.ids.size() >= 2);
      CHECK(prompt.ids.front() == special);
      CHECK(prompt.ids.back() == special);
      for (std::size_t i = 1; i + 1 < prompt.ids.size(); ++i) CHECK(t->kind(prompt.ids[i]) != TokenKind::Control);
      const Ids marked = t->encode(text, {.add_special = false, .parse_special = true});
      CHECK(marked == Ids{special});
    }
  }
}

TEST_CASE("tokens that end a generation in real vocabularies", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  const auto ends = [&](const char* name) {
    const LoadedTokenizer& t = loaded(*folder, name);
    std::vector<std::string> texts;
    for (Token id = 0; id < static_cast<Token>(t->n_vocab()); ++id) {
      if (t->is_end_of_generation(id)) texts.emplace_back(t->token_text(id));
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  CHECK(ends("llama-bpe") == Texts{"<|end_of_text|>", "<|eot_id|>"});
  CHECK(ends("llama-spm") == Texts{"</s>"});
  CHECK(ends("gpt-2") == Texts{"<|endoftext|>"});
  CHECK(ends("qwen2") == Texts{"<|endoftext|>", "<|im_end|>"});
  CHECK(ends("phi-3") == Texts{"</s>", "<|endoftext|>", "<|end|>"});
}

TEST_CASE("ids and texts of the transformers library's test cases", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  enum class Bos { Without, With };
  struct Source {
    const char *vocabulary, *file, *name;
    Bos bos;
  };
  const Source sources[] = {
      {"llama-spm", "hf_llama.json", "Xenova/llama-tokenizer", Bos::With},
      {"llama-bpe", "hf_llama.json", "Xenova/llama3-tokenizer", Bos::Without},
      {"llama-bpe", "hf_llama.json", "Xenova/llama3-tokenizer-new", Bos::With},
      {"gpt-2", "hf_gpt2.json", "Xenova/gpt2", Bos::Without},
      {"gpt-2", "hf_gpt2.json", "openai-community/gpt2", Bos::Without},
      {"qwen2", "hf_qwen2.json", "Xenova/Qwen1.5-0.5B-Chat", Bos::Without},
      {"falcon", "hf_falcon.json", "tiiuae/falcon-7b", Bos::Without},
      {"gpt-2", "hf_falcon.json", "tiiuae/falcon-rw-1b", Bos::Without},
      {"deepseek-coder", "hf_llama.json", "Xenova/deepseek-coder-1.3b-instruct", Bos::With},
  };
  for (const Source& source : sources) {
    INFO(source.name);
    const LoadedTokenizer& t = loaded(*folder, source.vocabulary);
    const auto path = shared_file("data/tokenizers/" + std::string(source.file));
    REQUIRE(path);
    const auto cases = nlohmann::json::parse(contents(*path)).at(source.name);
    REQUIRE(cases.size() >= 15);
    for (const auto& [name, c] : cases.items()) {
      INFO(name);
      const Ids expected = c.at("ids").get<Ids>();
      const EncodeOptions options{.add_special = source.bos == Bos::With, .parse_special = source.bos == Bos::With};
      const auto text = c.at("text").get<std::string>();
      CHECK(t->encode(text, options) == expected);
      if (std::string_view(source.vocabulary) == "llama-spm") {
        CHECK(t->spelling(expected) == c.at("decoded").get<std::string>());
      } else {  // there "decoded" has lost spaces before punctuation, which is not the vocabulary's doing
        CHECK(t->decode(expected) == text);
      }
    }
  }
}

TEST_CASE("byte-level vocabularies give every text back", "[vectors]") {
  const auto* folder = vocabularies();
  std::vector<std::pair<std::string, const LoadedTokenizer*>> all;
  const LoadedTokenizer sample = load_tokenizer(source_dir() / "models/samples/fable-dense.gguf");
  all.emplace_back("fable", &sample);
  for (const char* name : kVocabularies) {
    const bool by_bytes =
        folder != nullptr && !std::set<std::string_view>{"llama-spm", "phi-3", "gemma-4"}.contains(name);
    if (by_bytes) all.emplace_back(name, &loaded(*folder, name));
  }
  const std::string text = random_utf8(1 << 20), characters = all_blocks();
  std::string bytes;
  std::mt19937 random(4);
  for (int i = 0; i < 100000; ++i) bytes += static_cast<char>(random());
  // Bytes that are no token, counted in the files. 13 never occur in UTF-8; the others occur in no text that was
  // learned from, and are lost in any program.
  const std::map<std::string, std::size_t> lacking = {{"deepseek-coder", 13}, {"deepseek-llm", 13}, {"mpt", 13},
                                                      {"refact", 14},         {"starcoder", 14},    {"falcon", 28}};
  for (const auto& [name, t] : all) {
    INFO(name);
    std::bitset<256> bytes_there;
    for (unsigned b = 0; b < 256; ++b) {
      bytes_there[b] = !(*t)->encode(std::string(1, static_cast<char>(b)), kPlain).empty();
    }
    const auto found = lacking.find(name);
    CHECK(256 - bytes_there.count() == (found == lacking.end() ? 0 : found->second));
    const auto expressible = [&](std::string all_bytes) {
      std::erase_if(all_bytes, [&](char c) { return !bytes_there[static_cast<std::uint8_t>(c)]; });
      return all_bytes;
    };
    CHECK(first_difference((*t)->decode((*t)->encode(text, kPlain)), expressible(text)) == "none");
    CHECK(first_difference((*t)->decode((*t)->encode(characters, kPlain)), expressible(characters)) == "none");
    CHECK(first_difference((*t)->decode((*t)->encode(bytes, kPlain)), expressible(bytes)) == "none");
  }
}

TEST_CASE("a vocabulary without the name of its pre-tokenizer is known by its tokens", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  const std::pair<const char*, const char*> expected[] = {
      {"llama-bpe", "llama-bpe"}, {"gpt-2", "gpt-2"},   {"qwen2", "qwen2"}, {"deepseek-llm", "deepseek-llm"},
      {"starcoder", "starcoder"}, {"falcon", "falcon"}, {"mpt", "mpt"},     {"qwen35", "qwen2"},
  };
  const TempDir changed;
  for (const auto& [name, pre] : expected) {
    INFO(name);
    // The key under another name of the same length.
    std::string bytes = contents(vocabulary(*folder, name));
    constexpr std::string_view kKey = "tokenizer.ggml.pre";
    const std::size_t at = bytes.find(std::string(kKey) + std::string("\x08\0\0\0", 4));
    REQUIRE(at != std::string::npos);
    bytes[at + kKey.size() - 1] = 'x';
    std::ofstream(changed / "vocabulary.gguf", std::ios::binary) << bytes;
    const LoadedTokenizer t = load_tokenizer(changed / "vocabulary.gguf");
    REQUIRE(t.warnings.size() == 1);
    CHECK(t.warnings[0].code == "missing-pre-tokenizer");
    CHECK(t.warnings[0].text.find("'" + std::string(pre) + "'") != std::string::npos);
    CHECK(t->describe().find(std::string("pre-tokenizer ") + pre) != std::string::npos);
    CHECK(t->special().add_bos == loaded(*folder, name)->special().add_bos);
  }
}

TEST_CASE("Phi-3's special tokens swallow the white space after them", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  const LoadedTokenizer& t = loaded(*folder, "phi-3");
  const EncodeOptions markup{.add_special = false, .parse_special = true};
  CHECK(t->encode("<|user|>\nHello<|end|>\n", markup) == t->encode("<|user|>Hello<|end|>", markup));
  CHECK(t->encode("<s>\nHello", markup) != t->encode("<s>Hello", markup));
}
