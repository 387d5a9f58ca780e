// --threads-batch, --check-tensors and --tune, as real processes.
#include <cstdint>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "gguf/file.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_model.h"

using namespace llm;
using namespace llm::test;

namespace {

using Arguments = std::vector<std::string>;

Outcome answer(const std::filesystem::path& model, const Arguments& more) {
  Arguments all{"-m", model.string(), "-no-cnv", "-p",          "Once upon a time there was", "-n",
                "8",  "--temp",       "0",       "--ignore-eos"};
  all.insert(all.end(), more.begin(), more.end());
  return run({.program = program("llm-run"), .arguments = all});
}

/// Puts bytes over those at `at` in a tensor's data.
void patch(const std::filesystem::path& path, const char* tensor, std::uint64_t at, const std::string& bytes) {
  Warnings warnings;
  std::uint64_t offset = 0;
  {
    const GgufFile file = GgufFile::open(path, warnings);
    offset = file.tensors().find(tensor)->data_offset + at;
  }
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(offset));
  out << bytes;
}

}  // namespace

TEST_CASE("threads of prompts change no bit and are told") {
  const TempDir folder;
  const auto model = folder / "m.gguf";
  tiny_model({.layers = 2, .n_embd = 64, .d_ff = 128}).write(model);
  const Outcome one = answer(model, {"-t", "1", "--logprobs", "5", "--output-format", "jsonl", "--seed", "1"});
  REQUIRE(one.code == 0);
  const auto tokens = [](const Outcome& o) { return o.out.substr(0, o.out.rfind("{\"text\"")); };
  for (const char* threads : {"1", "2", "3"}) {
    const Outcome o =
        answer(model, {"-t", "1", "-tb", threads, "--logprobs", "5", "--output-format", "jsonl", "--seed", "1"});
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(tokens(o) == tokens(one));
  }
  CHECK(contains(answer(model, {"-t", "1", "-tb", "3", "-v"}).err, "1 thread, 3 for prompts"));
  CHECK_FALSE(contains(answer(model, {"-t", "2", "-tb", "2", "-v"}).err, "for prompts"));
  CHECK_FALSE(contains(answer(model, {"-t", "2", "-tb", "-1", "-v"}).err, "for prompts"));
  CHECK(contains(answer(model, {"-tb", "2", "--backend", "reference"}).err, "--threads-batch has no effect"));
  const Outcome bad = answer(model, {"-tb", "many"});
  CHECK(bad.code == 2);
  CHECK(contains(bad.err, "-tb"));
}

TEST_CASE("many more threads than there are CPUs are told of") {
  const TempDir folder;
  const auto model = folder / "m.gguf";
  tiny_model({.layers = 1}).write(model);
  const unsigned cpus = std::thread::hardware_concurrency();
  CHECK(contains(answer(model, {"-t", std::to_string(2 * cpus + 1)}).err, "more threads make it slower"));
  CHECK_FALSE(contains(answer(model, {"-t", "1"}).err, "more threads"));
}

TEST_CASE("--check-tensors finds a scale that is no number before the model runs") {
  const TempDir folder;
  const auto model = folder / "m.gguf";
  tiny_model({.layers = 2, .type = DType::Q8_0}).write(model);
  const Outcome sound = answer(model, {"--check-tensors", "-v"});
  CHECK(sound.code == 0);
  CHECK(contains(sound.err, "all scales are numbers"));
  CHECK(sound.out == answer(model, {}).out);
  // The third block of 34 bytes: a half that is infinite.
  patch(model, "blk.1.ffn_down.weight", 2 * 34, std::string("\x00\x7c", 2));
  const Outcome bad = answer(model, {"--check-tensors"});
  INFO(bad.err);
  CHECK(bad.code == 3);
  CHECK(bad.out.empty());
  CHECK(contains(bad.err,
                 "tensor \"blk.1.ffn_down.weight\": 1 block has a scale that is NaN or infinite, the first is "
                 "block 2"));
}

TEST_CASE("--tune measures once, and later runs of the model take what it found") {
  const TempDir folder;
  const auto model = folder / "m.gguf", other = folder / "other.gguf";
  tiny_model({.layers = 2}).write(model);
  tiny_model({.layers = 1}).write(other);
  const auto answer_with = [&](const std::filesystem::path& file, const Arguments& more) {
    Arguments all{"-m", file.string(), "-no-cnv", "-p", "Once upon", "-n", "8", "--temp", "0", "--ignore-eos", "-v"};
    all.insert(all.end(), more.begin(), more.end());
    return run({.program = program("llm-run"),
                .arguments = all,
                .environment = {{"XDG_CACHE_HOME", (folder / "cache").string()}, {"CUDA_VISIBLE_DEVICES", ""}}});
  };
  const Outcome plain = answer_with(model, {});
  CHECK_FALSE(contains(plain.err, "--tune"));
  const Outcome tuned = answer_with(model, {"--tune"});
  INFO(tuned.err);
  CHECK(tuned.code == 0);
  CHECK(tuned.out == plain.out);
  CHECK(contains(tuned.err, "the fastest of those measured"));
  std::vector<std::filesystem::path> kept;
  for (const auto& e : std::filesystem::directory_iterator(folder / "cache/llm-run/threads")) kept.push_back(e.path());
  REQUIRE(kept.size() == 1);

  // What is kept is what is used, whatever it was.
  std::ofstream(kept.front()) << R"({"format": 1, "threads": 1, "prompt_threads": 3})";
  const Outcome later = answer_with(model, {});
  INFO(later.err);
  CHECK(later.out == plain.out);
  CHECK(contains(later.err, "threads: 1, 3 for prompts, as --tune found for this model"));
  CHECK(contains(later.err, "1 thread, 3 for prompts"));
  CHECK(contains(later.err, "threads: 1 (--tune)"));
  CHECK_FALSE(contains(answer_with(model, {"-t", "2"}).err, "--tune"));
  CHECK_FALSE(contains(answer_with(model, {"-tb", "2"}).err, "--tune"));
  CHECK_FALSE(contains(answer_with(other, {}).err, "--tune"));
  CHECK_FALSE(contains(answer_with(model, {"--backend", "blas"}).err, "--tune"));
  for (const char* broken : {"", "{", "{}", R"({"format": 1, "threads": 0, "prompt_threads": 3})"}) {
    std::ofstream(kept.front()) << broken;
    const Outcome o = answer_with(model, {});
    CHECK(o.code == 0);
    CHECK_FALSE(contains(o.err, "--tune"));
  }
  const Outcome both = answer_with(model, {"--tune", "-t", "2"});
  CHECK(both.code == 2);
  CHECK(contains(both.err, "-t and -tb say it"));
}
