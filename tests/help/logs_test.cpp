// What is said and where: levels, the log's file, JSON lines, events for other programs; options that ask for what is
// so anyway.
#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "common/message_codes.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm::test;
using Json = nlohmann::json;

namespace {

class LogsBench {
 public:
  LogsBench() { tiny_model({.layers = 1, .context = 4096}).write(folder / "tiny.gguf"); }
  Outcome operator()(std::vector<std::string> more) const {
    std::vector<std::string> arguments{
        "-m", (folder / "tiny.gguf").string(), "-p", "ab", "-n", "3", "--temp", "0", "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }
  std::string file(const std::string& name) const { return (folder / name).string(); }
  TempDir folder;
};

std::string content(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Json> objects(const std::string& text) {
  std::istringstream in(text);
  std::vector<Json> all;
  for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
  return all;
}

std::vector<Json> of(const std::vector<Json>& events, const std::string& name) {
  std::vector<Json> found;
  for (const Json& e : events) {
    if (e["event"] == name) found.push_back(e);
  }
  return found;
}

}  // namespace

TEST_CASE("-lv chooses what stderr shows, -q and -v are two of its levels") {
  const LogsBench bench;
  const std::string raw = "note: ", timing = "stop: length", threads = "threads: ";
  for (const char* level : {"0", "1"}) CHECK(bench({"-lv", level}).err.empty());
  CHECK(bench({"--log-disable"}).err.empty());
  CHECK_FALSE(contains(bench({"-lv", "2"}).err, timing));
  CHECK(contains(bench({"-lv", "3"}).err, timing));
  CHECK_FALSE(contains(bench({"-lv", "3"}).err, threads));
  for (const char* level : {"4", "5"}) CHECK(contains(bench({"-lv", level}).err, threads));
  CHECK(contains(bench({"-q", "-v"}).err, threads));  // the last one counts
  CHECK(bench({"-v", "-q"}).err.empty());
  CHECK(bench({"-lv", "6"}).code == 2);
  CHECK_FALSE(contains(bench({"--no-show-timings"}).err, timing));
  CHECK(contains(bench({"--no-show-timings", "--show-timings"}).err, timing));
}

TEST_CASE("the log's file has what -v shows, whatever stderr shows, and errors") {
  const LogsBench bench;
  const std::string log = bench.file("log");
  const Outcome o = bench({"-q", "--log-file", log});
  CHECK(o.code == 0);
  CHECK(o.err.empty());
  CHECK(contains(content(log), "threads: "));
  CHECK(contains(content(log), "stop: length\n"));
  CHECK(bench({"--log-file", log, "--grammar", "root ::= ("}).code == 6);
  CHECK(contains(content(log), "llm-run: error[E-NOTATION]: "));
  CHECK_FALSE(contains(content(log), "stop: length\n"));  // begun anew
  CHECK(bench({"--log-file", bench.file("tiny.gguf") + "/log"}).code == 8);
  CHECK(bench({"--log-file", bench.file("none") + "/log"}).code == 8);
  CHECK_FALSE(std::filesystem::exists(bench.file("none")));
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--grammar", "root ::= ("}}) {
    std::vector<std::string> full{"--log-file", "/dev/full"};
    full.insert(full.end(), more.begin(), more.end());
    const Outcome lost = bench(full);
    CHECK(lost.code == (more.empty() ? 0 : 6));
    const std::size_t told = lost.err.find("llm-run: note: the log's file ends here: ");
    CHECK(told != std::string::npos);
    CHECK(lost.err.find("ends here", told + 40) == std::string::npos);
    CHECK_FALSE(contains(lost.err, "LOG ERROR"));
  }
  const Outcome model = bench({"--log-file", bench.file("tiny.gguf")});
  CHECK(model.code == 2);
  CHECK(contains(model.err, "would be overwritten"));
}

TEST_CASE("a log replaces nothing that a program reads or writes") {
  const LogsBench bench;
  const std::string model = bench.file("tiny.gguf"), log = bench.file("log"), settings = bench.file("settings.toml");
  const auto refused = [&](const char* name, std::vector<std::string> arguments, const std::string& file,
                           std::vector<std::pair<std::string, std::string>> environment = {}) {
    const std::string before = content(file);
    arguments.insert(arguments.end(), {"--log-file", file});
    const Outcome o =
        run({.program = program(name), .arguments = std::move(arguments), .environment = std::move(environment)});
    INFO(name << ": " << o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, "would be overwritten by "));
    CHECK(contains(o.err, "--log-file"));
    CHECK(content(file) == before);
  };
  refused("llm-inspect", {"show", model}, model);
  refused("llm-inspect", {"tokenize", model, "-f", log}, log);
  refused("llm-inspect", {"verify", model, "--sha256", log}, log);
  refused("llm-inspect", {"split", model, log, "--max-tensors", "2"}, model);
  refused("llm-quantize", {model, bench.file("out.gguf"), "Q8_0"}, model);
  refused("llm-quantize", {model, bench.file("out.gguf"), "Q8_0"}, bench.file("out.gguf"));
  refused("llm-run", {"-m", model, "-p", "a", "-o", log}, log);
  std::ofstream(settings) << "predict = 2\n";
  refused("llm-run", {"-m", model, "-p", "a"}, settings, {{"LLM_RUN_CONFIG", settings}});
  CHECK(bench({"-o", "/dev/null", "--log-file", "/dev/null"}).code == 0);
}

TEST_CASE("with --log-jsonl every line on stderr is an object") {
  const LogsBench bench;
  const std::string log = bench.file("log");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--log-jsonl", "-v", "--log-file", log}, {"--log-jsonl", "--grammar", "root ::= ("}}) {
    const std::vector<Json> lines = objects(bench(more).err);
    REQUIRE_FALSE(lines.empty());
    for (const Json& line : lines) {
      CHECK(line["program"] == "llm-run");
      CHECK(line["time"].get<std::string>().size() == std::string("2026-01-31T12:00:00.123Z").size());
      CHECK(line["message"].is_string());
    }
    const std::string level = more.back() == log ? "verbose" : "error";
    CHECK(std::any_of(lines.begin(), lines.end(), [&](const Json& line) { return line["level"] == level; }));
  }
  CHECK(objects(content(log)).size() > 3);
  const Json last = objects(bench({"--log-jsonl", "-c", "many"}).err).back();
  CHECK(last["level"] == "error");
  CHECK(last["id"] == "E-USAGE");
}

TEST_CASE("events tell a run: load, prefill, decode, done, end") {
  const LogsBench bench;
  const std::string path = bench.file("events");
  CHECK(bench({"--events", path}).code == 0);
  const std::vector<Json> events = objects(content(path));
  double last = 0;
  for (const Json& e : events) {
    CHECK(e["t"].get<double>() >= last);
    last = e["t"].get<double>();
  }
  const std::vector<Json> prefill = of(events, "prefill"), decode = of(events, "decode");
  REQUIRE_FALSE(of(events, "loaded").empty());
  CHECK(of(events, "loaded")[0]["architecture"] == "llama");
  REQUIRE_FALSE(prefill.empty());
  CHECK(prefill.back()["done"] == prefill.back()["total"]);
  REQUIRE_FALSE(decode.empty());
  CHECK(decode.front()["tokens"] == 1);
  CHECK(decode.back()["tokens"] == 3);
  const std::vector<Json> done = of(events, "done");
  REQUIRE(done.size() == 1);
  CHECK(done[0]["finish_reason"] == "length");
  CHECK(done[0]["completion_tokens"] == 3);
  CHECK(done[0]["prompt_tokens"] == prefill.back()["total"]);
  CHECK(events.back()["event"] == "end");
  CHECK(events.back()["code"] == 0);
}

TEST_CASE("events of failures and batches, to descriptors, and to a reader that goes") {
  const LogsBench bench;
  const std::string path = bench.file("events");
  CHECK(bench({"--events", path, "-c", "1"}).code == 5);
  const std::vector<Json> failed = objects(content(path));
  CHECK(failed.back()["event"] == "error");
  CHECK(failed.back()["code"] == 5);

  const std::string rows = bench.folder.write("rows.txt", "ab\nba\n").string();
  const Outcome batch =
      run({.program = program("llm-run"),
           .arguments = {"-m", bench.file("tiny.gguf"), "--batch", rows, "-n", "2", "--events", path}});
  CHECK(batch.code == 0);
  const std::vector<Json> of_batch = of(objects(content(path)), "batch");
  REQUIRE_FALSE(of_batch.empty());
  CHECK(of_batch.back()["done"] == 2);
  CHECK(of_batch.back()["rows"] == 2);

  // Descriptor 2 is stderr: with -q nothing else is there.
  CHECK(objects(bench({"-q", "--events", "fd:2"}).err).back()["event"] == "end");
  CHECK(bench({"--events", "fd:9"}).code == 2);
  CHECK(bench({"--events", "fd:0"}).code == 2);  // open, for reading
  CHECK(bench({"--events", bench.file("none/events")}).code == 8);
  CHECK(bench({"--events", bench.file("tiny.gguf")}).code == 2);
  const Outcome full = bench({"--events", "/dev/full"});
  CHECK(full.code == 0);
  CHECK(contains(full.err, "note: events end here: No space left on device"));
}

TEST_CASE("options that ask for what is so anyway are accepted, for anything else they are refused") {
  const LogsBench bench;
  CHECK(bench({"--offline", "--mmap",     "--no-warmup", "-cb",  "-nr", "-nkvo",   "-kvo", "-fa",  "on",
               "-ngl",      "0",          "-dev",        "none", "-sm", "none",    "-lm",  "mmap", "-lzm",
               "on",        "--swa-full", "--no-perf",   "-fit", "off", "--jinja", "-q"})
            .code == 0);
  const auto refused = [&](std::vector<std::string> arguments, std::string_view part) {
    const Outcome o = bench(std::move(arguments));
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, part));
  };
  refused({"-fit", "on"}, "option -fit on is recognised, not supported: -ngl auto fits layers");
  refused({"-fa", "off"}, "option -fa off is recognised, not supported: attention never writes");
  refused({"-fa", "maybe"}, "option -fa: \"maybe\" is not on or auto");
  refused({"--prio", "high"}, "option --prio: \"high\" is not 0");
  refused({"--prio", "2"}, "option --prio 2 is recognised, not supported: nice(1)");
  refused({"-lm", "dio"}, "option -lm dio is recognised, not supported: the file is mapped, or read through");
  refused({"-lm", "fast"}, "option -lm: \"fast\" is not mmap, none or mlock");
  refused({"-lzm", "off"}, "option -lzm off is recognised, not supported: a mapped file is read where");
  refused({"--repack"}, "option --repack is recognised, not supported: weights always stay as they are");
  refused({"-td", "2"}, "-t, -tb, -C and -Cr count for a draft model, too");
  refused({"--spec-ngram-mod-n-max", "2"}, "follows from what came of them");
  refused({"--port", "80"}, "option --port is recognised, not supported: it belongs to llama.cpp's server");
  refused({"--control-vector", "x"}, "option --control-vector is recognised, not supported yet");
}

TEST_CASE("-C and -Cr choose processors, and with them the number of threads") {
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  int first = 0;
  while (CPU_ISSET(first, &allowed) == 0) ++first;
  const LogsBench bench;
  const std::string one = std::to_string(first);
  CHECK(contains(bench({"-v", "-Cr", one + "-" + one}).err, "threads: 1 (1 physical core in the affinity mask"));
  if (first < 4) {
    const std::string mask(1, static_cast<char>('0' + (1 << first)));
    CHECK(contains(bench({"-v", "-C", mask}).err, "threads: 1 (1 physical core"));
    CHECK(contains(bench({"-v", "-C", "0x" + mask}).err, "threads: 1 (1 physical core"));
  }
  // More of them than a cpu_set_t has room for.
  CHECK(bench({"-Cr", one + "-2000"}).code == 0);
  if (first < 4) CHECK(bench({"-C", std::string(300, '0') + static_cast<char>('0' + (1 << first))}).code == 0);
  CHECK(bench({"-Cr", "0-70000"}).code == 2);
  const Outcome by_default = bench({"-v"});
  const std::string choice = by_default.err.substr(by_default.err.find("threads: "));
  CHECK(contains(bench({"-v", "-t", "-1"}).err, choice.substr(0, choice.find('\n'))));
  // OpenMP binds the first thread to one processor before the program begins; the others count all the same.
  const auto bound = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"-m", bench.file("tiny.gguf"), "-p", "ab", "-n", "1", "-v"});
    return run(
        {.program = program("llm-run"), .arguments = std::move(more), .environment = {{"OMP_PROC_BIND", "true"}}});
  };
  CHECK(contains(bound({}).err, choice.substr(0, choice.find('\n'))));
  const Outcome twice = bound({"-Cr", one + "-" + one});
  CHECK(twice.code == 2);
  CHECK(contains(twice.err, "bind the threads already"));
  for (const char* wrong : {"xyz", "", "0x"}) CHECK(bench({"-C", wrong}).code == 2);
  for (const char* wrong : {"3", "3-1", "a-b", "-"}) CHECK(bench({"-Cr", wrong}).code == 2);
}

TEST_CASE("every code that errors and warnings carry is in the table and in the documentation") {
  // The sources are the other side: what they warn with, the table has, and the other way round.
  static const std::regex given(R"re((?:warnings_?(?:->|\.)push_back\(\{|print_warnings\(\{\{)\s*"([a-z0-9-]+)")re");
  std::set<std::string> used;
  for (const char* folder : {"lib", "apps", "models"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(source_dir() / folder)) {
      if (entry.path().extension() != ".cpp") continue;
      const std::string text = content(entry.path().string());
      for (std::sregex_iterator i(text.begin(), text.end(), given), end; i != end; ++i) used.insert((*i)[1]);
    }
  }
  CHECK(used.size() > 20);
  std::set<std::string> known;
  const std::string docs = content((source_dir() / "docs" / "cli.md").string());
  for (const llm::app::WarningCode& w : llm::app::warning_codes()) {
    CHECK(known.insert(std::string(w.code)).second);
    CHECK(contains(docs, "| `" + std::string(w.code) + "` | " + std::string(w.meaning) + " |"));
  }
  CHECK(used == known);
  for (const llm::app::ErrorCode& e : llm::app::error_codes()) {
    CHECK(contains(docs, "| `" + std::string(e.code) + "` | " + std::to_string(static_cast<int>(e.kind)) + " |"));
  }
}

TEST_CASE("a warning and an error carry their codes, in words, in JSON and as events") {
  const LogsBench bench;
  const std::string events = bench.file("events"), prompt(5000, 'c');
  const Outcome warned = bench({"-c", "64", "--on-overflow", "truncate", "-no-cnv", "-p", prompt, "--events", events});
  CHECK(contains(warned.err, "llm-run: warning[prompt-cut]: prompt "));
  const auto told = of(objects(content(events)), "warning");
  REQUIRE(told.size() == 1);
  CHECK(told[0]["id"] == "prompt-cut");
  const Outcome refused = bench({"-c", "64", "-no-cnv", "-p", prompt, "--events", events});
  CHECK(refused.code == 5);
  CHECK(refused.err.starts_with("llm-run: error[E-CTX]: prompt "));
  CHECK(contains(refused.err, "; -c N gives more"));  // it says what to do: no second line
  CHECK_FALSE(contains(refused.err, "hint"));
  CHECK(of(objects(content(events)), "error").at(0)["id"] == "E-CTX");
  const Outcome missing = run({.program = program("llm-run"), .arguments = {"-m", "/no/such.gguf", "-p", "a"}});
  CHECK(contains(missing.err, "llm-run: error[E-MODEL]: /no/such.gguf: "));
  CHECK(contains(missing.err, "\nllm-run: hint: "));
  const Outcome quiet = run({.program = program("llm-run"), .arguments = {"-m", "/no/such.gguf", "-p", "a", "-q"}});
  CHECK(std::count(quiet.err.begin(), quiet.err.end(), '\n') == 1);
  CHECK(objects(bench({"-c", "64", "--on-overflow", "truncate", "-no-cnv", "-p", prompt, "--log-jsonl"}).err)
            .at(0)["id"] == "prompt-cut");
}
