// Ids of real vocabularies, made by the tokenizers that the models were trained with.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.h"
#include "support/paths.h"
#include "vocabulary_file.h"

using namespace llm;
using namespace llm::test;

namespace {

using Ids = std::vector<Token>;
constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

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

}  // namespace

TEST_CASE("real vocabularies give the ids of their own tokenizers", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  for (const char* name : kVocabularies) {
    INFO(name);
    const auto path = vocabulary(*folder, name);
    const LoadedTokenizer t = load_tokenizer(path);
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
    const LoadedTokenizer t = load_tokenizer(vocabulary(*folder, name));
    for (Token special = 0; special < static_cast<Token>(t->n_vocab()); ++special) {
      if (t->kind(special) != TokenKind::Control) continue;
      const std::string text(t->token_text(special));
      INFO(text);
      std::size_t controls = 0;
      for (const Token id : t->encode("a" + text + " " + text, kPlain)) {
        controls += t->kind(id) == TokenKind::Control || t->kind(id) == TokenKind::Unknown ? 1 : 0;
      }
      CHECK(controls == 0);
      const Ids marked = t->encode(text, {.add_special = false, .parse_special = true});
      CHECK(marked == Ids{special});
    }
  }
}

TEST_CASE("tokens that end a generation in real vocabularies", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  const auto ends = [&](const char* name) {
    const LoadedTokenizer t = load_tokenizer(vocabulary(*folder, name));
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
  };
  for (const Source& source : sources) {
    INFO(source.name);
    const LoadedTokenizer t = load_tokenizer(vocabulary(*folder, source.vocabulary));
    const auto path = shared_file("data/tokenizers/" + std::string(source.file));
    REQUIRE(path);
    const auto cases = nlohmann::json::parse(contents(*path)).at(source.name);
    REQUIRE(cases.size() >= 25);
    for (const auto& [name, c] : cases.items()) {
      INFO(name);
      const Ids expected = c.at("ids").get<Ids>();
      const EncodeOptions options{.add_special = source.bos == Bos::With, .parse_special = source.bos == Bos::With};
      const auto text = c.at("text").get<std::string>();
      CHECK(t->encode(text, options) == expected);
      if (std::string_view(source.vocabulary) == "llama-spm") {
        CHECK(t->decode(expected, true) == c.at("decoded").get<std::string>());
      } else {  // there "decoded" has lost spaces before punctuation, which is not the vocabulary's doing
        CHECK(t->decode(expected) == text);
      }
    }
  }
}

TEST_CASE("Phi-3's special tokens swallow the white space after them", "[vectors]") {
  const auto* folder = vocabularies();
  if (folder == nullptr) return;
  const LoadedTokenizer t = load_tokenizer(vocabulary(*folder, "phi-3"));
  const EncodeOptions markup{.add_special = false, .parse_special = true};
  CHECK(t->encode("<|user|>\nHello<|end|>\n", markup) == t->encode("<|user|>Hello<|end|>", markup));
  CHECK(t->encode("<s>\nHello", markup) != t->encode("<s>Hello", markup));
}
