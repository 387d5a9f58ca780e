// Where settings come from: the order file < LLAMA_ARG_... < LLM_RUN_... < command line, and errors that name the
// source.
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm::test;

namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

class SettingsBench {
 public:
  SettingsBench() { tiny_model({.layers = 1, .context = 4096}).write(folder / "tiny.gguf"); }

  Outcome operator()(std::vector<std::string> arguments, Environment environment = {}) const {
    arguments.insert(arguments.end(), {"-p", "ab", "--temp", "0", "-no-cnv"});
    return plain(std::move(arguments), std::move(environment));
  }
  Outcome plain(std::vector<std::string> arguments, Environment environment = {}) const {
    environment.emplace_back("LLM_RUN_MODEL", (folder / "tiny.gguf").string());
    environment.emplace_back("LLM_RUN_IGNORE_EOS", "1");
    return run(
        {.program = program("llm-run"), .arguments = std::move(arguments), .environment = std::move(environment)});
  }
  std::string config(const std::string& text) const { return folder.write("c.toml", text).string(); }

  TempDir folder;
};

/// How many tokens an answer has: what -n was.
std::string generated(const Outcome& o) {
  REQUIRE(o.code == 0);
  const std::size_t at = o.err.find("gen ");
  REQUIRE(at != std::string::npos);
  return o.err.substr(at + 4, o.err.find(' ', at + 4) - at - 4);
}

}  // namespace

TEST_CASE("the command line counts before LLM_RUN, that before LLAMA_ARG, that before the file") {
  const SettingsBench bench;
  const std::string file = bench.config("# few\npredict = 3\n");
  const Environment llama{{"LLAMA_ARG_N_PREDICT", "4"}}, both{{"LLAMA_ARG_N_PREDICT", "4"}, {"LLM_RUN_PREDICT", "5"}};
  CHECK(generated(bench({"--config", file})) == "3");
  CHECK(generated(bench({"--config=" + file})) == "3");
  CHECK(generated(bench({}, {{"LLM_RUN_CONFIG", file}})) == "3");
  CHECK(generated(bench({"--config", file}, llama)) == "4");
  CHECK(generated(bench({"--config", file}, both)) == "5");
  CHECK(generated(bench({"--config", file, "-n", "6"}, both)) == "6");
  CHECK(generated(bench({"--config", file, "-n6"}, both)) == "6");
  CHECK(generated(bench({}, {{"LLM_RUN_N_PREDICT", "7"}})) == "7");        // any of the option's long names
  CHECK(generated(bench({"-n", "2"}, {{"LLM_RUN_PREDICT", ""}})) == "2");  // empty is unset
  CHECK(generated(bench({"-n", "2"}, {{"LLM_RUN_PREDICT", "wrong, and not used"}})) == "2");
}

TEST_CASE("-v says what came from where") {
  const SettingsBench bench;
  const std::string file = bench.config("seed = 9\n\npredict = 1\n");
  const Outcome o = bench({"--config", file, "-v", "-n", "2"}, {{"LLAMA_ARG_TOP_K", "7"}});
  CHECK(contains(o.err, "setting: --seed 9 (" + file + ":1)\n"));
  CHECK(contains(o.err, "setting: --top-k 7 (LLAMA_ARG_TOP_K)\n"));
  CHECK_FALSE(contains(o.err, "setting: --predict"));
  CHECK(contains(o.err, "seed: 9\n"));
}

TEST_CASE("values of a file: texts, numbers, flags, arrays") {
  const SettingsBench bench;
  const std::string text = bench({"-n", "6", "-q"}).out;
  REQUIRE(text.size() > 4);
  const std::string end = "u",
                    expected = text.substr(0, text.find(end));  // the model's own text, cut at a letter of it
  REQUIRE(expected.size() < text.size());
  const auto with = [&](const std::string& lines) {
    return bench({"-n", "6", "-q", "--no-newline", "--config", bench.config(lines)}).out;
  };
  CHECK(with("stop = [\"not there\", \"" + end + "\"]") == expected);
  CHECK(with("top-p = 0.5\nctx-size = \"1k\"\ndisplay-prompt = false") == text.substr(0, text.size() - 1));
  // A list is taken from one place: the command line's replaces the file's.
  const std::string file = bench.config("stop = [\"" + end + "\"]");
  CHECK(bench({"-n", "6", "-q", "--config", file, "--stop", "not there"}).out == text);
}

TEST_CASE("false of a flag is its opposite") {
  const SettingsBench bench;
  const Outcome kept = bench.plain(
      {"-p", "a\\tb", "-n", "1", "--display-prompt", "--temp", "0", "--config", bench.config("escape = false\n")});
  CHECK(contains(kept.err, "a\\tb"));
  CHECK(contains(
      bench.plain({"-p", "a\\tb", "-n", "1", "--display-prompt", "--config", bench.config("escape = true\n")}).err,
      "a\tb"));
  CHECK(contains(
      bench.plain({"-p", "a\\tb", "-n", "1", "--display-prompt", "-e", "--config", bench.config("no-escape = true\n")})
          .err,
      "a\tb"));
  CHECK(bench({"-n", "1", "-v"}, {{"LLAMA_ARG_NO_CONTEXT_SHIFT", "1"}})
            .err.find("--no-context-shift true (LLAMA_ARG_NO_CONTEXT_SHIFT)") != std::string::npos);
  CHECK(contains(bench({"-n", "1"}, {{"LLM_RUN_STRICT", "perhaps"}}).err,
                 "LLM_RUN_STRICT: \"perhaps\" is not true or false"));
}

TEST_CASE("the command line takes back a flag that is set elsewhere") {
  const SettingsBench bench;
  const Environment set{{"LLM_RUN_DRY_RUN", "1"}, {"LLAMA_ARG_CONTEXT_SHIFT", "1"}, {"LLM_RUN_INTERACTIVE", "1"}};
  const std::vector<std::string> back{"-n", "2", "--dry-run=false", "--context-shift=off", "-i=No"};
  const Outcome o = bench(back, set);
  CHECK(generated(o) == "2");
  CHECK(contains(bench({"-n", "2", "-v", "-i=0", "--dry-run=disabled"}, set).err,
                 "setting: --context-shift 1 (LLAMA_ARG_CONTEXT_SHIFT)\n"));
  std::vector<std::string> loud = back;
  loud.emplace_back("-v");
  CHECK_FALSE(contains(bench(loud, set).err, "setting: --context-shift"));
  // A flag that is false is its opposite here, too, and one that is true is the flag.
  const auto prompt = [&](const std::string& flag) {
    return bench.plain({"-p", "a\\tb", "-n", "1", "--display-prompt", "--temp", "0", flag}).err;
  };
  CHECK(contains(prompt("--escape=false"), "a\\tb"));
  CHECK(contains(prompt("--no-escape=TRUE"), "a\\tb"));
  CHECK(contains(prompt("--no-escape=0"), "a\tb"));
  for (const std::string flag : {"--strict=perhaps", "--strict="}) {
    const Outcome refused = bench({"-n", "1", flag});
    CHECK(refused.code == 2);
    CHECK(contains(refused.err, "option --strict: \"" + flag.substr(9) + "\" is not true or false"));
  }
}

TEST_CASE("errors name the variable, or the file and line") {
  const SettingsBench bench;
  const auto refused = [&](std::vector<std::string> arguments, const Environment& e, std::string_view part) {
    const Outcome o = bench(std::move(arguments), e);
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, part));
  };
  refused({}, {{"LLAMA_ARG_CTX_SIZE", "many"}},
          "error[E-USAGE]: LLAMA_ARG_CTX_SIZE: \"many\" is not a whole number from 0 to");
  refused({}, {{"LLM_RUN_ON_OVERFLOW", "wrap"}},
          "error[E-USAGE]: LLM_RUN_ON_OVERFLOW: \"wrap\" is not error, shift or truncate");
  const auto file = [&](const std::string& text, const std::string& part) {
    const std::string path = bench.config(text);
    refused({"--config", path}, {}, "error[E-USAGE]: " + path + part);
  };
  file("seed = 1\nctx-size = \"many\"\n", ":2: \"many\" is not a whole number");
  file("\n\nctx-sise = 5\n", ":3: there is no option --ctx-sise; did you mean ctx-size?");
  file("n = 5\n", ":1: there is no option --n; did you mean predict?");
  file("control-vector = \"x\"\n", ":1: control-vector is recognised, not supported yet");
  file("seed = [1, 2]\n", ":1: takes one value, an array is given");
  file("seed = 1\nseed = 2\n", ":2: ");
  CHECK_FALSE(contains(bench({"--config", bench.config("seed = 1\nseed = 2\n")}).err, "quotes"));
  file("[sampling]\nseed = 1\n", ":1: tables are not used here");
  file("seed == 1\n", ":1: ");
  file("seed = 1979-05-27\n", ":1: is not a text, a number");
  file("config = \"other\"\n", ":1: a configuration file cannot name another one");
  file("version = true\n", ":1: version prints something and ends: it is no setting");
  refused({"--config", "/no/such/file"}, {}, "/no/such/file: cannot read: No such file");
  refused({"--config", "/dev/zero"}, {}, "/dev/zero: has more than 64.0 MiB");
  // A hint is no error: -q leaves it out wherever the error is.
  CHECK(contains(bench({"--output-format", "xml"}).err, "hint: "));
  CHECK_FALSE(contains(bench({"--output-format", "xml", "-q"}).err, "hint: "));
  CHECK_FALSE(contains(bench({"--output-format", "xml", "--log-disable"}).err, "hint: "));
  CHECK_FALSE(contains(bench({"--quiet"}, {{"LLAMA_ARG_CTX_SIZE", "many"}}).err, "hint: "));
  // What shows only later names it as well.
  refused({"--regex", "a"}, {{"LLM_RUN_GRAMMAR", "root ::= \"a\""}},
          "an answer has one form only (--grammar is set by LLM_RUN_GRAMMAR)");
}

TEST_CASE("paths of a configuration file may begin in the home folder") {
  const SettingsBench bench;
  bench.folder.write("said.txt", "abab");
  const Outcome o = run({.program = program("llm-run"),
                         .arguments = {"--config", bench.config("model = \"~/tiny.gguf\"\nfile = [\"~/said.txt\"]\n"),
                                       "-no-cnv", "-n", "1"},
                         .environment = {{"HOME", bench.folder.path().string()}}});
  INFO(o.err);
  CHECK(o.code == 0);
}

TEST_CASE("variables without effect are mentioned, those of other programs and of the library are not") {
  const SettingsBench bench;
  const Outcome typo = bench({"-n", "1"}, {{"LLM_RUN_TOPK", "3"}});
  CHECK(typo.code == 0);
  CHECK(contains(
      typo.err,
      "warning[unknown-variable]: LLM_RUN_TOPK has no effect: there is no such setting; did you mean LLM_RUN_TOP_K?"));
  CHECK(bench({"-n", "1", "--strict"}, {{"LLM_RUN_TOPK", "3"}}).code == 10);
  for (const auto& [short_name, long_name] : Environment{{"LLM_RUN_N", "LLM_RUN_PREDICT"},
                                                         {"LLM_RUN_NP", "LLM_RUN_PARALLEL"},
                                                         {"LLM_RUN_T", "LLM_RUN_THREADS"},
                                                         {"LLM_RUN_M", "LLM_RUN_MODEL"},
                                                         {"LLM_RUN_NGL", "LLM_RUN_GPU_LAYERS"}}) {
    CHECK(contains(bench({"-n", "1"}, {{short_name, "1"}}).err,
                   short_name + " has no effect: there is no such setting; did you mean " + long_name + "?"));
  }
  CHECK(contains(bench({"-n", "1"}, {{"LLAMA_ARG_CTX_SZIE", "5"}}).err,
                 "warning[unknown-variable]: LLAMA_ARG_CTX_SZIE has no effect: there is no such setting; did you mean "
                 "LLAMA_ARG_CTX_SIZE?"));
  CHECK(contains(bench({"-n", "1"}, {{"LLAMA_ARG_SPLIT_MODE", "row"}}).err,
                 "note: LLAMA_ARG_SPLIT_MODE has no effect: option --split-mode row is recognised, not supported: "
                 "the parts of one matrix stay together"));
  // Of releases of llama.cpp that still had these.
  CHECK(contains(bench({"-n", "1"}, {{"LLAMA_ARG_DIO", "1"}}).err,
                 "note: LLAMA_ARG_DIO has no effect: option --direct-io is recognised, not supported: the file is"));
  for (const auto& [variable, value] : Environment{{"LLAMA_ARG_NO_MMAP", "1"}, {"LLAMA_ARG_MMAP", "0"}}) {
    const Outcome o = bench({"-n", "1", "-v"}, {{variable, value}});
    INFO(o.err);
    CHECK(contains(o.err, "setting: --no-mmap true (" + variable + ")"));
    CHECK_FALSE(contains(o.err, "warning"));
  }
  CHECK(contains(bench({"-n", "1", "-v"}, {{"LLAMA_ARG_MLOCK", "1"}}).err, "setting: --mlock 1 (LLAMA_ARG_MLOCK)"));
  for (const char* page : {"LLM_RUN_VERSION", "LLM_RUN_HELP", "LLM_RUN_LIST_DEVICES"}) {
    const Outcome o = bench({"-n", "1"}, {{page, "1.2.3"}});  // as images of containers set them
    CHECK(o.code == 0);
    CHECK(contains(o.err, "warning[unknown-variable]: " + std::string(page) + " has no effect"));
  }
  const Outcome quiet =
      bench({"-n", "1"}, {{"LLAMA_ARG_PORT", "80"}, {"LLM_RUN_CHECK", "0"}, {"LLM_RUN_ISA", "portable"}});
  CHECK_FALSE(contains(quiet.err, "note"));
  CHECK_FALSE(contains(quiet.err, "warning"));
}

TEST_CASE("settings of batches wait for a batch; pages are printed whatever is set") {
  const SettingsBench bench;
  CHECK(bench({"-n", "1"}, {{"LLM_RUN_PARALLEL", "4"}, {"LLM_RUN_BATCH_ORDER", "input"}}).code == 0);
  const auto rows = bench.folder.write("rows.txt", "ab\nba\n");
  const Outcome batch = bench.plain({"--batch", rows.string(), "-n", "1", "-v"}, {{"LLM_RUN_PARALLEL", "3"}});
  CHECK(batch.code == 0);
  CHECK(contains(batch.err, "setting: --parallel 3 (LLM_RUN_PARALLEL)"));
  CHECK(bench.plain({"--help"}, {{"LLM_RUN_SEED", "x"}}).code == 0);
  CHECK(bench.plain({"--version"}, {{"LLM_RUN_CONFIG", "/no/such"}}).code == 0);
}
