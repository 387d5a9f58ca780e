// llm-run's output as a real process: JSON, log probabilities, the beginning and the end of an answer.
#include "common/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "gguf/file.h"
#include "json_lines.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/terminal.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;
using Json = nlohmann::json;

namespace {

/// Whose tokens are bytes, so that texts of n letters (none of them "ab") are n tokens.
TinyFile long_byte_model() { return tiny_model({.layers = 2, .context = 100000, .tokenizer = TinyTokenizer::Bpe}); }

class OutputBench {
 public:
  explicit OutputBench(TinyFile file = long_byte_model()) { file.write(model()); }
  std::filesystem::path model() const { return folder_ / "tiny.gguf"; }
  Outcome operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-m", model().string(), "--temp", "0", "--ignore-eos"});
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }

 private:
  TempDir folder_;
};

TinyFile with_template() {
  TinyFile file = long_byte_model();
  file.set("tokenizer.chat_template", "<{{ messages[0].content }}>");
  return file;
}

std::string bytes_of(const Json& token) {
  std::string bytes;
  for (const int b : token["bytes"]) bytes += static_cast<char>(b);
  return bytes;
}

const std::vector<std::string> kNineLetters{"-p", "cde", "--regex", "[c-z]{9}"};

}  // namespace

TEST_CASE("an answer as one JSON object") {
  const OutputBench bench;
  const std::string text = bench(kNineLetters).out;
  REQUIRE(text.size() == 10);
  const Outcome o = bench(with(kNineLetters, {"--output-format", "json", "-s", "5", "--logprobs", "3"}));
  REQUIRE(o.code == 0);
  REQUIRE(std::count(o.out.begin(), o.out.end(), '\n') == 1);
  const Json json = Json::parse(o.out);
  CHECK(json["text"].get<std::string>() + "\n" == text);
  CHECK(json["finish_reason"] == "stop");
  CHECK(json["model"] == "tiny.gguf");
  CHECK(json["seed"] == 5);
  CHECK(json["usage"] == Json({{"prompt_tokens", 3},
                               {"completion_tokens", 9},
                               {"total_tokens", 12},
                               {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
  CHECK(json["timings"]["prompt_n"] == 3);
  CHECK(json["timings"]["predicted_n"] == 9);
  CHECK(json["timings"]["predicted_ms"].get<double>() > 0);

  const Json& tokens = json["logprobs"]["content"];
  REQUIRE(tokens.size() == 9);
  std::string joined;
  for (const Json& token : tokens) {
    joined += bytes_of(token);
    const Json& best = token["top_logprobs"];
    REQUIRE(best.size() == 3);
    double sum = 0;
    for (std::size_t i = 0; i < best.size(); ++i) {
      sum += std::exp(best[i]["logprob"].get<double>());
      if (i > 0) CHECK(best[i - 1]["logprob"] >= best[i]["logprob"]);
    }
    CHECK(sum < 1);
    CHECK(token["logprob"] <= best[0]["logprob"]);
  }
  CHECK(joined + "\n" == text);

  const Json length = Json::parse(bench({"-p", "cde", "-n", "4", "--output-format", "json"}).out);
  CHECK(length["finish_reason"] == "length");
  CHECK_FALSE(length.contains("logprobs"));
}

TEST_CASE("an answer as a JSON object per token, and one at the end") {
  const OutputBench bench;
  const Outcome o = bench(with(kNineLetters, {"--output-format=jsonl", "--logprobs", "2"}));
  REQUIRE(o.code == 0);
  const std::vector<Json> lines = parse_lines(o.out);
  REQUIRE(lines.size() == 10);
  std::string joined;
  for (std::size_t i = 0; i < 9; ++i) {
    joined += lines[i]["text"];
    CHECK(lines[i]["token"].is_number_integer());
    CHECK(bytes_of(lines[i]["logprobs"]) == lines[i]["text"]);
    CHECK(lines[i]["logprobs"]["top_logprobs"].size() == 2);
  }
  CHECK(lines[9]["text"] == joined);
  CHECK(lines[9]["finish_reason"] == "stop");
  CHECK_FALSE(lines[9].contains("logprobs"));

  // A character of several tokens comes with the last of them.
  const std::vector<Json> accents =
      parse_lines(bench({"-p", "c", "--choice", "\xc3\xa9\xc3\xa8", "--output-format", "jsonl"}).out);
  REQUIRE(accents.size() == 5);
  CHECK(accents[0]["text"] == "");
  CHECK(accents[1]["text"] == "\xc3\xa9");
  CHECK(accents[4]["text"] == "\xc3\xa9\xc3\xa8");
}

TEST_CASE("options of the output that make no sense are refused") {
  const OutputBench bench;
  const auto refused = [&](const std::vector<std::string>& words, std::string_view part) {
    const Outcome o = bench(with({"-p", "c"}, words));
    CHECK(o.code == 2);
    CHECK(contains(o.err, part));
    CHECK(o.out.empty());
  };
  refused({"--logprobs", "3"}, "--logprobs needs --output-format json or jsonl");
  refused({"--output-format", "xml"}, "\"xml\" is not text, json or jsonl");
  refused({"--output-format", "json", "--no-newline"}, "--no-newline is about text");
  refused({"--prefill", "a", "--regex", "a+"}, "--prefill together with a grammar");
  refused({"--max-time", "-1"}, "--max-time");
  refused({"--on-overflow", "panic"}, "\"panic\" is not error, shift or truncate");
  refused({"-ctk", "q8_0"},
          "tiny.gguf: cached keys cannot be Q8_0: the model's heads of 8 are not whole blocks of 32; choose "
          "f8_e4m3, f16, bf16 or f32 for --cache-type-k");
  refused({"-ctv", "f17"}, "\"f17\" is not f32, f16, bf16, f8_e4m3, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1");
  CHECK(contains(bench({"-i", "--max-time=1"}).err, "--max-time is for one answer, not for a chat"));
  for (const char* option :
       {"--output-format=json", "--prefill=a", "--display-prompt", "--no-newline", "--keep=3", "--context-shift"}) {
    const Outcome o = bench({"--batch", "none.jsonl", option});
    CHECK(o.code == 2);
    CHECK(contains(o.err, "is for one answer, not for a batch"));
    CHECK(contains(bench({"-i", option}).err, "is for one answer, not for a chat"));
  }
}

TEST_CASE("the answer begins with its prefill") {
  const OutputBench bench, chat(with_template());
  const std::string rest = bench({"-no-cnv", "-p", "cdef", "-n", "9"}).out;
  CHECK(bench({"-no-cnv", "-p", "cd", "--prefill", "ef", "-n", "9"}).out == "ef" + rest);
  CHECK(chat({"-p", "cd", "--prefill", "e\\n", "-n", "9"}).out ==
        "e\n" + bench({"-no-cnv", "-p", "<cd>e\\n", "-n", "9"}).out);
  const Json json = Json::parse(chat({"-p", "cd", "--prefill", "ef", "-n", "0", "--output-format", "json"}).out);
  CHECK(json["text"] == "ef");
  CHECK(json["usage"]["prompt_tokens"] == 6);
  // It is text, whatever it looks like: <|end|> would be one token.
  CHECK(Json::parse(bench({"-p", "c", "--prefill", "<|end|>", "-n", "0", "--output-format", "json"})
                        .out)["usage"]["prompt_tokens"] == 8);
}

TEST_CASE("the end of the output is one line feed, or the exact bytes") {
  const OutputBench bench;
  const std::vector<std::string> two{"-p", "c", "--grammar", "root ::= \"de\\n\\n\""};
  CHECK(bench(two).out == "de\n");
  CHECK(bench(with(two, {"--no-newline"})).out == "de\n\n");
  CHECK(bench({"-p", "c", "-n", "0", "--no-newline"}).out.empty());
}

TEST_CASE("--display-prompt shows the prompt on stderr") {
  const OutputBench chat(with_template());
  const Outcome o = chat({"-p", "cd", "-n", "1", "--display-prompt"});
  CHECK(o.err.starts_with("<cd>\n"));
  CHECK_FALSE(contains(chat({"-p", "cd", "-n", "1", "--display-prompt", "--no-display-prompt"}).err, "<cd>"));
  CHECK(o.out == chat({"-p", "cd", "-n", "1"}).out);
}

TEST_CASE("what is asked for is shown with -q, too") {
  const OutputBench chat(with_template());
  for (const std::vector<std::string>& quiet : std::vector<std::vector<std::string>>{{"-q"}, {"-lv", "1"}}) {
    CHECK(chat(with({"-p", "cd", "-n", "1", "--display-prompt"}, quiet)).err == "<cd>\n");
    CHECK(contains(chat(with({"-p", "cd", "-n", "1", "--show-timings"}, quiet)).err, " \u00b7 stop: length\n"));
    CHECK(chat(with({"-p", "cd", "-n", "1"}, quiet)).err.empty());
  }
  CHECK_FALSE(contains(chat({"-p", "cd", "-n", "1", "--no-show-timings"}).err, "stop: "));
}

TEST_CASE("--special shows the control tokens of an answer, and the one that ends it") {
  const OutputBench bench(tiny_model({.context = 100}));  // <s> is 1, </s> 2
  const auto answer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"-m", bench.model().string(), "-p", "c", "--temp", "0", "-n", "3"});
    const Outcome o = run({.program = program("llm-run"), .arguments = std::move(more)});
    INFO(o.err);
    CHECK(o.code == 0);
    return o.out;
  };
  CHECK(answer({"-l", "1+1000"}) == "\n");
  CHECK(answer({"-l", "1+1000", "--special"}) == "<s><s><s>\n");
  CHECK(answer({"-l", "2+1000"}) == "\n");
  CHECK(answer({"-l", "2+1000", "-sp"}) == "</s>\n");
  CHECK(Json::parse(answer({"-l", "2+1000", "-sp", "--output-format", "json"}))["text"] == "</s>");
  CHECK(answer({"-l", "1+1000", "-sp", "-r", "</s>"}) == "<s><s><s>\n");
  CHECK(answer({"-l", "2+1000", "-sp", "--ignore-eos"}) == answer({"-l", "2-inf"}));
  CHECK(bench({"-i", "-sp"}).code == 2);
}

TEST_CASE("a terminal gets no control characters of a model, unless asked for") {
  const OutputBench bench;
  const auto shown = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"-m", bench.model().string(), "-p", "c", "-n", "0", "-q", "--prefill", "\\x1b[31m"});
    Terminal t({.program = program("llm-run"), .arguments = std::move(more)});
    CHECK(t.end() == 0);
    return t.rest();
  };
  CHECK(shown({}) == "\\x1b[31m\r\n");
  CHECK(shown({"--raw"}) == "\x1b[31m\r\n");
}

TEST_CASE("--max-time ends an answer and keeps what there is") {
  const OutputBench bench;
  const Outcome o = bench({"-p", "c", "--max-time", "1"});
  CHECK(o.code == 124);
  CHECK(o.out.ends_with('\n'));
  CHECK(contains(o.err, "stop: time\n"));
  const Outcome json = bench({"-p", "c", "--max-time", "0", "--output-format", "json"});
  CHECK(json.code == 124);
  CHECK(Json::parse(json.out)["finish_reason"] == "timeout");
  CHECK(Json::parse(json.out)["usage"]["completion_tokens"] == 0);
  CHECK(Json::parse(json.out)["timings"]["prompt_n"] == 0);  // none was evaluated
  CHECK(bench({"-p", "c", "-n", "3", "--max-time", "1000"}).code == 0);
}

TEST_CASE("a slow reader is waited for, also on a pipe that does not block") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  REQUIRE(::fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  const std::string text(8 << 20, 'x');
  std::string got;
  std::thread reader([&] {
    std::array<char, 4096> buffer;
    for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
      got.append(buffer.data(), static_cast<std::size_t>(n));
    }
  });
  const int kept = ::dup(STDOUT_FILENO);
  ::dup2(ends[1], STDOUT_FILENO);
  ::close(ends[1]);
  std::string problem;
  try {
    app::write_stdout(text);
  } catch (const Error& error) {
    problem = error.what();
  }
  ::dup2(kept, STDOUT_FILENO);
  ::close(kept);
  reader.join();
  ::close(ends[0]);
  CHECK(problem.empty());
  const bool whole = got == text;  // Catch would print both
  CHECK(whole);
}
