// llm-inspect as a process: its figures against what the test wrote into the file.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "programs.h"

using namespace llm;
using namespace llm::test;

namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

/// Ids of `text` given through stdin.
std::vector<int> ids_of(const std::string& model, const TempDir& folder, const std::string& text,
                        std::vector<std::string> options = {}) {
  const std::string input = write_file(folder / "input", text);
  options.insert(options.begin(), {"tokenize", model, "--stdin", "--ids"});
  const std::string out = output_of("llm-inspect", options, input);
  CHECK(std::count(out.begin(), out.end(), '\n') == 1);
  return Json::parse(out).get<std::vector<int>>();
}

using Ids = std::vector<int>;

}  // namespace

TEST_CASE("show --json tells what is in the file", "[apps]") {
  TempDir folder;
  const TinyFile model = tiny_model({.layers = 2, .type = DType::Q8_0});
  const std::string path = write_model(folder, model);
  const Json j = json_of("llm-inspect", {"show", path, "--json"});
  const std::string bytes = contents(path);

  CHECK(j["file"]["bytes"] == bytes.size());
  CHECK(j["file"]["version"] == 3);
  REQUIRE(j["tensors"].size() == model.tensors().size());
  std::uint64_t elements = 0, tensor_bytes = 0;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    const TinyTensor& t = model.tensors()[i];
    const Json& shown = j["tensors"][i];
    INFO(t.name);
    CHECK(shown["name"] == t.name);
    CHECK(shown["type"] == (t.type.dtype == DType::F32 ? "F32" : "Q8_0"));
    const auto n = static_cast<std::uint64_t>(t.type.shape.elements());
    CHECK(shown["bytes"] == (t.type.dtype == DType::F32 ? 4 * n : n / 32 * 34));
    CHECK(shown["shape"].size() == static_cast<std::size_t>(t.type.shape.n_dims()));
    CHECK(shown["shape"][0] == t.type.shape[0]);
    elements += n;
    tensor_bytes += shown["bytes"].get<std::uint64_t>();
    if (t.type.dtype != DType::F32) continue;
    float first = 0;
    std::memcpy(&first, bytes.data() + shown["offset"].get<std::size_t>(), sizeof first);
    CHECK(first == tiny_values(t, model.seed).front());
  }
  CHECK(j["parameters"] == elements);
  CHECK(j["tensor_bytes"] == tensor_bytes);
  CHECK(j["types"].size() == 2);

  CHECK(j["metadata"]["general.architecture"] == Json{{"type", "string"}, {"value", "llama"}});
  CHECK(j["metadata"]["llama.block_count"] == Json{{"type", "u32"}, {"value", 2}});
  CHECK(j["metadata"]["llama.attention.layer_norm_rms_epsilon"]["value"] == 1e-5);  // not the nearest double of a float
  const Json& tokens = j["metadata"]["tokenizer.ggml.tokens"];
  CHECK(tokens["count"] == 267);
  CHECK(tokens["element"] == "string");
  CHECK(tokens["first"][3] == "<0x00>");
  CHECK(tokens["first"].size() < 20);

  const Json& here = j["here"];
  CHECK(here["architecture"]["supported"] == true);
  CHECK(here["tokenizer"]["supported"] == true);
  CHECK(here["backend"]["supported"] == true);
  CHECK(here["threads"] >= 1);
  CHECK(here["weight_bytes"] == tensor_bytes);
  // F16 keys and values of 2 layers with 2 heads of 8 each
  CHECK(here["cache_bytes_per_1k_tokens"] == 1024 * 2 * 2 * (8 + 8) * 2);
  CHECK(here["chat_template"] == false);
}

TEST_CASE("show says what it cannot use and shows the rest", "[apps]") {
  TempDir folder;
  TinyFile model = tiny_model();
  model.set("general.architecture", "martian");
  model.set("tokenizer.ggml.model", "runes");
  model.set("tokenizer.chat_template", "{{ messages }}");
  const std::string path = write_model(folder, model);
  const Json j = json_of("llm-inspect", {"show", path, "--json"});
  CHECK(j["here"]["architecture"]["supported"] == false);
  CHECK(j["here"]["architecture"]["why"].get<std::string>().find("martian") != std::string::npos);
  CHECK(j["here"]["tokenizer"]["why"].get<std::string>().find("runes") != std::string::npos);
  CHECK(j["here"]["chat_template"] == true);
  CHECK(j["here"]["weight_bytes"].is_null());
  CHECK(j["tensors"].size() == model.tensors().size());
  const std::string text = output_of("llm-inspect", {"show", path});
  CHECK(text.find("martian") != std::string::npos);
  CHECK(text.find("blk.0.ffn_down.weight") != std::string::npos);
}

TEST_CASE("text of a file cannot steer the terminal", "[apps]") {
  TempDir folder;
  TinyFile model = tiny_model();
  model.set("general.name", "\x1b[31mred\r\xc2\x9b\xff");
  const std::string text = output_of("llm-inspect", {"show", write_model(folder, model)});
  CHECK(text.find("\\x1b[31mred") != std::string::npos);
  for (const char* raw : {"\x1b", "\r", "\xc2\x9b", "\xff"}) CHECK(text.find(raw) == std::string::npos);
}

TEST_CASE("a metadata string that is not UTF-8 still gives JSON", "[apps]") {
  TempDir folder;
  TinyFile model = tiny_model();
  model.set("general.name", "a\xff");
  const Json j = json_of("llm-inspect", {"show", write_model(folder, model), "--json"});
  CHECK(j["metadata"]["general.name"]["value"] == "a\xef\xbf\xbd");
}

TEST_CASE("tokenize takes bytes exactly", "[apps]") {
  TempDir folder;
  // In this vocabulary a byte's id is its value; "ab" is 256, "abc" 257, <|end|> 258.
  const std::string bpe = write_model(folder, tiny_model({.tokenizer = TinyTokenizer::Bpe}), "bpe.gguf");
  CHECK(ids_of(bpe, folder, "abcab") == Ids{257, 256});
  CHECK(ids_of(bpe, folder, std::string("a\0\xff\xc3(\r\n", 7)) == Ids{97, 0, 255, 195, 40, 13, 10});
  CHECK(ids_of(bpe, folder, "") == Ids{});
  CHECK(ids_of(bpe, folder, "\n") == Ids{10});
  CHECK(ids_of(bpe, folder, "a<|end|>") == Ids{97, 258});
  CHECK(ids_of(bpe, folder, "<|end|>", {"--no-parse-special"}) == Ids{60, 124, 101, 110, 100, 124, 62});

  // <s> is 1, byte b is 3 + b, the space 259, "abc" 264.
  const std::string spm = write_model(folder, tiny_model(), "spm.gguf");
  CHECK(ids_of(spm, folder, "abc") == Ids{1, 259, 264});
  CHECK(ids_of(spm, folder, "abc", {"--no-bos"}) == Ids{259, 264});
  // One that is there already is the only one, as in a prompt; as plain text it is none.
  CHECK(ids_of(spm, folder, "<s>abc") == Ids{1, 259, 264});
  CHECK(ids_of(spm, folder, "<s>abc", {"--no-bos"}) == Ids{1, 259, 264});
  CHECK(ids_of(spm, folder, "<s>", {"--no-parse-special"}) == Ids{1, 259, 3 + '<', 3 + 's', 3 + '>'});
  CHECK(ids_of(spm, folder, std::string("\0\xfe", 2), {"--no-bos"}) == Ids{259, 3, 3 + 0xfe});
}

TEST_CASE("tokenize takes its text from one place and counts", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model({.tokenizer = TinyTokenizer::Bpe}), "bpe.gguf");
  std::ofstream(folder / "text", std::ios::binary) << "abcab\n";
  const std::string text = (folder / "text").string();
  CHECK(output_of("llm-inspect", {"tokenize", model, "-f", text, "--ids"}) == "[257,256,10]\n");
  CHECK(output_of("llm-inspect", {"tokenize", model, "-f", text, "--ids", "--show-count"}) ==
        "[257,256,10]\nTotal number of tokens: 3\n");
  CHECK(output_of("llm-inspect", {"tokenize", model, "--text", "", "--ids", "--show-count"}) ==
        "[]\nTotal number of tokens: 0\n");
  // A typed text has escapes as that of llm-run -p; a file's bytes are its own.
  CHECK(output_of("llm-inspect", {"tokenize", model, "--text", "a\\nb\\x41", "--ids"}) == "[97,10,98,65]\n");
  CHECK(output_of("llm-inspect", {"tokenize", model, "--text", "a\\n", "--no-escape", "--ids"}) == "[97,92,110]\n");
  std::ofstream(folder / "raw", std::ios::binary) << "a\\n";
  CHECK(output_of("llm-inspect", {"tokenize", model, "-f", (folder / "raw").string(), "--ids"}) == "[97,92,110]\n");
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{}, {"--text", "a", "--stdin"}, {"--text", "a", "-f", text}, {"-f", text, "--stdin"}}) {
    std::vector<std::string> arguments = {"tokenize", model};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    CHECK(run({.program = program("llm-inspect").string(), .arguments = arguments}).code == 2);
  }
}

TEST_CASE("tokenize prints a line per token", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  std::istringstream lines(output_of("llm-inspect", {"tokenize", model, "--text", "abc\x1b"}));
  std::vector<std::pair<int, std::string>> found;
  int id = 0;
  for (std::string piece; lines >> id && std::getline(lines, piece);) found.emplace_back(id, piece);
  const std::vector<std::pair<int, std::string>> expected{
      {1, "  \"<s>\""}, {259, "  \" \""}, {264, "  \"abc\""}, {3 + 0x1b, "  \"\\x1b\""}};
  CHECK(found == expected);
}

TEST_CASE("tokenize gives the ids of real vocabularies' own tokenizers", "[apps]") {
  const auto archive = shared_file("data/tokenizers/vocabs.tar.xz");
  if (!archive) return;
  TempDir folder;
  REQUIRE(run({.program = "/bin/tar",
               .arguments = {"-xJf", archive->string(), "-C", folder.path().string(), "--wildcards", "*-gpt-2.gguf*",
                             "*-llama-spm.gguf*"}})
              .code == 0);
  for (const char* name : {"gpt-2", "llama-spm"}) {
    const std::string path = (folder / ("ggml-vocab-" + std::string(name) + ".gguf")).string();
    const std::string texts = contents(path + ".inp"), separator = "\n__ggml_vocab_test__\n";
    std::istringstream lines(contents(path + ".out"));
    std::size_t begin = 0, n = 0;
    for (std::string line; n < 12 && std::getline(lines, line); ++n) {
      const std::size_t end = texts.find(separator, begin);
      std::istringstream numbers(line);
      const Ids ids{std::istream_iterator<int>(numbers), {}};
      CHECK(ids_of(path, folder, texts.substr(begin, end - begin), {"--no-bos", "--no-parse-special"}) == ids);
      begin = end + separator.size();
    }
    CHECK(n == 12);
  }
}

TEST_CASE("graph prints the step's graph, the same each time", "[apps]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model({.layers = 3}));
  const std::string text = output_of("llm-inspect", {"graph", model});
  CHECK(text == output_of("llm-inspect", {"graph", model}));
  CHECK(count(text, "= attention(") == 3);
  CHECK(count(text, "= kv_append(") == 3);
  const std::string before = output_of("llm-inspect", {"graph", model, "--before-passes"});
  CHECK(count(before, "= attention(") == 3);
  CHECK(count(before, "= linear(") == 3 * 7 + 1);  // q, k, v, output, gate, up, down; the head
  CHECK(count(text, "= linear(") == 3 * 4 + 1);    // q, k, v together; gate, up together
  CHECK(output_of("llm-inspect", {"graph", model, "--tokens", "16"}).find("16") != std::string::npos);
  const std::string dot = output_of("llm-inspect", {"graph", model, "--format", "dot"});
  CHECK(dot.starts_with("digraph"));
  CHECK(count(dot, "{") == count(dot, "}"));
}
