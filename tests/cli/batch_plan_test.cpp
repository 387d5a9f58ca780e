// What a batch says before it runs: how far results have come, and that rows were written for another model.
#include "batch_bench.h"

using namespace llm;
using namespace llm::test;

namespace {

std::string rows(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    // The third cannot be run.
    text += i == 2 ? "{\"id\": \"r2\", \"prompt\": 3}\n"
                   : "{\"id\": \"r" + std::to_string(i) + "\", \"prompt\": \"row " + std::to_string(i) + "\"}\n";
  }
  return text;
}

std::string line_of(const std::string& plan, const std::string& name) {
  const std::size_t at = ("\n" + plan).find("\n" + name + " ");
  REQUIRE(at != std::string::npos);
  const std::string line = plan.substr(at, plan.find('\n', at) - at);
  return line.substr(line.find_first_not_of(' ', name.size()));
}

}  // namespace

TEST_CASE("a plan of a batch that goes on counts what is done") {
  const Bench bench;
  const auto input = bench.file("in.jsonl", rows(8));
  const auto out = bench.path("out.jsonl");
  const std::vector<std::string> command{"--batch", input.string(), "-o", out.string(), "--temp", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return bench(more);
  };
  REQUIRE(with({"--limit", "5"}).code == 7);  // 4 answered, 1 failed
  const std::string results = read_file(out), state = read_file(bench.path("out.jsonl.state"));

  const Outcome resume = with({"--dry-run", "--resume"});
  INFO(resume.err);
  CHECK(resume.code == 0);
  CHECK(line_of(resume.out, "done") == "4 answered, 1 failed; 3 left");
  CHECK(line_of(resume.out, "rows") == "8, of which 0 cannot be run; answers 3");
  const Outcome retry = with({"--dry-run", "--retry-failed"});
  CHECK(line_of(retry.out, "done") == "4 answered, 0 failed; 4 left");
  CHECK(line_of(retry.out, "rows") == "8, of which 1 cannot be run; answers 3");
  CHECK_FALSE(contains(with({"--dry-run"}).out, "done "));
  // A run that would be refused is refused here, too.
  const Outcome other = with({"--dry-run", "--resume", "--top-k", "3"});
  CHECK(other.code == 2);
  CHECK(contains(other.err, "top"));
  // Nothing was touched, and nothing is made.
  CHECK(read_file(out) == results);
  CHECK(read_file(bench.path("out.jsonl.state")) == state);
  const Outcome fresh = bench({"--batch", input.string(), "-o", bench.path("none").string(), "--dry-run", "--resume"});
  CHECK(fresh.code == 0);
  CHECK_FALSE(std::filesystem::exists(bench.path("none")));

  // What the run tells of the results that are there.
  std::filesystem::remove(bench.path("out.jsonl.state"));
  const Outcome bare = with({"--dry-run", "--resume", "--limit", "4"});
  CHECK(bare.code == 0);
  CHECK(line_of(bare.out, "done") == "3 answered, 1 failed; 0 left");
  CHECK(contains(bare.err, "warning[no-state]: " + out.string() + ".state is missing"));
  CHECK(contains(bare.err, "1 results are of rows that --limit leaves out or the input does not have"));

  REQUIRE(with({"--resume"}).code == 7);
  const Outcome whole = with({"--dry-run", "--resume"});
  CHECK(line_of(whole.out, "done") == "7 answered, 1 failed; 0 left");
}

TEST_CASE("a plan of a batch tells its time by steps that it measures") {
  const Bench bench;  // whose commands have -n 20 --ignore-eos
  const auto plan = [&](const std::string& text, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--batch", bench.file("in.jsonl", text).string(), "--dry-run"});
    const Outcome o = bench(more);
    INFO(o.err);
    CHECK(o.code == 0);
    return o.out;
  };
  const std::string certain = plan(rows(8));
  CHECK(line_of(certain, "time").starts_with("about "));
  CHECK(line_of(certain, "time").ends_with("for all 140 tokens that the rows generate"));
  const std::string measured = line_of(certain, "it rests on");
  CHECK(measured.starts_with("steps measured here just now"));
  for (const char* step : {": 1 row ", ", 7 rows ", " prompt tokens ", " ms"}) CHECK(contains(measured, step));
  const std::string cut = plan(rows(8), {"--stop", "x"});
  CHECK(contains(line_of(cut, "time"), " to "));
  CHECK(line_of(cut, "time").ends_with("to rows that generate all they may, 140 tokens"));
  CHECK_FALSE(contains(cut, "without a limit"));
  const std::string open = plan(R"({"prompt":"ab","max_tokens":-1})", {"-c", "256"});
  CHECK(line_of(open, "without a limit").starts_with("1 answers may fill the context of 256 tokens"));
  // A context with room for next to nothing, the smallest steps, one row.
  CHECK(contains(plan(rows(8), {"-c", "16"}), "it rests on"));
  CHECK(contains(plan(rows(8), {"-b", "1"}), "it rests on"));
  CHECK(contains(plan(rows(1), {"-np", "1"}), "it rests on"));
  // What can only be known by running is told as such.
  CHECK_FALSE(contains(plan("{\"prompt\": 3}\n"), "time "));
}

TEST_CASE("rows for another model are told of once, and run") {
  TinyFile file = tiny_model({.layers = 2, .context = 4096});
  file.set("general.name", "Toy Model 2");
  file.set("general.basename", "Toy");
  const Bench bench(file);
  const auto batch = [&](const std::string& text, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--batch", bench.file("in.jsonl", text).string(), "--temp", "0"});
    return bench(more);
  };
  const auto row = [](const std::string& model) {
    return R"({"prompt": "a", "max_tokens": 2, "model": ")" + model + "\"}\n";
  };
  for (const char* own : {"tiny.gguf", "tiny", "TINY", "toy model 2", "Toy"}) {
    const Outcome o = batch(row(own), {"--strict"});
    INFO(own << ": " << o.err);
    CHECK(o.code == 0);
  }
  const std::string mixed = row("toy") + row("gpt-9") + row("gpt-9") + row("other");
  const Outcome o = batch(mixed);
  CHECK(o.code == 0);
  CHECK(parse_lines(o.out).size() == 4);
  CHECK(contains(o.err,
                 "line 2: \"model\" is \"gpt-9\", and 2 more like it; this model, which runs all rows, is "
                 "known as \"tiny.gguf\", \"tiny\", \"Toy Model 2\", \"Toy\""));
  CHECK(o.err.find("warning") == o.err.rfind("warning"));
  const Outcome same = bench({"--batch", bench.file("in.jsonl", row("gpt-9")).string(), "--override-kv",
                              "general.name=str:tiny,general.basename=str:tiny"});
  CHECK(contains(same.err, "is known as \"tiny.gguf\", \"tiny\"\n"));
  CHECK(contains(same.err, "\n1 row answered, 0 failed"));
  CHECK(batch(mixed, {"--strict"}).code == 10);
  const Outcome number = batch("{\"prompt\": \"a\", \"model\": 5}\n");
  CHECK(number.code == 7);
  CHECK(contains(number.out, "\\\"model\\\" is not a string"));
}

TEST_CASE("a batch does not go on with other values in place of the file's") {
  const Bench bench;
  const std::vector<std::string> command{
      "--batch", bench.file("in.jsonl", rows(2)).string(), "-o", bench.path("out.jsonl").string(), "--temp", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return bench(more);
  };
  REQUIRE(with({"--rope-freq-base", "5000"}).code == 0);
  CHECK(with({"--rope-freq-base", "5000", "--resume"}).code == 0);
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"--resume"}, std::vector<std::string>{"--resume", "--rope-freq-base", "6000"}}) {
    const Outcome o = with(other);
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, "llama.rope.freq_base=float:5000"));
  }
}

TEST_CASE("a batch that is to go on otherwise says in words what differs") {
  const Bench bench;
  const std::vector<std::string> command{"--batch", bench.file("in.jsonl", rows(2)).string(), "-o",
                                         bench.path("out.jsonl").string(), "--resume"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return bench(more);
  };
  REQUIRE(with({"--temp", "0.3"}).code == 0);
  CHECK(contains(with({"--temp", "0.25"}).err,
                 "written with --temp 0.3, this run has --temp 0.25; give the same to go on, another file with -o"));
  CHECK(contains(with({"--temp", "0.3", "--stop", "x"}).err, "written with no --stop, this run has --stop [\"x\"];"));
  CHECK(contains(with({"--temp", "0.3", "-s", "3"}).err, "; leave -s out"));
  // Only the seconds that rows have may differ: they shape no answer.
  CHECK(with({"--temp", "0.3", "--max-time", "1000000"}).code == 0);

  tiny_model({.layers = 1, .context = 4096}).write(bench.path("other.gguf"));
  const Outcome other = with({"--temp", "0.3", "-m", bench.path("other.gguf").string()});
  CHECK(other.code == 2);
  CHECK(contains(other.err, "written with the model \"tiny.gguf\" of "));
  CHECK(contains(other.err, ", this run has \"other.gguf\" of "));
  CHECK_FALSE(contains(other.err, "fingerprint"));
  TinyFile same = tiny_model({.layers = 2, .context = 4096});
  same.set("llama.attention.layer_norm_rms_epsilon", 1e-4F);
  same.write(bench.model());
  CHECK(contains(with({"--temp", "0.3"}).err, "which had other contents then; give the same"));
}
