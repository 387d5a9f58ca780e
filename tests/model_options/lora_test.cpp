// --lora and --lora-scaled, as real processes: which adapters they mean, what they count for, and what is refused. That
// the numbers are right is tested in tests/runtime/lora_test.cpp.
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/adapters.h"
#include "support/catch.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/text.h"
#include "support/tiny_adapter.h"

using namespace llm;
using namespace llm::test;

namespace {

using Arguments = std::vector<std::string>;

class LoraBench {
 public:
  LoraBench() {
    model_.write(folder_ / "m.gguf");
    adapter("a.gguf");
    adapter("b.gguf", {.seed = 6});
    std::string ids = "[1";
    for (int i = 1; i < 96; ++i) ids += "," + std::to_string(3 + i * 37 % 200);
    folder_.write("ids.json", ids + "]");
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  std::string write(std::string_view name, std::string_view text) const { return folder_.write(name, text).string(); }
  std::string adapter(const std::string& name, const TinyAdapterOptions& o = {}) const {
    tiny_adapter(model_, o).write(folder_ / name);
    return path(name);
  }
  const TinyFile& model() const { return model_; }

  Outcome operator()(const Arguments& more) const { return answer(path("m.gguf"), more); }
  Outcome answer(const std::string& model, const Arguments& more) const {
    return run(
        {.program = program("llm-run"),
         .arguments = with({"-m", model, "-no-cnv", "-p", "abc", "-n", "8", "--temp", "0", "--ignore-eos"}, more)});
  }
  Outcome perplexity(const Arguments& more) const {
    return run({.program = program("llm-perplexity"),
                .arguments = with({"-m", path("m.gguf"), "--tokens", path("ids.json"), "-c", "48", "-q"}, more)});
  }
  /// The bits of llm-perplexity's logits.
  std::string logits(const Arguments& more) const {
    std::filesystem::remove(path("out.npy"));
    const Outcome o = perplexity(with({"--save-logits", path("out.npy")}, more));
    INFO(o.err);
    REQUIRE(o.code == 0);
    return read_file(path("out.npy"));
  }

 private:
  TempDir folder_;
  TinyFile model_ = tiny_model({.layers = 2, .context = 256});
};

void refused(const Outcome& o, int code, std::string_view words) {
  INFO(o.err);
  CHECK(o.code == code);
  CHECK(o.out.empty());
  CHECK(contains(o.err, words));
}

std::string text_of(const std::vector<AdapterFile>& adapters) {
  std::string text;
  for (const AdapterFile& a : adapters) {
    text += (text.empty() ? "" : " + ") + a.path.filename().string() + " x " +
            nlohmann::json(static_cast<double>(a.scale)).dump();
  }
  return text;
}

}  // namespace

TEST_CASE("which adapters a list means", "[lora]") {
  const TempDir folder;
  for (const char* name : {"a", "b", "a,b", "c:0.5", "c", "d,e:2", "d,e"}) folder.write(name, "");
  const auto in = [&](std::string list) {  // each "@" is the folder
    for (std::size_t at = list.find('@'); at != std::string::npos; at = list.find('@'))
      list.replace(at, 1, folder.path().string() + "/");
    return list;
  };
  const auto plain = [&](const std::string& list) { return text_of(app::parse_adapters(in(list))); };
  const auto scaled = [&](const std::string& list) { return text_of(app::parse_scaled_adapters(in(list))); };
  CHECK(plain("@a") == "a x 1.0");
  CHECK(plain("@a,@b") == "a x 1.0 + b x 1.0");
  CHECK(plain("@a:0.5,@b,@b:-2") == "a x 0.5 + b x 1.0 + b x -2.0");
  CHECK(plain("@a,b") == "a,b x 1.0");
  CHECK(plain("@a,b:3,@a") == "a,b x 3.0 + a x 1.0");
  CHECK(plain("@a,@a,b,@b") == "a x 1.0 + a,b x 1.0 + b x 1.0");
  CHECK(plain("@c:0.5") == "c:0.5 x 1.0");  // the file by that name
  CHECK(plain("@c:0.25") == "c x 0.25");
  CHECK(plain("@c:0.5:0.25") == "c:0.5 x 0.25");
  CHECK(plain("@d,e:2") == "d,e:2 x 1.0");
  CHECK(plain("@none,@a") == "none x 1.0 + a x 1.0");  // it is refused when it is opened
  CHECK(scaled("@a:0.5") == "a x 0.5");
  CHECK(scaled("@a:0.5,@b:1e1") == "a x 0.5 + b x 10.0");
  CHECK(scaled("@a,b:0.5,@b:0") == "a,b x 0.5 + b x 0.0");
  CHECK(scaled("@c:0.5") == "c x 0.5");
  CHECK(scaled("@c:0.5:0.25") == "c:0.5 x 0.25");
  CHECK(scaled("@none:2") == "none x 2.0");
}

TEST_CASE("--lora and --lora-scaled say the same in all their forms", "[lora]") {
  const LoraBench bench;
  const std::string a = bench.path("a.gguf"), b = bench.path("b.gguf");
  const std::string none = bench.logits({}), one = bench.logits({"--lora", a}),
                    half = bench.logits({"--lora", a + ":0.5"}), both = bench.logits({"--lora", a + "," + b + ":0.5"});
  CHECK(one != none);
  CHECK(half != none);
  CHECK(half != one);
  CHECK(both != one);
  CHECK(bench.logits({"--lora", a, "--lora", b + ":0.5"}) == both);
  CHECK(bench.logits({"--lora", a, "--lora-scaled", b + ":0.5"}) == both);
  CHECK(bench.logits({"--lora-scaled", a + ":1," + b + ":0.5"}) == both);
  CHECK(bench.logits({"--lora-scaled", a + ":0.5"}) == half);
  CHECK(bench.logits({"--lora-scaled", a + ":0"}) == none);
  CHECK(bench({"--lora", a}).out != bench({}).out);
  CHECK(bench({"--lora", a, "-t", "1"}).out == bench({"--lora", a, "-t", "2"}).out);
  // Settings are the same option.
  const Outcome set =
      run({.program = program("llm-run"),
           .arguments = {"-m", bench.path("m.gguf"), "-no-cnv", "-p", "abc", "-n", "8", "--temp", "0", "--ignore-eos",
                         "--config", bench.write("c.toml", "lora = [\"" + a + "\", \"" + b + ":0.5\"]\n")}});
  INFO(set.err);
  CHECK(set.code == 0);
  CHECK(set.out == bench({"--lora", a + "," + b + ":0.5"}).out);
}

TEST_CASE("what is told of adapters", "[lora]") {
  const LoraBench bench;
  const std::string a = bench.path("a.gguf");
  CHECK(contains(bench({"--lora", a + ":0.5", "-v"}).err, "adapter: a.gguf x 0.5, 16 pairs of rank 4, "));
  CHECK_FALSE(contains(bench({"-v"}).err, "adapter: "));
  const Outcome plan = bench({"--lora", a, "--dry-run"});
  CHECK(plan.code == 0);
  CHECK(contains(plan.out, "\nof the weights        "));
  CHECK_FALSE(contains(bench({"--dry-run"}).out, "adapters"));
  const Outcome measured =
      run({.program = program("llm-bench"),
           .arguments = {"-m", bench.path("m.gguf"), "--lora", a, "-p", "4", "-n", "0", "-r", "1"}});
  INFO(measured.err);
  CHECK(contains(measured.out, "| m.gguf with a.gguf | "));
  const Outcome tokens = bench.perplexity({"--json"}), adapted = bench.perplexity({"--json", "--lora", a});
  CHECK(adapted.code == 0);
  CHECK(adapted.out != tokens.out);
  CHECK(contains(bench({"--lora", a, "--dump-graph", bench.path("g.txt")}).err, "load "));
  CHECK(contains(read_file(bench.path("g.txt")), "blk.1.ffn_up.weight.lora_b"));
}

TEST_CASE("what adapters cannot be", "[lora]") {
  const LoraBench bench;
  const std::string a = bench.path("a.gguf"), m = bench.path("m.gguf"), none = bench.path("none.gguf");
  refused(bench({"--lora", none}), 3, none + ": there is no such adapter; commas separate several files");
  refused(bench({"--lora", a + "," + none}), 3, none + ": there is no such adapter");
  refused(bench({"--lora-scaled", none + ":0.5"}), 3, none + ": there is no such adapter");
  refused(bench({"--lora", a + ":much"}), 2, "\"much\" is not a number from -1000 to 1000");
  refused(bench({"--lora-scaled", a + ":nan"}), 2, "\"nan\" is not a number from -1000 to 1000");
  refused(bench({"--lora-scaled", a + ":0.5x"}), 2, "\"0.5x\" is not a number");
  refused(bench({"--lora-scaled", a + ":"}), 2, "\"\" is not a number");
  refused(bench({"--lora-scaled", "a.gguf"}), 2,
          "option --lora-scaled: \"a.gguf\" is not FILE:SCALE; --lora takes files without a scale");
  refused(bench({"--lora", a + ","}), 2, "option --lora: a file is missing; FILE and");
  refused(bench({"--lora", ""}), 2, "option --lora: the value is empty");
  refused(bench({"--lora", m}), 3,
          "m.gguf: offset 0x18: key \"general.type\": the file is a model, an adapter is needed");
  refused(bench.answer(a, {}), 3, "the file is an adapter, which changes a model and is none; -m takes the model");
  refused(bench({"--lora", bench.write("text.gguf", "no model at all")}), 3, "text.gguf: ");
  refused(bench({"--lora", bench.path("")}), 3, ": ");
  TinyFile other = tiny_adapter(bench.model());
  other.set("general.architecture", "qwen3");
  other.write(bench.path("o.gguf"));
  refused(bench({"--lora", bench.path("o.gguf")}), 3, "for models of architecture \"qwen3\", this one is of \"llama\"");
  refused(bench({"--lora", a, "-o", a}), 2, "a.gguf");
  refused(bench.perplexity({"--lora", a, "--save-logits", a}), 2, "a.gguf");
  for (const char* name : {"llm-imatrix", "llm-quantize"}) {
    const Outcome o = run({.program = program(name), .arguments = {"--lora", a}});
    CHECK(o.code == 2);
    CHECK(contains(o.err, "llm-run, llm-perplexity and llm-bench run models with adapters"));
  }
}

TEST_CASE("--check-tensors looks into adapters", "[lora]") {
  const LoraBench bench;
  TinyFile bad = tiny_adapter(bench.model());
  bad.erase_tensor("blk.1.ffn_up.weight.lora_b");
  bad.add_tensor({"blk.1.ffn_up.weight.lora_b", {DType::F32, {4, 64}}, INFINITY, 0});
  bad.write(bench.path("bad.gguf"));
  CHECK(bench({"--lora", bench.path("a.gguf"), "--check-tensors"}).code == 0);
  refused(bench({"--lora", bench.path("bad.gguf"), "--check-tensors"}), 3, "bad.gguf: offset 0x");
  refused(bench({"--lora", bench.path("bad.gguf")}), 11, "tensor \"blk.1.ffn_up.weight.lora_b\"");
}

TEST_CASE("an adapter is the model's, not its draft's", "[lora]") {
  const LoraBench bench;
  const std::string a = bench.path("a.gguf");
  // The draft is of another family, which the adapter does not fit.
  tiny_model({.arch = "qwen3", .context = 256}).write(bench.path("d.gguf"));
  const Outcome o = bench({"--lora", a, "-md", bench.path("d.gguf"), "--no-spec-auto"});
  INFO(o.err);
  CHECK(o.code == 0);
  CHECK(o.out == bench({"--lora", a}).out);
  CHECK(contains(o.err, "drafted"));
}

TEST_CASE("a prompt cache belongs to the adapters that it was made with", "[lora]") {
  const LoraBench bench;
  const std::string a = bench.path("a.gguf"), cache = bench.path("p.cache");
  const Arguments made{"--lora", a, "--prompt-cache", cache};
  const Outcome first = bench(made), second = bench(made);
  CHECK(first.code == 0);
  CHECK(second.out == first.out);
  CHECK(contains(second.err, "(cached "));
  refused(bench({"--prompt-cache", cache}), 2,
          "holds the cache of the model \"m.gguf with a.gguf\", this is \"m.gguf\"");
  refused(bench({"--lora", a + ":0.5", "--prompt-cache", cache}), 2, "this is \"m.gguf with a.gguf x 0.5\"");
  refused(bench({"--lora", bench.path("b.gguf"), "--prompt-cache", cache}), 2, "this is \"m.gguf with b.gguf\"");
}

TEST_CASE("a batch goes on with the adapters that it began with", "[lora]") {
  const LoraBench bench;
  const std::string a = bench.path("a.gguf");
  const auto batch = [&](const Arguments& more) {
    return run({.program = program("llm-run"),
                .arguments = with({"-m", bench.path("m.gguf"), "-no-cnv", "-n", "4", "--temp", "0", "--ignore-eos",
                                   "--batch", bench.path("in.jsonl"), "-o", bench.path("out.jsonl")},
                                  more)});
  };
  bench.write("in.jsonl", "{\"id\": \"1\", \"prompt\": \"abc\"}\n");
  REQUIRE(batch({"--lora", a}).code == 0);
  const std::string adapted = read_file(bench.path("out.jsonl"));
  CHECK(batch({"--lora", a, "--resume"}).code == 0);
  refused(batch({"--resume"}), 2, ", with a.gguf, this run has \"m.gguf\"");
  refused(batch({"--lora", a + ":2", "--resume"}), 2, ", with a.gguf x 2;");
  REQUIRE(batch({"--force"}).code == 0);
  CHECK(read_file(bench.path("out.jsonl")) != adapted);
}
