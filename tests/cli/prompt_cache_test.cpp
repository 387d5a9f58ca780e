// --prompt-cache: the same answers, without reading the prompt again.
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;
using Json = nlohmann::json;

namespace {

class PromptCacheBench {
 public:
  PromptCacheBench() { tiny_model({.layers = 2, .context = 400, .tokenizer = TinyTokenizer::Bpe}).write(model()); }
  std::filesystem::path model() const { return folder_ / "tiny.gguf"; }
  std::filesystem::path cache() const { return folder_ / "prompt.cache"; }
  std::filesystem::path write(std::string_view name, std::string_view text) const { return folder_.write(name, text); }
  Outcome operator()(const std::string& prompt, std::vector<std::string> more = {}, const std::string& n = "8") const {
    std::vector<std::string> arguments{
        "-m", model().string(), "-no-cnv",         "--temp", "0.9", "-s", "7", "--ignore-eos", "-n", n,
        "-p", prompt,           "--output-format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }
  Outcome cached(const std::string& prompt, std::vector<std::string> more = {}, const std::string& n = "8") const {
    more.insert(more.begin(), {"--prompt-cache", cache().string()});
    return (*this)(prompt, std::move(more), n);
  }

 private:
  TempDir folder_;
};

/// Text and tokens that came from the file.
std::pair<std::string, int> answer(const Outcome& o) {
  INFO(o.err);
  REQUIRE(o.code == 0);
  const Json json = Json::parse(o.out);
  CHECK(json["timings"]["cache_n"] == json["usage"]["prompt_tokens_details"]["cached_tokens"]);
  CHECK(json["timings"]["prompt_n"].get<int>() + json["timings"]["cache_n"].get<int>() ==
        json["usage"]["prompt_tokens"].get<int>());
  return {json["text"], json["timings"]["cache_n"]};
}

std::string letters(std::size_t n, char first) {
  std::string text(n, ' ');
  for (std::size_t i = 0; i < n; ++i) text[i] = static_cast<char>(first + static_cast<char>(i * i % 19));
  return text;
}

}  // namespace

TEST_CASE("a prompt that was read before is not read again, and the answer stays the same") {
  const PromptCacheBench bench;
  const std::string common = letters(150, 'c'), first = common + letters(30, 'd'), second = common + letters(40, 'e');
  CHECK(answer(bench.cached(first)) == std::pair(answer(bench(first)).first, 0));
  CHECK(answer(bench.cached(first)) == std::pair(answer(bench(first)).first, 179));  // all but the last token
  CHECK(answer(bench.cached(second)) == std::pair(answer(bench(second)).first, 150));
  CHECK(answer(bench.cached(first)).second == 150);  // the second took its place
  // Read-only: the file stays.
  CHECK(answer(bench.cached(second, {"--prompt-cache-ro"})).second == 150);
  CHECK(answer(bench.cached(first)).second == 179);
  // A prompt that the file's only begins: nothing need be written, the longer one stays.
  CHECK(answer(bench.cached(first.substr(0, 100))).second == 99);
  CHECK(answer(bench.cached(first)).second == 179);
}

TEST_CASE("--prompt-cache-all keeps the answer, too") {
  const PromptCacheBench bench;
  const std::string prompt = letters(70, 'c');
  const std::string text = answer(bench.cached(prompt, {"--prompt-cache-all"})).first;
  const Outcome more = bench.cached(prompt + text + "xyz");
  // The answer's last token was not evaluated; its bytes may be tokenised otherwise than they were sampled.
  CHECK(answer(more).second >= 70);
  CHECK(answer(more).first == answer(bench(prompt + text + "xyz")).first);
}

TEST_CASE("a prompt cache that cannot be used is an error, and no file is lost") {
  const PromptCacheBench bench;
  bench.write("prompt.cache", "my notes");
  const Outcome foreign = bench.cached("abc");
  CHECK(foreign.code == 2);
  CHECK_THAT(foreign.err, contains("is no saved state"));
  bench.write("prompt.cache", "");  // as mktemp makes it
  CHECK(answer(bench.cached(letters(20, 'c'))).second == 0);
  CHECK(std::filesystem::file_size(bench.cache()) > 1000);
  const Outcome nothing =
      bench(letters(20, 'c'), {"--prompt-cache", bench.cache().string() + "x", "--prompt-cache-ro"});
  CHECK(nothing.code == 0);
  CHECK_THAT(nothing.err, contains("warning[no-effect]"));
  bench.write("prompt.cache", "my notes");
  const auto results = bench.write("results.txt", "older ones");
  CHECK(bench.cached("abc", {"-o", results.string()}).code == 2);
  CHECK(read_file(results) == "older ones");
  CHECK(bench.cached("abc", {"-i"}).code == 2);
  CHECK(bench("abc", {"--prompt-cache-all"}).code == 2);
  CHECK(bench("abc", {"--prompt-cache", bench.model().string()}).code == 2);  // would overwrite the model
  const Outcome device = bench("abc", {"--prompt-cache", "/dev/full"});
  CHECK(device.code == 2);
  CHECK(device.err.find("/dev/full: is no saved state") != std::string::npos);
  CHECK(bench("abc", {"--prompt-cache", std::string(300, 'a')}).code == 8);
  const Outcome nowhere = bench("abc", {"--prompt-cache", "/nowhere/x"});
  CHECK(nowhere.code == 8);
  CHECK(nowhere.out.empty());  // nobody waits for an answer first
  CHECK_THAT(nowhere.err, contains("/nowhere/x: cannot be created: No such file or directory"));
  CHECK(bench("abc", {"--prompt-cache", "/nowhere/x", "--prompt-cache-ro"}).code == 0);
  std::filesystem::remove(bench.cache());
  CHECK(answer(bench.cached("abcabc")).second == 0);
  const Outcome other = bench.cached("abcabc", {"-ctk", "f32"});
  CHECK(other.code == 2);
  CHECK_THAT(other.err, contains("F16/F16"));
}

TEST_CASE("a chat that a signal ends while it waits for a line keeps its last state") {
  const PromptCacheBench bench;
  const std::string answers = bench.write("answers", "").string();
  // The pipe stays open; the answer ends with a line feed, and what follows it takes no second.
  const std::string script =
      "mkfifo \"$1.in\"; \"$0\" -m \"$2\" -i --chat-template chatml -n 4 -q --prompt-cache \"$3\" < \"$1.in\" > "
      "\"$1\" & exec 3> \"$1.in\"; echo abc >&3; until [ -s \"$1\" ] && [ \"$(tail -c 1 \"$1\" | wc -l)\" = 1 ]; "
      "do kill -0 $! || exit 99; done; sleep 1; kill -TERM $!; wait $!";
  const Outcome o = run({.program = "/bin/sh",
                         .arguments = {"-c", script, program("llm-run").string(), answers, bench.model().string(),
                                       bench.cache().string()}});
  CHECK(o.code == 128 + SIGTERM);
  CHECK(std::filesystem::exists(bench.cache()));
}

TEST_CASE("a context that was shifted by one token is not kept either") {
  const PromptCacheBench bench;
  // With one of these seeds the end comes between the first shift and the second.
  bool found = false;
  for (int seed = 0; seed < 60 && !found; ++seed) {
    const Outcome o = run({.program = program("llm-run"),
                           .arguments = {"-m", bench.model().string(), "-no-cnv", "-s", std::to_string(seed), "-n",
                                         "30", "-p", "abcdefgh", "-c", "8", "--keep", "6", "--context-shift", "-l",
                                         "258+2", "--prompt-cache", bench.cache().string()}});
    REQUIRE(o.code == 0);
    found = contains("was full once").match(o.err) && contains("stop: eos").match(o.err);
    if (found) {
      CHECK_THAT(o.err, contains("is not written"));
      CHECK_FALSE(std::filesystem::exists(bench.cache()));
    }
    std::filesystem::remove(bench.cache());
  }
  CHECK(found);
}

TEST_CASE("a context that was shifted is not kept") {
  const PromptCacheBench bench;
  const Outcome o = bench.cached(letters(30, 'c'), {"-c", "64", "--on-overflow", "shift", "--prompt-cache-all"}, "80");
  CHECK(o.code == 0);
  CHECK_THAT(o.err, contains("is not written"));
  CHECK_FALSE(std::filesystem::exists(bench.cache()));
}

TEST_CASE("a signal while the prompt is read is answered at once, and nothing is printed for no answer") {
  const TempDir folder;
  const auto model = folder / "long.gguf";
  tiny_model({.layers = 2, .context = 100000, .tokenizer = TinyTokenizer::Bpe}).write(model);
  const auto prompt = folder.write("prompt", std::string(80000, 'c'));
  const std::string files = (folder / "f").string();
  const std::string script =
      "\"$0\" -m \"$1\" -no-cnv -f \"$2\" -n 1 --prompt-cache \"$3.cache\" --events \"$3.events\" > \"$3.out\" & until "
      "grep -q prefill \"$3.events\" 2> /dev/null; do kill -0 $! || exit 99; done; kill -TERM $!; wait $!";
  const Outcome o =
      run({.program = "/bin/sh",
           .arguments = {"-c", script, program("llm-run").string(), model.string(), prompt.string(), files}});
  CHECK(o.code == 128 + SIGTERM);
  CHECK_THAT(o.err, contains("note: stopping, when the step that is computed has ended\n"));
  CHECK(std::filesystem::file_size(files + ".out") == 0);
  CHECK(std::filesystem::exists(files + ".cache"));
}
