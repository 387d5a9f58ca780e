// llm-run's speculation as a real process: the same bytes with it and without, and what it says about itself.
#include <nlohmann/json.hpp>
#include <sstream>

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

class SpeculationBench {
 public:
  explicit SpeculationBench(std::filesystem::path model) : model_(std::move(model)) {}
  Outcome operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-m", model_.string()});
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }

 private:
  std::filesystem::path model_;
};

std::filesystem::path sample(const std::string& name) { return source_dir() / "models/samples" / name; }

/// A story with a sentence to repeat, so that there is something to copy.
const std::vector<std::string> kStory{
    "-no-cnv", "-p",
    "Once upon a time there was a little girl named Lily. She loved to play outside in the park with her red ball. One "
    "day, Lily went to the park with her red ball. Lily loved to play outside in the park"};

std::vector<std::vector<std::string>> settings() {
  return {{"-n", "60", "--temp", "0"},
          {"-n", "60", "--temp", "0.8", "-s", "1"},
          {"-n", "60", "--temp", "0.8", "-s", "2"},
          {"-n", "60", "--temp", "0.8", "-s", "3", "--repeat-penalty", "1.1", "--dry-multiplier", "0.5"},
          {"-n", "60", "-s", "4", "--mirostat", "2"},
          {"-n", "60", "--temp", "0.5", "-s", "5", "--regex", "( [a-z]+){5,20}\\."},
          {"-n", "60", "--temp", "0", "--stop", "ball"},
          {"-c", "90", "--temp", "0", "--ignore-eos"},
          {"-c", "90", "-n", "120", "--temp", "0", "--ignore-eos", "--context-shift"}};
}

}  // namespace

TEST_CASE("the same bytes with and without drafts", "[speculation]") {
  const SpeculationBench bench(sample("fable-dense.gguf"));
  for (const auto& words : settings()) {
    const Outcome plain = bench(with(with(kStory, words), {"--spec-type", "none"}));
    INFO(plain.err);
    REQUIRE(plain.code == 0);
    CHECK_FALSE(contains(plain.err, "drafted"));
    for (const std::vector<std::string>& drafts :
         {std::vector<std::string>{}, {"--no-spec-auto"}, {"--no-spec-auto", "--spec-draft-n-max", "3"}}) {
      const Outcome o = bench(with(with(kStory, words), drafts));
      CHECK(o.code == 0);
      CHECK(o.out == plain.out);
    }
  }
}

TEST_CASE("the same log probabilities and pieces of text with and without drafts", "[speculation]") {
  const SpeculationBench bench(sample("fable-dense.gguf"));
  const auto all =
      with(kStory, {"-n", "150", "--temp", "0", "--ignore-eos", "--output-format", "jsonl", "--logprobs", "3"});
  const Outcome plain = bench(with(all, {"--spec-type", "none"}));
  const Outcome drafted = bench(with(all, {"--no-spec-auto", "--spec-type", "ngram"}));
  REQUIRE(plain.code == 0);
  // The last line has times.
  const auto tokens = [](const std::string& out) { return out.substr(0, out.rfind("\n{") + 1); };
  const auto last = [](const std::string& out) { return Json::parse(out.substr(out.rfind("\n{") + 1)); };
  CHECK(tokens(plain.out).size() > 1000);
  CHECK(tokens(drafted.out) == tokens(plain.out));
  CHECK(last(plain.out)["text"] == last(drafted.out)["text"]);
  CHECK(last(plain.out)["timings"]["draft_n"] == 0);
  const Json timings = last(drafted.out)["timings"];
  CHECK(timings["draft_n"] > 0);
  CHECK(timings["draft_n_accepted"] > 0);
  CHECK(timings["draft_n_accepted"] <= timings["draft_n"]);
}

TEST_CASE("a draft model changes nothing but time", "[speculation]") {
  const SpeculationBench bench(sample("fable-moe.gguf"));
  const std::string dense = sample("fable-dense.gguf").string(), moe = sample("fable-moe.gguf").string();
  const auto settings_of_answers = settings();
  for (const auto& words : {settings_of_answers[0], settings_of_answers[1], settings_of_answers[4],
                            settings_of_answers[5], settings_of_answers[8]}) {
    const Outcome plain = bench(with(with(kStory, words), {"--spec-type", "none"}));
    REQUIRE(plain.code == 0);
    for (const std::vector<std::string>& drafts :
         {std::vector<std::string>{"-md", dense},
          {"-md", dense, "--spec-type", "draft", "--no-spec-auto", "--draft", "5"},
          {"--model-draft", moe, "--spec-type=draft-simple", "--no-spec-auto"},
          {"-md", dense, "--no-spec-auto", "--spec-draft-p-min", "0.3"}}) {
      const Outcome o = bench(with(with(kStory, words), drafts));
      INFO(o.err);
      CHECK(o.code == 0);
      CHECK(o.out == plain.out);
    }
  }

  const std::vector<std::string> own{
      "-n",          "100",   "--temp",      "0", "--ignore-eos",  "--output-format", "json",
      "--spec-type", "draft", "--draft-max", "4", "--no-spec-auto"};
  const Json timings = Json::parse(bench(with(with(kStory, own), {"-md", moe})).out)["timings"];
  // One token comes after the prompt, 95 in 19 steps, and the last 4 with a draft of 3.
  CHECK(timings["draft_n"] == 79);
  CHECK(timings["draft_n_accepted"] >= 75);  // the draft model does not know of --ignore-eos
}

TEST_CASE("a cache that a draft model's heads do not fit is refused by its file", "[speculation]") {
  const TempDir folder;
  const TinyOptions wide{.layers = 2, .n_embd = 64, .heads = 2, .kv_heads = 1, .head_dim = 32, .context = 1000};
  const std::string model = (folder / "wide.gguf").string(), draft = (folder / "narrow.gguf").string();
  tiny_model(wide).write(model);
  tiny_model({.head_dim = 8, .context = 1000}).write(draft);
  const SpeculationBench bench(model);
  const auto refused = [&](const std::vector<std::string>& words, std::string_view part) {
    for (const auto& run : {std::vector<std::string>{"-no-cnv", "-p", "c", "-n", "2"}, {"--dry-run"}}) {
      const Outcome o = bench(with(run, words));
      INFO(o.err);
      CHECK(o.code == 2);
      CHECK(contains(o.err, part));
      CHECK(o.out.empty());
    }
  };
  refused({"-md", draft, "-ctv", "q8_0"},
          draft +
              ": cached values cannot be Q8_0: the model's heads of 8 are not whole blocks of 32; choose f8_e4m3, "
              "f16, bf16 or f32 for --cache-type-v");
  refused({"-md", draft, "-ctk", "q4_0"}, draft + ": cached keys cannot be Q4_0");
  CHECK(bench({"-no-cnv", "-p", "c", "-n", "2", "-ctk", "q8_0", "-ctv", "q8_0"}).code == 0);
}

TEST_CASE("the same chat with and without drafts", "[speculation]") {
  const TempDir folder;
  const auto typed =
      folder.write("typed", "Tell me about a girl and a red ball.\nTell me about a girl and a red ball.\n/regen\n");
  const auto chat = [&](const std::vector<std::string>& drafts) {
    return run({.program = program("llm-run"),
                .arguments = with({"-m", sample("fable-moe.gguf").string(), "-i", "--chat-template", "chatml", "-n",
                                   "60", "--temp", "0.4", "-s", "3", "-v"},
                                  drafts),
                .input_file = typed.string()});
  };
  const Outcome plain = chat({"--spec-type", "none"});
  INFO(plain.err);
  REQUIRE(plain.code == 0);
  CHECK(plain.out.size() > 100);
  for (const std::vector<std::string>& drafts :
       {std::vector<std::string>{},
        {"--no-spec-auto"},
        {"-md", sample("fable-dense.gguf").string()},
        {"-md", sample("fable-dense.gguf").string(), "--spec-type", "draft", "--no-spec-auto", "--draft", "4"}}) {
    const Outcome o = chat(drafts);
    CHECK(o.code == 0);
    CHECK(o.out == plain.out);
    CHECK(contains(o.err, "speculation: "));
  }
}

TEST_CASE("a draft model that cannot serve is refused", "[speculation]") {
  const TempDir folder;
  const auto path = folder / "tiny.gguf";
  tiny_model({.tokenizer = TinyTokenizer::Bpe}).write(path);
  const SpeculationBench bench(sample("fable-dense.gguf"));
  const Outcome other = bench({"-p", "c", "-md", path.string()});
  CHECK(other.code == 2);
  CHECK(
      contains(other.err, path.string() + ": cannot draft for this model, its vocabulary is another one: token 0 is"));
  const Outcome missing = bench({"-p", "c", "-md", (folder / "none.gguf").string()});
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "none.gguf"));
  const Outcome unused = bench({"-p", "c", "-n", "2", "-md", path.string(), "--spec-type", "ngram"});
  CHECK(unused.code == 0);
  CHECK(contains(unused.err, "--spec-type leaves no work for the draft model"));
  const Outcome written = bench({"-p", "c", "-md", path.string(), "--dump-graph", path.string()});
  CHECK(written.code == 2);
}

TEST_CASE("the memory of a draft model is part of the plan", "[speculation]") {
  const SpeculationBench bench(sample("fable-moe.gguf"));
  const auto line = [](const std::string& plan, const std::string& name) {
    const std::size_t at = plan.find("\n" + name);
    return at == std::string::npos ? "" : plan.substr(at + 1, plan.find('\n', at + 1) - at - 1);
  };
  const Outcome plain = bench({"--dry-run"});
  const Outcome drafted = bench({"--dry-run", "-md", sample("fable-dense.gguf").string()});
  REQUIRE(plain.code == 0);
  REQUIRE(drafted.code == 0);
  CHECK(line(plain.out, "of it a draft model").empty());
  CHECK(contains(line(drafted.out, "of it a draft model"), "weights 5.9 MiB, cache "));
  CHECK(plain.out.substr(0, plain.out.find('\n')) != drafted.out.substr(0, drafted.out.find('\n')));
  CHECK(line(plain.out, "work buffers") != line(drafted.out, "work buffers"));
  CHECK_FALSE(contains(line(drafted.out, "of it a draft model"), "recurrent states"));
  const TempDir folder;
  const auto path = folder / "tiny.gguf";
  tiny_model({.arch = "qwen35", .layers = 2, .tokenizer = TinyTokenizer::Bpe}).write(path);
  const Outcome recurrent = SpeculationBench(path)({"--dry-run", "-md", path.string()});
  REQUIRE(recurrent.code == 0);
  CHECK(contains(line(recurrent.out, "of it a draft model"), " per 1,000 tokens, recurrent states "));
}

TEST_CASE("what was drafted is said", "[speculation]") {
  const SpeculationBench bench(sample("fable-dense.gguf"));
  const Outcome o = bench(with(kStory, {"-n", "50", "--temp", "0", "--no-spec-auto", "-v"}));
  CHECK(contains(o.err, "drafted tokens came true)"));
  CHECK(contains(o.err, "speculation: ngram; "));
  CHECK(contains(bench(with(kStory, {"-n", "5", "--temp", "0", "--profile"})).err, "speculation: ngram; "));
  CHECK_FALSE(contains(bench(with(kStory, {"-n", "5", "--temp", "0", "--spec-type=none", "-v"})).err, "speculation"));
}

TEST_CASE("the same bytes and the same chat with drafts by the model's prediction layer", "[speculation]") {
  const TempDir folder;
  const auto path = folder / "tiny.gguf";
  tiny_model({.arch = "qwen35", .layers = 4, .context = 256, .predicting = true, .tokenizer = TinyTokenizer::Bpe})
      .write(path);
  const SpeculationBench bench(path);
  const std::vector<std::string> asked{"-no-cnv", "-p", "a story about a ball", "-n", "90", "--temp", "0.8",
                                       "-s",      "3",  "--ignore-eos"};
  const std::vector<std::string> drafts{"--spec-type", "draft-mtp", "--no-spec-auto", "--spec-draft-n-max", "3"};
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"-c", "64", "--context-shift"}, {"--prompt-cache", (folder / "cache").string()}}) {
    const Outcome plain = bench(with(with(asked, more), {"--spec-type", "none"}));
    const Outcome drafted = bench(with(with(with(asked, more), drafts), {"-v"}));
    INFO(drafted.err);
    CHECK(drafted.code == 0);
    CHECK(drafted.out == plain.out);
    CHECK(contains(drafted.err, "speculation: prediction layer;"));
    CHECK(contains(drafted.err, " drafted tokens came true"));
  }
  CHECK(contains(bench(with(asked, {"--spec-type", "ngram,draft-mtp", "-v"})).err, "ngram, prediction layer;"));

  const auto typed = folder.write("typed", "Tell me.\nAnd now?\n/regen\n/undo\nWhat?\n");
  const auto chat = [&](const std::vector<std::string>& words) {
    return run({.program = program("llm-run"),
                .arguments = with({"-m", path.string(), "-i", "--chat-template", "chatml", "-n", "20", "--temp", "0.4",
                                   "-s", "3", "--ignore-eos"},
                                  words),
                .input_file = typed.string()});
  };
  const Outcome plain = chat({"--spec-type", "none"}), drafted = chat(drafts);
  INFO(drafted.err);
  CHECK(plain.code == 0);
  CHECK(drafted.code == 0);
  CHECK(plain.out.size() > 20);
  CHECK(drafted.out == plain.out);
}

TEST_CASE("names of kinds of drafts", "[speculation]") {
  const TempDir folder;
  const auto path = folder / "tiny.gguf";
  tiny_model({.tokenizer = TinyTokenizer::Bpe}).write(path);
  const SpeculationBench bench(path);
  const auto ask = [&](const std::vector<std::string>& words) { return bench(with({"-p", "c", "-n", "3"}, words)); };
  for (const char* name : {"none", "ngram", "ngram-simple", "ngram-map-k", "ngram-mod", "ngram,ngram-cache"}) {
    CHECK(ask({"--spec-type", name}).code == 0);
  }
  for (const char* option : {"--spec-auto", "--spec-default", "--draft-max=4", "--draft=4", "--spec-draft-n-min=2"}) {
    CHECK(ask({option}).code == 0);
  }
  const auto refused = [&](const std::vector<std::string>& words, std::string_view part) {
    const Outcome o = ask(words);
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, part));
    CHECK(o.out.empty());
  };
  refused({"--spec-type", "magic"}, "option --spec-type: \"magic\" is not none, or some of ngram, draft and draft-mtp");
  refused({"--spec-type", "ngram,"}, "\"\" is not none");
  refused({"--spec-type", "draft"}, "--spec-type draft needs --model-draft");
  refused({"--spec-type", "draft-eagle3"}, "draft-eagle3 is recognised, not supported yet");
  refused({"--spec-type", "draft-mtp"}, "has no prediction layer to draft by");
  refused({"--spec-draft-n-max", "64"}, "--spec-draft-n-max");
  refused({"--spec-draft-n-max", "2", "--spec-draft-n-min", "3"}, "there would be no draft");
  refused({"--spec-ngram-mod-n-match", "3"}, "is recognised, not supported: ");

  CHECK(ask({"--backend", "reference", "--spec-type", "ngram"}).code == 0);
  const Outcome batch = bench({"--batch", "none.jsonl", "--spec-type", "ngram"});
  CHECK(batch.code == 2);
  CHECK(contains(batch.err, "--spec-type is for one answer and for chats"));
  const Outcome no_batch = bench({"--batch", "none.jsonl", "--spec-type", "none"});
  CHECK(contains(no_batch.err, "none.jsonl"));
  const Outcome blas = ask({"--backend", "blas"});
  if (blas.code == 9) return;  // built without it
  CHECK(blas.code == 0);
  refused({"--backend", "blas", "--spec-type", "ngram"}, "depends on how many tokens a step has");
}
