// --override-kv and the options of the rotary embedding, as real processes: a run with them is the run of a file that
// was written with the values.
#include <fstream>
#include <iterator>

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

class OverrideBench {
 public:
  OverrideBench() {
    std::string ids = "[1";
    for (int i = 1; i < 96; ++i) ids += "," + std::to_string(3 + i * 37 % 200);
    folder_.write("ids.json", ids + "]");
  }
  /// llm-perplexity's logits of 96 tokens, in windows of 48; the file of them.
  std::string logits(const TinyFile& model, const Arguments& more = {}) const {
    model.write(folder_ / "m.gguf");
    Arguments all{"-m", path("m.gguf"), "--tokens", path("ids.json"), "-c", "48", "--save-logits", path("out.npy"),
                  "-q"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome o = run({.program = program("llm-perplexity"), .arguments = all});
    INFO(o.err);
    REQUIRE(o.code == 0);
    std::ifstream in(folder_ / "out.npy", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Outcome operator()(const TinyFile& model, const Arguments& more) const {
    model.write(folder_ / "m.gguf");
    Arguments all{"-m", path("m.gguf"), "-no-cnv", "-p", "abc", "-n", "6", "--temp", "0", "--ignore-eos"};
    all.insert(all.end(), more.begin(), more.end());
    return run({.program = program("llm-run"), .arguments = all});
  }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }

 private:
  TempDir folder_;
};

/// Long enough for the windows; two layers, so that rotations matter.
TinyFile model() { return tiny_model({.layers = 2, .context = 64}); }

template <class T>
TinyFile with(TinyFile f, const std::string& key, T value) {
  f.set(key, value);
  return f;
}

}  // namespace

TEST_CASE("logits with a value that is said are those of a file that has it") {
  const OverrideBench bench;
  const std::string own = bench.logits(model());
  const auto same = [&](const TinyFile& changed, const Arguments& said) {
    const std::string expected = bench.logits(changed);
    CHECK(expected != own);  // the value matters
    CHECK(bench.logits(model(), said) == expected);
  };
  const std::string eps = "llama.attention.layer_norm_rms_epsilon", base = "llama.rope.freq_base";
  same(with(model(), eps, 0.25f), {"--override-kv", eps + "=float:0.25"});
  same(with(model(), "llama.rope.dimension_count", std::uint32_t{4}),
       {"--override-kv", "llama.rope.dimension_count=int:4"});
  same(with(with(model(), eps, 0.25f), base, 100.0f), {"--override-kv", eps + "=float:0.25," + base + "=float:100"});
  // Several add up, and of one key the last counts.
  same(with(with(model(), eps, 0.25f), base, 100.0f), {"--override-kv", base + "=float:7", "--override-kv",
                                                       eps + "=float:0.25", "--override-kv=" + base + "=float:100"});
  same(with(with(model(), "llama.rope.scaling.type", "linear"), "llama.rope.scaling.factor", 2.0f),
       {"--override-kv", "llama.rope.scaling.type=str:linear,llama.rope.scaling.factor=float:2"});
}

TEST_CASE("the tokenizer and the template follow what is said, too") {
  const OverrideBench bench;
  const auto text = [&](const TinyFile& f, const Arguments& more) {
    const Outcome o = bench(f, more);
    INFO(o.err);
    CHECK(o.code == 0);
    return o.out;
  };
  const Arguments explain{"--explain-prompt"};
  const std::string own = text(model(), explain);
  const std::string bare = text(with(model(), "tokenizer.ggml.add_bos_token", false), explain);
  CHECK(own != bare);
  CHECK(text(model(), {"--explain-prompt", "--override-kv", "tokenizer.ggml.add_bos_token=bool:false"}) == bare);
  const Outcome chat = bench(model(), {"-cnv", "--explain-prompt", "--override-kv",
                                       "\"tokenizer.chat_template=str:<{{ messages[0].content }}, \"\"x\"\">\""});
  INFO(chat.err);
  CHECK(chat.code == 0);
  CHECK(contains(chat.out, "<abc, \"x\">"));
  CHECK_FALSE(contains(chat.err, "nothing reads"));
}

TEST_CASE("what cannot be is refused by name, what nothing reads is warned about") {
  const OverrideBench bench;
  const auto refused = [&](const std::string& said, std::string_view part) {
    const Outcome o = bench(model(), {"--override-kv", said});
    INFO(said << ": " << o.err);
    CHECK(o.code == 2);
    CHECK(o.out.empty());
    CHECK(contains(o.err, part));
  };
  refused("llama.context_length", "is not KEY=TYPE:VALUE");
  refused("=int:4", "is not KEY=TYPE:VALUE");
  refused("llama.context_length=4", "is not KEY=TYPE:VALUE");
  refused("llama.context_length=u32:4", "is not a type: int, float, bool or str");
  refused("llama.context_length=int:four", "\"four\" is not a whole number");
  refused("llama.rope.freq_base=float:nan", "\"nan\" is not a number");
  refused("tokenizer.ggml.add_bos_token=bool:1", "\"1\" is not true or false");
  refused("llama.context_length=int:4,", "is not KEY=TYPE:VALUE");
  refused("\"llama.context_length=int:4", "ends inside of quotes");
  refused("llama.context_length=float:4", "has type u32 in the file, which int:... replaces");
  refused("tokenizer.ggml.tokens=str:a", "array of string");
  refused("general.alignment=int:64", "says how the file is made");
  // By the same rules as a file's own values, in the user's name.
  refused("llama.context_length=int:0", "(the value is that of --override-kv)");
  refused("llama.rope.scaling.type=str:zzz", "known are none, linear and yarn (the value is that of --override-kv)");
  refused("general.architecture=str:mamba", "mamba");
  // What only follows from the value is not the file's fault either.
  for (const char* key : {"block_count=int:9", "embedding_length=int:9000", "feed_forward_length=int:9"}) {
    refused("llama." + std::string(key), "; with the file's own values, without --override-kv, it is sound");
    CHECK_FALSE(contains(bench(model(), {"--override-kv", "llama." + std::string(key)}).err, "hint: "));
  }

  const Outcome odd = bench(model(), {"--override-kv", "llama.context_lenght=int:32"});
  CHECK(odd.code == 0);
  CHECK(contains(odd.err,
                 "--override-kv: nothing reads key \"llama.context_lenght\"; did you mean "
                 "\"llama.context_length\"?"));
  CHECK(bench(model(), {"--strict", "--override-kv", "llama.context_lenght=int:32"}).code == 10);
  CHECK_FALSE(contains(bench(model(), {"--override-kv", "llama.context_length=int:32"}).err, "nothing reads"));
}

TEST_CASE("options of the rotary embedding are keys of the model's family") {
  const OverrideBench bench;
  const std::string own = bench.logits(model());
  const std::string scaling = "llama.rope.scaling.";
  const auto scaled = [&](const char* type, float factor, std::uint32_t original) {
    TinyFile f = with(with(model(), scaling + "type", type), scaling + "factor", factor);
    if (original > 0) f.set(scaling + "original_context_length", original);
    return f;
  };
  const auto same = [&](const TinyFile& changed, const Arguments& said, const TinyFile& from) {
    const std::string expected = bench.logits(changed);
    CHECK(expected != own);
    CHECK(bench.logits(from, said) == expected);
  };
  same(scaled("linear", 4, 0), {"--rope-scale", "4"}, model());
  same(scaled("linear", 4, 0), {"--rope-freq-scale", "0.25"}, model());
  same(scaled("linear", 4, 0), {"--rope-scale", "2", "--rope-freq-scale", "0.25"}, model());
  same(scaled("linear", 4, 0), {"--rope-freq-scale", "0.5", "--rope-scale", "4"}, model());
  same(with(model(), "llama.rope.freq_base", 77.0f), {"--rope-freq-base", "77"}, model());
  same(scaled("yarn", 4, 64), {"--rope-scaling", "yarn", "--rope-scale", "4"}, model());
  same(scaled("yarn", 4, 32), {"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "32"}, model());
  same(with(with(scaled("yarn", 4, 64), scaling + "yarn_beta_fast", 8.0f), scaling + "yarn_beta_slow", 0.5f),
       {"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-beta-fast", "8", "--yarn-beta-slow", "0.5"}, model());
  // Without a mix all angles are divided alike.
  same(scaled("linear", 4, 0), {"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-ext-factor", "0"}, model());
  same(scaled("yarn", 4, 64), {"--rope-scale", "4", "--yarn-ext-factor", "1"}, model());
  // What is 0, or below it where that means "not set", leaves the file as it is.
  CHECK(bench.logits(scaled("yarn", 4, 64), {"--rope-freq-scale", "0", "--rope-freq-base", "0", "--yarn-orig-ctx", "0",
                                             "--yarn-beta-fast", "-1", "--yarn-ext-factor", "-1"}) ==
        bench.logits(scaled("yarn", 4, 64)));
  CHECK(bench.logits(scaled("yarn", 4, 16), {"--rope-scaling", "none"}) == own);
}

TEST_CASE("a stretched context is the one that the model was trained for") {
  const OverrideBench bench;
  const auto context = [&](const TinyFile& f, Arguments said) {
    said.push_back("--dry-run");
    const Outcome o = bench(f, said);
    INFO(o.err);
    CHECK(o.code == 0);
    const std::size_t at = o.out.find("\ncontext ");
    REQUIRE(at != std::string::npos);
    const std::string line = o.out.substr(at + 1, o.out.find(" tokens", at) - at - 1);
    return line.substr(line.rfind(' ') + 1);
  };
  TinyFile yarn = tiny_model({.layers = 2, .context = 64, .rope = TinyRope::Yarn});  // 16 stretched by 4
  CHECK(context(model(), {}) == "64");
  CHECK(context(model(), {"--rope-scale", "4"}) == "256");
  CHECK(context(model(), {"--rope-scaling", "yarn", "--rope-scale", "2.5"}) == "160");
  CHECK(context(model(), {"--rope-scaling", "yarn", "--rope-scale", "4", "--yarn-orig-ctx", "32"}) == "128");
  CHECK(context(model(), {"--rope-freq-base", "1e6"}) == "64");
  CHECK(context(yarn, {}) == "64");
  CHECK(context(yarn, {"--rope-scale", "8"}) == "128");
  CHECK(context(yarn, {"--rope-scaling", "none"}) == "16");
  TinyFile linear = tiny_model({.layers = 2, .context = 64, .rope = TinyRope::Linear});  // by 4, too
  CHECK(context(linear, {"--rope-scale", "8"}) == "128");
  CHECK(context(linear, {"--rope-scaling", "none"}) == "16");
  CHECK(context(linear, {"--rope-scaling", "yarn"}) == "256");
  // -c may ask for so much without a word about it.
  CHECK(contains(bench(model(), {"-c", "200"}).err, "longer than the 64 that the model was trained with"));
  CHECK_FALSE(contains(bench(model(), {"-c", "200", "--rope-scale", "4"}).err, "trained with"));
}

TEST_CASE("rotary options that change nothing are said to, others are refused") {
  const OverrideBench bench;
  const auto warned = [&](const Arguments& said, std::string_view part) {
    const Outcome o = bench(model(), said);
    INFO(o.err);
    CHECK(o.code == 0);
    CHECK(contains(o.err, part));
  };
  warned({"--rope-scaling", "none", "--rope-scale", "4"}, "--rope-scale has no effect: the scaling is none");
  warned({"--yarn-beta-fast", "16"}, "--yarn-beta-fast has no effect");
  warned({"--yarn-orig-ctx", "16"}, "--yarn-orig-ctx has no effect");
  warned({"--rope-scaling", "yarn", "--yarn-attn-factor", "2"}, "--yarn-attn-factor has no effect: where yarn mixes");
  const auto refused = [&](const Arguments& said, std::string_view part) {
    const Outcome o = bench(model(), said);
    INFO(o.err);
    CHECK(o.code == 2);
    CHECK(contains(o.err, part));
  };
  refused({"--rope-scaling", "longrope"}, "\"longrope\" is not none, linear or yarn");
  refused({"--rope-scale", "-2"}, "--rope-scale");
  refused({"--rope-freq-base", "x"}, "--rope-freq-base");
  refused({"--rope-scaling", "yarn", "--rope-scale", "0.5"},
          "below 1, which yarn does not define (the value is that of "
          "--rope-scale)");
  refused({"--rope-scaling", "yarn", "--rope-scale", "2", "--yarn-beta-fast", "0.5"}, "that of --yarn-beta-fast");
}
