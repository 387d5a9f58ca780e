// llm-run when the context is full, and what --dry-run says about memory: as a real process.
#include <fstream>
#include <nlohmann/json.hpp>

#include "gguf/file.h"
#include "runtime/figures.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Whose tokens are bytes, so that texts of n letters (none of them "ab") are n tokens.
TinyFile byte_model() { return tiny_model({.layers = 2, .context = 1000, .tokenizer = TinyTokenizer::Bpe}); }

class ContextBench {
 public:
  explicit ContextBench(TinyFile file = byte_model()) { file.write(model()); }
  std::filesystem::path model() const { return folder_ / "tiny.gguf"; }
  std::filesystem::path path(std::string_view name) const { return folder_ / name; }
  std::filesystem::path file(std::string_view name, std::string_view content) const {
    return folder_.write(name, content);
  }
  Outcome operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-m", model().string(), "--temp", "0", "--ignore-eos"});
    return run({.program = program("llm-run"), .arguments = std::move(arguments)});
  }

 private:
  TempDir folder_;
};

/// The line of a plan that begins with `name`, without it.
std::string plan_value(const std::string& plan, const std::string& name) {
  const std::size_t at = ("\n" + plan).find("\n" + name + " ");
  REQUIRE(at != std::string::npos);
  const std::string line = plan.substr(at, plan.find('\n', at) - at);
  return line.substr(line.find_first_not_of(' ', name.size()));
}

const std::string kForty = "cdefghijklmnopqrstuvwxyzCDEFGHIJKLMNOPQR";

}  // namespace

TEST_CASE("a prompt that does not fit is refused, or cut with a warning") {
  const ContextBench bench;
  const Outcome refused = bench({"-no-cnv", "-p", kForty, "-c", "32"});
  CHECK(refused.code == 5);
  CHECK(contains(refused.err, "prompt 40 tokens, context 32; -c N gives more, --on-overflow truncate cuts the prompt"));
  CHECK(bench({"-no-cnv", "-p", kForty, "-c", "32", "--on-overflow", "shift"}).code == 5);

  const auto cut = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"-p", kForty, "-c", "32", "-n", "4", "--on-overflow", "truncate"});
    return bench(std::move(more));
  };
  const auto answer = [&](const std::string& prompt) { return bench({"-no-cnv", "-p", prompt, "-n", "4"}).out; };
  // 4 of the 32 are left for the answer.
  const Outcome o = cut({"-no-cnv"});
  CHECK(o.code == 0);
  CHECK(o.out == answer(kForty.substr(12)));
  CHECK(contains(
      o.err,
      "warning[prompt-cut]: prompt 40 tokens, context 32: 12 tokens were cut, from \"cdefghijklmn\" up to \"opq"));
  const Outcome keeps = bench({"-no-cnv", "-p", "cd", "-n", "1", "--keep", "5"});
  CHECK(contains(keeps.err, "note: --keep does nothing without --on-overflow shift or truncate"));
  CHECK_FALSE(contains(cut({"-no-cnv", "--keep", "5"}).err, "does nothing"));
  CHECK(cut({"-no-cnv", "--keep", "5"}).out == answer(kForty.substr(0, 5) + kForty.substr(17)));
  CHECK(cut({"-no-cnv", "--strict"}).code == 10);
  CHECK(bench({"-no-cnv", "-p", "c", "-n", "1", "--strict"}).code == 0);

  for (const char* context : {"1", "2", "3"}) {  // a token of the prompt stays, and one is generated
    INFO(context);
    const Outcome small = bench({"-no-cnv", "-p", kForty, "-c", context, "--on-overflow", "truncate"});
    CHECK(small.code == 0);
    CHECK_FALSE(small.out.empty());
  }

  const Outcome kept = cut({"-no-cnv", "--keep", "30"});
  CHECK(kept.code == 5);
  CHECK(contains(kept.err, "12 would have to be cut, and only 10 can be"));
  CHECK(cut({"-no-cnv", "--keep", "-1"}).code == 5);

  // What a template puts around a message stays.
  TinyFile file = byte_model();
  file.set("tokenizer.chat_template", "<{{ messages[0].content }}>");
  const ContextBench chat(std::move(file));
  CHECK(chat({"-p", kForty, "-c", "32", "-n", "4", "--on-overflow", "truncate"}).out ==
        answer("<" + kForty.substr(14) + ">"));
}

TEST_CASE("an answer ends with the context, or goes on without the older half of the text") {
  const ContextBench bench;
  const std::vector<std::string> full{"-no-cnv", "-p", "cdef", "-c", "32", "-n", "100"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = full;
    all.insert(all.end(), more.begin(), more.end());
    return bench(all);
  };
  CHECK(contains(with({}).err, "gen 29 tok"));
  CHECK(contains(with({}).err, "stop: context"));
  for (const char* option : {"--on-overflow=shift", "--context-shift"}) {
    const Outcome o = with({option});
    CHECK(o.code == 0);
    CHECK(contains(o.err, "gen 100 tok"));
    CHECK(contains(o.err, "stop: length"));
    // 4 and 99 tokens were in a context of 32: the first 16 of a full one went each time, until 103 - 5 * 16 were left.
    CHECK(contains(o.err,
                   "warning[ctx-shift]: the context of 32 tokens was full 5 times: the answer went on without what was "
                   "oldest, 80 tokens in all"));
  }
  CHECK(contains(with({"--context-shift", "-n", "30"}).err, "was full once"));
  CHECK(with({"--context-shift", "-n", "30", "--strict"}).code == 10);
  CHECK(with({"--context-shift", "-n", "29", "--strict"}).code == 0);
  CHECK(contains(with({"--context-shift", "--no-context-shift"}).err, "stop: context"));
  CHECK(contains(with({"--context-shift", "-n", "-2"}).err, "stop: context"));
  const Outcome kept = with({"--context-shift", "--keep", "31", "-f", bench.file("p", kForty.substr(0, 25)).string()});
  CHECK(contains(kept.err, "stop: context"));  // 31 kept of 31: nothing can be dropped
  CHECK(contains(kept.err,
                 "warning[ctx-shift]: the context of 32 tokens was full, and the answer ended: behind the 31 that stay "
                 "(--keep, and what begins every text) is no older half to go on without"));
  CHECK_FALSE(contains(with({}).err, "ctx-shift"));
}

TEST_CASE("--mlock locks the whole file, or says how far the system let it") {
  const ContextBench bench;
  const std::string size = bytes_text(std::filesystem::file_size(bench.model()));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--mlock"}, {"-lm", "mlock"}, {"-lm", "mmap", "--load-mode", "mmap+mlock"}}) {
    std::vector<std::string> all{"-p", "c", "-n", "1", "-v"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome o = bench(all);
    CHECK(o.code == 0);
    const bool whole = contains(o.err, "locked in memory: " + size + "\n");
    const bool part = contains(o.err, "warning[mlock]: --mlock: ") && contains(o.err, " of " + size + " are locked");
    CHECK(whole != part);
  }
  CHECK_FALSE(contains(bench({"-p", "c", "-n", "1", "-v", "--mlock", "-lm", "mmap"}).err, "locked"));
  CHECK_FALSE(contains(bench({"--dry-run", "-v", "--mlock"}).err, "locked"));
}

TEST_CASE("a file that is read into memory gives the same text and counts as memory") {
  const ContextBench bench;
  const auto answer = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-p", "c", "-n", "20", "--temp", "0"});
    const Outcome o = bench(words);
    CHECK(o.code == 0);
    return o.out;
  };
  const std::string mapped = answer({});
  CHECK(answer({"--no-mmap"}) == mapped);
  CHECK(answer({"-lm", "none"}) == mapped);
  CHECK(answer({"--no-mmap", "--mlock"}) == mapped);
  const auto plan = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all{"--dry-run", "-p", "c"};
    all.insert(all.end(), words.begin(), words.end());
    return bench(all).out;
  };
  CHECK(contains(plan({}), ", in the file's own pages\n"));
  CHECK(contains(plan({"--no-mmap"}), ", in the CPU's memory\n"));
  CHECK(contains(plan({"-lm", "none", "--mmap"}), ", in the file's own pages\n"));
  CHECK(contains(plan({"--no-mmap", "-lm", "auto"}), ", in the file's own pages\n"));
}

TEST_CASE("smaller steps take less memory and say the same") {
  const ContextBench bench;
  const auto answer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"-no-cnv", "-p", kForty, "-n", "9"});
    const Outcome o = bench(std::move(more));
    CHECK(o.code == 0);
    return o.out;
  };
  for (const char* size : {"1", "7", "4k"}) {
    CHECK(answer({"-b", size}) == answer({}));
    CHECK(answer({"-ub", size}) == answer({}));
  }
  const auto work = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "--dry-run");
    return plan_value(bench(std::move(more)).out, "work buffers");
  };
  CHECK(work({"-ub", "8"}) == work({"-b", "8", "-ub", "64"}));
  CHECK(work({"-ub", "8"}) == work({"-b", "64", "--ubatch-size", "8"}));
  CHECK(work({"-ub", "8"}) != work({}));
  CHECK(work({"-b", "2048", "-ub", "512"}) == work({}));
  CHECK(bench({"-p", "c", "-b", "0"}).code == 2);
}

TEST_CASE("the cache's type changes what a position takes") {
  const ContextBench bench;
  // 2 layers, keys and values of 2 heads of 8: 64 numbers
  CHECK(plan_value(bench({"--dry-run"}).out, "cache").starts_with("125.0 KiB per 1,000 tokens"));
  CHECK(plan_value(bench({"--dry-run", "-ctk", "f32"}).out, "cache").starts_with("187.5 KiB"));
  CHECK(plan_value(bench({"--dry-run", "-ctk", "f32", "-ctv", "f32"}).out, "cache").starts_with("250.0 KiB"));
  CHECK(plan_value(bench({"--dry-run", "-ctk", "bf16", "-ctv", "bf16"}).out, "cache").starts_with("125.0 KiB"));
  CHECK(plan_value(bench({"--dry-run", "-ctk", "f8_e4m3", "-ctv", "f8_e4m3"}).out, "cache").starts_with("62.5 KiB"));
  CHECK(bench({"-p", "c", "-n", "5", "-ctk", "f32", "-ctv", "bf16"}).code == 0);
  CHECK(bench({"-p", "c", "-n", "5", "-ctk", "f8_e4m3", "-ctv", "f8_e4m3"}).code == 0);
  // 2 layers, keys and values of one head of 32: 2 blocks of each
  const ContextBench wide(
      tiny_model({.layers = 2, .n_embd = 64, .heads = 2, .kv_heads = 1, .head_dim = 32, .context = 1000}));
  CHECK(plan_value(wide({"--dry-run", "-ctk", "q8_0", "-ctv", "q4_0"}).out, "cache when full") == "104.0 KiB");
  CHECK(wide({"-p", "c", "-n", "5", "-ctk", "q8_0", "-ctv", "q4_0"}).code == 0);
}

TEST_CASE("a plan says what the run finds, and reads no weights") {
  const ContextBench bench;
  const Outcome plan = bench({"--dry-run"});
  CHECK(plan.code == 0);
  const Outcome real = bench({"-p", "c", "-n", "1", "-v"});
  CHECK(contains(real.err, "weights " + plan_value(plan.out, "weights").substr(0, 9)));
  CHECK(plan_value(plan.out, "context") == "1,000 tokens, as the model was trained");
  CHECK(contains(real.err, "context 1,000 (as the model was trained)"));
  CHECK(plan_value(plan.out, "cache when full") == "128.0 KiB");  // 16 blocks of 64 positions of 128 bytes
  CHECK(plan_value(plan.out, "fits") == "yes");

  const Outcome large = bench({"--dry-run", "-c", "2147483647"});
  CHECK(large.code == 4);
  CHECK(plan_value(large.out, "fits").starts_with("no: a context of 2,147,483,647 tokens"));

  const Outcome prompt = bench({"--dry-run", "-no-cnv", "-p", kForty});
  CHECK(prompt.code == 0);
  CHECK(plan_value(prompt.out, "prompt") == "40 tokens");
  CHECK(bench({"--dry-run", "-no-cnv", "-p", kForty, "-c", "32"}).code == 5);

  {
    std::fstream out(bench.model(), std::ios::in | std::ios::out | std::ios::binary | std::ios::ate);
    Warnings warnings;
    const GgufFile stored = GgufFile::open(bench.model(), warnings);
    out.seekp(static_cast<std::streamoff>(stored.tensors().find("output_norm.weight")->data_offset));
    out.write("\x00\x00\xc0\x7f", 4);
  }
  CHECK(bench({"--dry-run"}).code == 0);
  CHECK(bench({"-p", "c", "-n", "1"}).code != 0);
}

TEST_CASE("a plan of a batch counts tokens and what prompts share, and leaves the output alone") {
  const ContextBench bench;
  std::string rows = "{\"prompt\": 3}\n";
  for (const char* end : {"1", "2", "3"}) rows += "{\"prompt\": \"" + kForty + end + "\"}\n";
  const auto output = bench.path("out.jsonl");
  const Outcome o =
      bench({"--dry-run", "-no-cnv", "--batch", bench.file("in.jsonl", rows).string(), "-o", output.string()});
  CHECK(o.code == 0);
  CHECK(plan_value(o.out, "rows") == "4, of which 1 cannot be run; answers 3");
  CHECK(plan_value(o.out, "prompt tokens") == "123, longest 41");
  CHECK(plan_value(o.out, "shared") == "80 tokens, computed once");
  CHECK(plan_value(o.out, "to be computed") == "43 prompt tokens");
  CHECK(contains(o.err, "warning[bad-row]: line 1: "));
  CHECK(plan_value(o.out, "fits") == "yes");
  CHECK_FALSE(std::filesystem::exists(output));
}

TEST_CASE("a plan of a batch counts rows that are too long among those that cannot be run") {
  const ContextBench bench;
  const std::string rows = "{\"prompt\": \"" + kForty + "\", \"n\": 2}\n{\"prompt\": \"ab\", \"max_tokens\": 2}\n";
  const std::vector<std::string> batch{"-no-cnv", "--batch", bench.file("in.jsonl", rows).string(), "-c", "32"};
  const Outcome plan = bench(with(batch, {"--dry-run"}));
  CHECK(plan.code == 0);
  CHECK(plan_value(plan.out, "rows") == "2, of which 1 cannot be run; answers 1");
  CHECK(contains(plan.err, "warning[bad-row]: line 1: prompt 40 tokens, context 32"));
  const Outcome o = bench(batch);
  CHECK(o.code == 7);
  CHECK(contains(o.err, "1 row answered, 1 failed"));
}
