// The sampling options, stop strings and escapes of llm-run as a real process.
#include <fstream>

#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

class SamplingBench {
 public:
  explicit SamplingBench(TinyFile file = tiny_model({.layers = 2, .context = 100000})) { file.write(model()); }
  std::filesystem::path model() const { return folder_ / "tiny.gguf"; }
  std::filesystem::path file(std::string_view name, std::string_view content) const {
    return folder_.write(name, content);
  }
  Outcome operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-m", model().string(), "-p", "abc", "-n", "40", "--ignore-eos"});
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }
  std::string text(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"-q", "-s", "3"});
    const Outcome o = (*this)(std::move(arguments));
    REQUIRE(o.code == 0);
    return o.out;
  }

 private:
  TempDir folder_;
};

/// The chain that -v shows.
std::string chain(const Outcome& o) {
  REQUIRE(o.code == 0);
  const std::string name = "sampling: ";
  const std::size_t at = o.err.find(name);
  REQUIRE(at != std::string::npos);
  return o.err.substr(at + name.size(), o.err.find('\n', at) - at - name.size());
}

std::string refusal(const std::vector<std::string>& options) {
  std::vector<std::string> arguments{"-m", "/no/model", "-p", "a"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome o = run({.program = program("llm-run"), .arguments = arguments});
  CHECK(o.code == 2);
  CHECK(o.out.empty());
  return o.err;
}

}  // namespace

TEST_CASE("sampling options make the chain that they name") {
  const SamplingBench bench;
  const auto of = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"-v", "-n", "1"});
    return chain(bench(options));
  };
  CHECK(of({}) == "top_k 40 -> top_p 0.95 -> min_p 0.05 -> temperature 0.8 -> draw");
  CHECK(of({"--samplers", "min-p;temp,top_k"}) == "min_p 0.05 -> temperature 0.8 -> top_k 40 -> draw");
  CHECK(of({"--sampler-seq", "tp"}) == "temperature 0.8 -> top_p 0.95 -> draw");
  CHECK(of({"--top-k", "0", "--top-p", "1", "--min-p", "0", "--temp", "1", "--repeat-penalty", "1.1",
            "--presence-penalty", "0.5", "--frequency-penalty", "-0.25", "--repeat-last-n", "-1"}) ==
        "penalties 1.1/0.5/-0.25 of -1 -> draw");
  CHECK(of({"--top-k",
            "0",
            "--top-p",
            "1",
            "--min-p",
            "0",
            "--temp",
            "1",
            "--dry-multiplier",
            "0.8",
            "--dry-base",
            "2",
            "--dry-allowed-length",
            "3",
            "--dry-penalty-last-n",
            "100",
            "--top-nsigma",
            "1.5",
            "--typical",
            "0.9",
            "--xtc-probability",
            "0.5",
            "--xtc-threshold",
            "0.2",
            "--dynatemp-range",
            "0.25",
            "--dynatemp-exp",
            "1.5"}) ==
        "dry 0.8 * 2^(n - 3) of 100 -> top_n_sigma 1.5 -> typ_p 0.9 -> xtc 0.5 above 0.2 -> "
        "temperature 1 +- 0.25 ^ 1.5 -> draw");
  CHECK(of({"--mirostat", "2", "--mirostat-lr", "0.2", "--mirostat-ent", "4"}) ==
        "temperature 0.8 -> mirostat 2 (tau 4, eta 0.2)");
  CHECK(of({"--greedy", "--typical", "0.5"}) == "temperature 0 -> draw");
  CHECK(of({"-l", "65+1.5,66-2", "--logit-bias", "70-inf"}) == "bias 65+1.5 -> bias 66-2 -> bias 70-inf -> " + of({}));
}

TEST_CASE("what a file recommends comes before the defaults and after the options") {
  TinyFile file = tiny_model({.layers = 1});
  file.set("general.sampling.temp", 0.6F);
  file.set("general.sampling.top_k", std::int32_t{20});
  file.set("general.sampling.penalty_repeat", 1.05F);
  file.set("general.sampling.sequence", "penalties;temperature;top_k");
  const SamplingBench bench(std::move(file));
  CHECK(chain(bench({"-v", "-n", "1"})) ==
        "penalties 1.05/0/0 of 64 -> temperature 0.6 -> top_k 20 -> draw; the file recommends "
        "temperature, top_k, repeat_penalty, samplers");
  CHECK(contains(chain(bench({"-v", "-n", "1", "--top-k", "40", "--samplers", "top_k"})), "top_k 40 -> draw"));
}

TEST_CASE("what a file recommends in error is warned about and left out") {
  TinyFile file = tiny_model({.layers = 1});
  file.set("general.sampling.temp", "hot");
  file.set("general.sampling.top_p", 7.0F);
  file.set("general.sampling.top_k", 2.5F);
  file.set("general.sampling.min_p", std::uint32_t{0});
  file.set("general.sampling.sequence", "top_k;nonsense");
  file.set("general.sampling.luck", std::uint32_t{1});
  const SamplingBench bench(std::move(file));
  const Outcome o = bench({"-v", "-n", "1"});
  CHECK(contains(o.err, "general.sampling.temp\" is left out: is a string, not a number"));
  CHECK(contains(o.err, "general.sampling.top_p\" is left out: 7 is not a number from 0 to 1"));
  CHECK(contains(o.err, "general.sampling.top_k\" is left out: 2.5 is not a whole number from -1 to 2147483647"));
  CHECK(contains(o.err, "general.sampling.sequence\" is left out: no sampler is called \"nonsense\""));
  CHECK(contains(o.err, "general.sampling.luck\" is left out: is not known"));
  CHECK(chain(o) == "top_k 40 -> top_p 0.95 -> temperature 0.8 -> draw; the file recommends min_p");
}

TEST_CASE("wrong sampling options are told before a model is loaded") {
  CHECK(contains(refusal({"--samplers", "top_k;top_q"}), "no sampler is called \"top_q\"; did you mean top_k?"));
  for (const char* option : {"--samplers", "--sampler-seq"})
    CHECK(contains(refusal({option, ""}), "the value is empty, a sampler is required"));
  CHECK(contains(refusal({"--samplers", "magic"}), "there are penalties, dry, top_n_sigma"));
  CHECK(contains(refusal({"--samplers", "infill"}), "\"infill\" is recognised, not supported"));
  CHECK(contains(refusal({"--samplers", "adaptive-p"}), "\"adaptive-p\" is recognised, not supported"));
  CHECK(contains(refusal({"--sampler-seq", "kq"}), "no sampler has the letter \"q\""));
  CHECK(contains(refusal({"--sampler-seq", "a"}), "(adaptive_p) is recognised, not supported"));
  CHECK(contains(refusal({"--adaptive-target", "0.5"}), "recognised, not supported"));
  struct Range {
    const char *option, *value, *range;
  };
  for (const Range r :
       {Range{"--typical", "1.1", "from 0 to 1"}, Range{"--top-nsigma", "-2", "from -1 to 1000"},
        Range{"--xtc-probability", "-0.1", "from 0 to 1"}, Range{"--xtc-threshold", "2", "from 0 to 1"},
        Range{"--repeat-last-n", "-2", "from -1 to"}, Range{"--repeat-penalty", "0", "from 0.01 to 100"},
        Range{"--presence-penalty", "inf", "from -100 to 100"}, Range{"--frequency-penalty", "101", "from -100 to 100"},
        Range{"--dry-multiplier", "-1", "from 0 to 100"}, Range{"--dry-base", "0.5", "from 1 to 100"},
        Range{"--dry-allowed-length", "0", "from 1 to"}, Range{"--dry-penalty-last-n", "x", "from -1 to"},
        Range{"--dynatemp-range", "-1", "from 0 to 1000"}, Range{"--dynatemp-exp", "-1", "from 0 to 100"},
        Range{"--mirostat", "3", "from 0 to 2"}, Range{"--mirostat-lr", "11", "from 0 to 10"},
        Range{"--mirostat-ent", "101", "from 0 to 100"}}) {
    INFO(r.option);
    const std::string message = refusal({r.option, r.value});
    CHECK(contains(message, "option " + std::string(r.option)));
    CHECK(contains(message, r.range));
  }
  for (const char* bias : {"5", "x+1", "-3+1", "5+", "5+x", "5*2", "5+-1", "5+nan", "5+inf", "5+1e31", "5+1;6+1",
                           "5+1,", "\"a", "\"\"+1", "\"a\""}) {
    INFO(bias);
    CHECK(contains(refusal({"-l", bias}), "option -l: "));
  }
  CHECK(contains(refusal({"--dry-sequence-breaker", ""}), "is empty"));
  CHECK(contains(refusal({"-r", ""}), "option -r"));
  const Outcome beyond = SamplingBench()({"-l", "267+1"});
  CHECK(beyond.code == 2);
  CHECK(contains(beyond.err, "token 267 is not in the vocabulary of 267 tokens"));
}

TEST_CASE("options that change nothing are noted") {
  const SamplingBench bench;
  const auto err = [&](std::vector<std::string> options) { return bench(options).err; };
  CHECK(contains(err({"--samplers", "top_k", "--temp", "0"}), "--temp does nothing: temperature is not among"));
  CHECK(contains(err({"--mirostat", "1", "--top-k", "5"}), "--top-k does nothing: Mirostat replaces"));
  CHECK(contains(err({"--mirostat-ent", "4"}), "--mirostat-ent does nothing without --mirostat 1 or 2"));
  CHECK(contains(err({"--greedy", "--top-p", "0.5"}), "--top-p does nothing beside --greedy"));
  CHECK(contains(err({"--greedy", "--temp", "0.7"}), "--temp does nothing beside --greedy"));
  CHECK(contains(err({"--greedy", "--samplers", "top_k"}), "--samplers does nothing beside --greedy"));
  CHECK_FALSE(contains(err({"--greedy", "--temp", "0", "--repeat-penalty", "1.1"}), "does nothing"));
  CHECK_FALSE(contains(err({"--mirostat", "2", "--temp", "0.5", "--mirostat-lr", "0.2"}), "does nothing"));
  CHECK_FALSE(contains(err({"--repeat-penalty", "1.1", "--temp", "0.5"}), "does nothing"));

  const auto noted = [&](const std::vector<std::string>& options, const std::string& what) {
    return contains(err(options), "note: " + options[0] + " does nothing without " + what + "\n");
  };
  CHECK(noted({"--repeat-penalty", "1.2", "--repeat-last-n", "0"}, "a --repeat-last-n other than 0"));
  CHECK(noted({"--repeat-last-n", "9"}, "--repeat-penalty, --presence-penalty or --frequency-penalty"));
  CHECK(noted({"--xtc-threshold", "0.2"}, "--xtc-probability"));
  CHECK(noted({"--xtc-probability", "0.2", "--xtc-threshold", "0.6"}, "an --xtc-threshold of at most 0.5"));
  CHECK(noted({"--dry-base", "2"}, "--dry-multiplier"));
  CHECK(noted({"--dry-sequence-breaker", "x"}, "--dry-multiplier"));
  CHECK(noted({"--dry-multiplier", "1", "--dry-penalty-last-n", "0"}, "a --dry-penalty-last-n other than 0"));
  CHECK(noted({"--dynatemp-range", "0.5", "--temp", "0"}, "a --temp above 0"));
  CHECK(noted({"--dynatemp-exp", "2"}, "--dynatemp-range"));
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--xtc-threshold", "0.2", "--xtc-probability", "0.5"},
           {"--repeat-last-n", "9", "--presence-penalty", "0.5"},
           {"--dry-base", "2", "--dry-multiplier", "1", "--dry-sequence-breaker", "x"},
           {"--dynatemp-exp", "2", "--dynatemp-range", "0.5"},
           {"--repeat-last-n", "64", "--xtc-threshold", "0.1", "--dry-base", "1.75", "--dynatemp-exp", "1"}}) {
    INFO(options[0]);
    CHECK_FALSE(contains(err(options), "does nothing"));
  }
  // What switches the rest off has its effect.
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--repeat-last-n", "0", "--repeat-penalty", "1.2"},
                                             {"--xtc-threshold", "0.6", "--xtc-probability", "0.2"},
                                             {"--dry-penalty-last-n", "0", "--dry-multiplier", "1"}}) {
    INFO(options[0]);
    CHECK_FALSE(contains(err(options), "note: " + options[0]));
  }
}

TEST_CASE("a bias decides, by token and by text") {
  const SamplingBench bench;
  const SamplingBench bpe(tiny_model({.context = 1000, .tokenizer = TinyTokenizer::Bpe}));
  CHECK(bpe.text({"-l", "\"\\x41\"+1000"}) == std::string(40, 'A') + "\n");
  CHECK(bench.text({"--greedy", "-l", "68+1000"}) == bench.text({"--temp", "0", "-l", "68+1000"}));
  // Token 68 is the byte 0x41, the letter A, in a vocabulary of <unk> <s> </s> and 256 bytes.
  CHECK(bench.text({"-l", "68+1000"}) == std::string(40, 'A') + "\n");
  CHECK(bench.text({"-l", "68+1000", "-l", "68-1000"}) == bench.text({}));
}

TEST_CASE("an answer ends before its stop strings") {
  const SamplingBench bench;
  const std::string whole = bench.text({"--temp", "1.5"});
  REQUIRE(whole.size() > 20);
  const std::size_t at = 8;
  std::string stop = whole.substr(at, 3);
  const std::size_t first = whole.find(stop);
  const auto until = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--temp", "1.5"});
    return bench.text(options);
  };
  CHECK(until({"--no-escape", "--stop", stop}) == whole.substr(0, first) + "\n");
  CHECK(until({"--no-escape", "-r", "never found", "--reverse-prompt", stop}) == whole.substr(0, first) + "\n");
  CHECK(until({"-r", "never found"}) == whole);
  const Outcome o = bench({"-l", "68+1000", "-r", "AAA"});
  CHECK(o.out == "\n");
  CHECK(contains(o.err, "stop: stop string"));
  CHECK(contains(o.err, "gen 3 tok"));
  CHECK(bench.text({"-l", "68+1000", "-r", "\\x41B", "--stop", "A\\n"}) == std::string(40, 'A') + "\n");
  CHECK(bench.text({"-l", "68+1000", "-r", "\\x41\\x41"}) == "\n");
  CHECK(bench.text({"-l", "68+1000", "-r", "\\x41", "--no-escape"}) == std::string(40, 'A') + "\n");
  CHECK(bench.text({"-l", "68+1000", "-r", "\\x41", "--no-escape", "-e"}) == "\n");
}

TEST_CASE("a control token can be a stop string") {
  const Outcome o = SamplingBench()({"-l", "1+1000", "-r", "<s>"});
  CHECK(o.code == 0);
  CHECK(o.out == "\n");
  CHECK(contains(o.err, "gen 0 tok"));
  CHECK(contains(o.err, "stop: stop string"));
}

TEST_CASE("escapes in prompts are processed on the command line only") {
  const SamplingBench bench;
  const auto tokens = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"-m", bench.model().string(), "-n", "0"});
    const std::string err = run({.program = program("llm-run"), .arguments = options}).err;
    const std::size_t at = err.find("prompt ");
    REQUIRE(at != std::string::npos);
    return err.substr(at, err.find(" tok", at) - at);
  };
  const std::string one = tokens({"-p", "a\nb"}), two = tokens({"-p", "a\\nb", "--no-escape"});
  CHECK(one != two);
  CHECK(tokens({"-p", "a\\nb"}) == one);
  CHECK(tokens({"-f", bench.file("p.txt", "a\\nb").string()}) == two);
}
