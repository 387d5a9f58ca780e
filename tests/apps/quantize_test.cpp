// llm-quantize as a process: what it writes, what it refuses, and that it leaves nothing behind.
#include "quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "gguf/file.h"
#include "programs.h"
#include "quantize/mix.h"
#include "support/tiny_adapter.h"

using namespace llm;
using namespace llm::test;

namespace {

/// Wide enough for blocks of 256; two layers, experts on request.
TinyOptions wide(int experts = 0) {
  return {.layers = 2, .n_embd = 256, .d_ff = 256, .heads = 32, .kv_heads = 8, .experts = experts};
}

GgufFile open(const std::string& path) {
  Warnings warnings;
  return GgufFile::open(path, warnings);
}

std::string quantised(const TempDir& folder, const std::string& model, const std::string& type,
                      std::vector<std::string> options = {}, const std::string& name = "out.gguf") {
  const std::string out = (folder / name).string();
  options.insert(options.begin(), {model, out, type, "--force"});
  const Outcome o = run_program("llm-quantize", options);
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK(o.out.empty());
  return out;
}

/// An importance matrix for every matrix of a model, drawn by name.
std::string write_imatrix(const TempDir& folder, const std::string& model, float scale = 1) {
  GgufWriter w;
  w.set("general.type", "imatrix");
  const std::vector<std::string> texts{"some text"};
  w.set_array("imatrix.datasets", std::span<const std::string>(texts));
  w.set<std::uint32_t>("imatrix.chunk_count", 5);
  w.set<std::uint32_t>("imatrix.chunk_size", 16);
  const GgufFile file = open(model);
  for (const TensorInfo& t : file.tensors().all()) {
    if (t.type.shape.n_dims() < 2 || !t.name.starts_with("blk.")) continue;
    const std::int64_t matrices = t.type.shape[2];
    const auto add = [&](const std::string& suffix, std::int64_t columns, auto value) {
      std::vector<std::byte> data;
      for (std::int64_t i = 0; i < columns * matrices; ++i) {
        const float v = value(i);
        const auto* p = reinterpret_cast<const std::byte*>(&v);
        data.insert(data.end(), p, p + sizeof v);
      }
      w.add_tensor(std::string(t.name) + suffix, {DType::F32, Shape{columns, matrices}}, data);
    };
    add(".in_sum2", t.type.shape[0], [&](std::int64_t i) { return scale * static_cast<float>(1 + (i * 7919) % 97); });
    add(".counts", 1, [](std::int64_t) { return 80.0f; });
  }
  const auto path = folder / "imatrix.gguf";
  w.write(path);
  return path.string();
}

}  // namespace

TEST_CASE("a file of which nothing is quantised is no quiet success", "[quantize]") {
  TempDir folder;
  const TinyFile base = tiny_model(wide(2));
  const auto adapter = folder / "adapter.gguf";
  tiny_adapter(base).write(adapter);
  const auto quantize = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{adapter.string(), (folder / "out.gguf").string(), "Q8_0"};
    words.insert(words.end(), more.begin(), more.end());
    return run({.program = program("llm-quantize"), .arguments = words});
  };
  CHECK_THAT(quantize({}).err, contains("[nothing-quantized]: no tensor of this file is one that Q8_0 quantises"));
}

TEST_CASE("options of the head that change nothing are told", "[quantize]") {
  TempDir folder;
  TinyOptions tied = wide(2);
  tied.tied = true;
  const std::string model = write_model(folder, tiny_model(wide(2))), head = "--output-tensor-type";
  const TempDir other;
  const std::string without = write_model(other, tiny_model(tied));
  const auto told = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> words{file, (folder / "out.gguf").string(), "Q4_0", "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    return run({.program = program("llm-quantize"), .arguments = words}).err;
  };
  CHECK_THAT(told(without, {"--leave-output-tensor"}), contains("--leave-output-tensor changes nothing"));
  CHECK_THAT(told(model, {"--leave-output-tensor", head, "F16"}), contains(head + " changes nothing"));
  CHECK_THAT(told(without, {"--token-embedding-type", "F16", head, "Q5_0"}), contains(head + " changes nothing"));
  CHECK(told(model, {"--leave-output-tensor"}).empty());
  CHECK(told(without, {head, "Q5_0"}).empty());
}

TEST_CASE("every type and mix is written with the sizes that a dry run gives, and is whole", "[quantize]") {
  TempDir folder;
  TinyOptions small = wide(2);
  small.layers = 1;
  const std::string model = write_model(folder, tiny_model(small));
  const std::string imatrix = write_imatrix(folder, model);
  const GgufFile input = open(model);
  for (const Mix& mix : mixes()) {
    INFO(mix.name);
    const std::string out = quantised(folder, model, std::string(mix.name), {"--imatrix", imatrix});
    const std::string plan =
        output_of("llm-quantize", {model, out, std::string(mix.name), "--imatrix", imatrix, "--dry-run"});
    const GgufFile file = open(out);
    std::string bytes = std::to_string(std::filesystem::file_size(out));
    for (std::size_t at = bytes.size(); at > 3; at -= 3) bytes.insert(at - 3, ",");
    CHECK_THAT(plan, contains(": " + bytes + " bytes\n"));
    REQUIRE(file.tensors().all().size() == input.tensors().all().size());
    for (const TensorInfo& t : file.tensors().all()) {
      const std::size_t line = plan.find(std::string(t.name) + " ");
      REQUIRE(line != std::string::npos);
      std::istringstream words(plan.substr(plan.find(']', line) + 1));
      std::string from, to;
      words >> from >> to;
      CHECK(from == "F32");
      CHECK(to == name(t.type.dtype));
      CHECK(t.type.shape == input.tensors().find(t.name)->type.shape);
    }
    CHECK(file.metadata().get<std::uint32_t>("general.file_type") == static_cast<std::uint32_t>(mix.file_type));
    CHECK(json_of("llm-inspect", {"verify", out, "--json"})["ok"] == true);
  }
}

TEST_CASE("the data is what the quantiser makes of each row, with each expert's importance", "[quantize]") {
  TempDir folder;
  const TinyFile tiny = tiny_model(wide(4));
  const std::string model = write_model(folder, tiny), imatrix = write_imatrix(folder, model);
  for (const bool weighted : {false, true}) {
    std::vector<std::string> options{"--tensor-type", "_exps=Q4_K"};
    if (weighted) options.insert(options.end(), {"--imatrix", imatrix});
    const GgufFile file = open(quantised(folder, model, "Q4_0", options));
    for (const TinyTensor& t : tiny.tensors()) {
      if (t.name != "blk.1.ffn_down_exps.weight") continue;
      const std::vector<float> values = tiny_values(t, tiny.seed);
      const TensorView view = file.view(*file.tensors().find(t.name));
      REQUIRE(view.type.dtype == DType::Q4_K);
      const std::int64_t width = t.type.shape[0], rows = t.type.shape[1];
      std::vector<std::byte> expected(view.type.bytes());
      for (std::int64_t e = 0; e < 4; ++e) {
        std::vector<float> importance;  // as write_imatrix: sums over 80 rows
        for (std::int64_t i = e * width; i < (e + 1) * width; ++i)
          importance.push_back(static_cast<float>(1 + (i * 7919) % 97) / 80.0f);
        const std::size_t at = static_cast<std::size_t>(e) * static_cast<std::size_t>(rows);
        quantize(DType::Q4_K, values.data() + at * static_cast<std::size_t>(width),
                 expected.data() + at * view.type.row_bytes(), rows, width, weighted ? importance.data() : nullptr);
      }
      CHECK(std::memcmp(expected.data(), view.data, expected.size()) == 0);
    }
  }
}

TEST_CASE("metadata is carried over, and says what was done", "[quantize]") {
  TempDir folder;
  TinyFile tiny = tiny_model(wide());
  tiny.set("general.file_type", std::uint32_t{0});
  tiny.set("quantize.imatrix.file", "of before");
  tiny.set_array("some.numbers", std::vector<std::int16_t>{-1, 2});
  const std::string model = write_model(folder, tiny), imatrix = write_imatrix(folder, model);
  const GgufFile input = open(model), plain = open(quantised(folder, model, "q5_k_s")),
                 weighted = open(quantised(folder, model, "Q5_K_S", {"--imatrix", imatrix}, "w.gguf"));
  for (const GgufFile* file : {&plain, &weighted}) {
    const Metadata& md = file->metadata();
    for (const Metadata::Entry& e : input.metadata().entries()) {
      if (e.key == "general.file_type" || e.key == "quantize.imatrix.file") continue;
      INFO(e.key);
      REQUIRE(md.has(e.key));
      CHECK(md.find(e.key)->type == e.type);
      CHECK(std::ranges::equal(md.find(e.key)->raw, e.raw));
    }
    CHECK(md.get<std::uint32_t>("general.file_type") == 16);
    CHECK(md.find("general.file_type")->type == GgufType::U32);
    CHECK(md.get<std::uint32_t>("general.quantization_version") == 2);
  }
  CHECK(plain.metadata().get<std::string_view>("quantize.imatrix.file") == "of before");
  const Metadata& md = weighted.metadata();
  CHECK(md.get<std::string_view>("quantize.imatrix.file") == imatrix);
  CHECK(md.get<std::string_view>("quantize.imatrix.dataset") == "some text");
  CHECK(md.get<std::uint32_t>("quantize.imatrix.entries_count") == 14);
  CHECK(md.get<std::uint32_t>("quantize.imatrix.chunks_count") == 5);
  CHECK(contents(quantised(folder, model, "copy")) == contents(model));
}

TEST_CASE("threads, and how the input is split, change no byte; a set can stay one", "[quantize]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model(wide()));
  const std::string one = contents(quantised(folder, model, "Q4_K_M", {"-t", "1"}));
  CHECK(contents(quantised(folder, model, "Q4_K_M", {"-t", "3"})) == one);
  output_of("llm-inspect", {"split", model, (folder / "p").string(), "--max-tensors", "9"});
  const std::string first = (folder / "p-00001-of-00003.gguf").string();
  CHECK(contents(quantised(folder, first, "Q4_K_M")) == one);

  const std::string set = (folder / "set.gguf").string();
  output_of("llm-quantize", {first, set, "Q4_K_M", "--keep-split"});
  CHECK_FALSE(std::filesystem::exists(set));
  const std::string part = (folder / "set-00002-of-00003.gguf").string(), merged = (folder / "merged.gguf").string();
  CHECK(open(part).shards().size() == 3);
  output_of("llm-inspect", {"merge", part, merged});
  CHECK(contents(merged) == one);
  check_fails(2, "set-00001-of-00003.gguf: already exists", "llm-quantize", {first, set, "Q4_K_M", "--keep-split"});
}

TEST_CASE("quantised input and rows that do not fit are warned about", "[quantize]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model({.type = DType::Q8_0}));
  const Outcome o = run_program("llm-quantize", {model, (folder / "o.gguf").string(), "Q4_K_M"});
  CHECK(o.code == 0);
  CHECK_THAT(
      o.err,
      contains("warning[requantized]: 6 tensors are quantised already, the first tensor \"token_embd.weight\" (Q8_0)"));
  CHECK_THAT(o.err, contains("get Q5_0 in place of Q4_K, whose blocks of 256 do not divide their rows"));
  const Outcome fine = run_program("llm-quantize", {model, (folder / "c.gguf").string(), "COPY"});
  CHECK(fine.err.find("warning") == std::string::npos);
}

TEST_CASE("mistakes on the command line", "[quantize]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model(wide())), out = (folder / "o.gguf").string();
  const auto refused = [&](int code, const std::string& text, std::vector<std::string> arguments) {
    check_fails(code, text, "llm-quantize", std::move(arguments));
  };
  refused(2, "unknown type \"Q4_KM\"; did you mean Q4_K_M?", {model, out, "Q4_KM"});
  refused(2, "unknown type \"everything\" (see --help)", {model, out, "everything"});
  refused(2, "types are given by their names here; that number is Q8_0", {model, out, "7"});  // as in llama.cpp
  refused(2, "that number is Q4_K_M", {model, out, "15"});
  refused(2, "\"2\" stands behind the type, where nothing is expected; -t N gives", {model, out, "Q8_0", "2"});
  refused(2, "give the file to write", {model, "Q4_K_M"});
  refused(2, "give IN.gguf OUT.gguf TYPE", {model});
  refused(2, "unknown storage type \"Q4_K_M\"; did you mean Q4_K?", {model, out, "Q4_0", "--tensor-type", "a=Q4_K_M"});
  refused(2, "unknown storage type \"Q8_K\"", {model, out, "Q4_0", "--output-tensor-type", "Q8_K"});
  refused(2, "unknown storage type \"f8_e4m3\"", {model, out, "Q4_0", "--output-tensor-type", "f8_e4m3"});
  refused(2, "\"attn\" is not PATTERN=TYPE", {model, out, "Q4_0", "--tensor-type", "attn"});
  refused(2, "\"a[\" is not a regular expression", {model, out, "Q4_0", "--tensor-type", "a[=Q4_K"});
  refused(2, "unknown option --imatix; did you mean --imatrix?", {model, out, "Q4_0", "--imatix", "x"});
  refused(2, "IQ2_XS without an importance matrix is not worth having", {model, out, "IQ2_XS"});
  refused(2, "would be overwritten by OUT while it is read", {model, model, "Q4_0", "--force"});
  refused(2, "exists and is not a regular file", {model, folder.path().string(), "Q4_0", "--force"});
  refused(2, "option --tensor-type with COPY, which leaves every tensor as it is",
          {model, out, "COPY", "--tensor-type", "a=Q8_0"});
  refused(2, "option --output-tensor-type with COPY", {model, out, "copy", "--output-tensor-type", "Q8_0"});
  refused(2, "option --token-embedding-type with COPY", {model, out, "COPY", "--token-embedding-type", "Q8_0"});
  refused(2, "option --pure with COPY", {model, out, "COPY", "--pure"});
  refused(2, "option --imatrix with COPY", {model, out, "COPY", "--imatrix", model});
  refused(3, "no such file", {(folder / "none").string(), out, "Q4_0"});
  refused(3, "no such file; an importance matrix is what llm-imatrix writes",
          {model, out, "Q4_0", "--imatrix", (folder / "none").string()});
  refused(3, "is a directory, a regular file is required; an importance matrix is what llm-imatrix writes",
          {model, out, "Q4_0", "--imatrix", folder.path().string()});
  refused(3, "is not an importance matrix", {model, out, "Q4_0", "--imatrix", model});
  refused(8, "cannot be created", {model, (folder / "no/o.gguf").string(), "Q4_0"});
  CHECK(folder.entries() == 1);
  write_file(out, "precious");
  refused(2, "already exists; --force replaces it", {model, out, "Q4_0"});
  CHECK(contents(out) == "precious");
}

TEST_CASE("an importance matrix of another model, or without an entry that is needed", "[quantize]") {
  TempDir folder;
  const std::string small = write_model(folder, tiny_model(), "small.gguf"),
                    model = write_model(folder, tiny_model(wide()));
  const std::string imatrix = write_imatrix(folder, small);
  const std::string out = (folder / "o.gguf").string();
  check_fails(3, "the tensor has rows of 256 in 1", "llm-quantize", {model, out, "Q4_K", "--imatrix", imatrix});
  TinyOptions small_layer = wide();
  small_layer.layers = 1;
  const std::string one_layer = write_imatrix(folder, write_model(folder, tiny_model(small_layer)));
  const std::string two_layers = write_model(folder, tiny_model(wide()));
  check_fails(3, "tensor \"blk.1.attn_q.weight\": IQ2_M makes it IQ2_S, which without an importance matrix",
              "llm-quantize", {two_layers, out, "IQ2_M", "--imatrix", one_layer});
  check_fails(2, "tensor \"blk.0.attn_q.weight\": IQ2_XS without an importance matrix", "llm-quantize",
              {two_layers, out, "Q8_0", "--tensor-type", "attn_q=IQ2_XS"});
  const Outcome dry = run_program("llm-quantize", {two_layers, "IQ2_M", "--dry-run"});
  CHECK(dry.code == 0);
  CHECK_THAT(dry.err, contains("without an importance matrix"));
}

TEST_CASE("options that change nothing are warned about", "[quantize]") {
  TempDir folder;
  const std::string dense = write_model(folder, tiny_model(wide()), "dense.gguf"),
                    experts = write_model(folder, tiny_model(wide(4)), "experts.gguf");
  const std::string imatrix = write_imatrix(folder, experts);
  const auto said = [](std::vector<std::string> arguments) {
    arguments.push_back("--dry-run");
    const Outcome o = run_program("llm-quantize", std::move(arguments));
    CHECK(o.code == 0);
    return o.err;
  };
  CHECK_THAT(said({dense, "Q4_0", "--tensor-type", "atn_q=Q8_0"}),
             contains("--tensor-type \"atn_q=Q8_0\" changes nothing: no matrix has a name that it matches first"));
  CHECK_THAT(said({dense, "Q4_0", "--tensor-type", "attn_norm=Q8_0"}), contains("changes nothing"));
  const std::string shadowed = said({dense, "Q4_0", "--tensor-type", "attn=Q8_0", "--tensor-type", "attn_q=Q5_0"});
  CHECK_THAT(shadowed, contains("\"attn_q=Q5_0\" changes nothing"));
  CHECK(shadowed.find("\"attn=Q8_0\"") == std::string::npos);
  CHECK(said({dense, "F16", "--tensor-type", "attn_q=Q8_0"}).empty());
  // Several in one, as with other lists; other commas are the pattern's.
  const std::string listed = said({dense, "Q4_0", "--tensor-type", "atn_q=q8_0,at{2,3}n_k=q5_0"});
  CHECK_THAT(listed, contains("\"atn_q=Q8_0\" changes nothing"));
  CHECK(listed.find("at{2,3}n_k") == std::string::npos);  // attn_k

  CHECK_THAT(said({dense, "Q4_0", "--imatrix", imatrix}),
             contains("has no entry for 6 tensors, the first tensor \"blk.0.ffn_gate.weight\": quantised as without an "
                      "importance matrix"));
  CHECK(said({experts, "Q4_0", "--imatrix", imatrix}).empty());
  CHECK_THAT(said({experts, "BF16", "--imatrix", imatrix}),
             contains("changes nothing: no tensor is quantised with it"));
  const std::string other =
      write_imatrix(folder, write_model(folder, tiny_model({.arch = "qwen3", .layers = 3}), "other.gguf"));
  CHECK_THAT(said({dense, "Q4_0", "--imatrix", other, "--tensor-type", "blk.[012]=F16"}), contains("changes nothing"));
}

TEST_CASE("values that cannot be quantised are named, and nothing is written", "[quantize]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model(wide())), out = (folder / "o.gguf").string();
  const std::string bytes = contents(model);
  const TensorInfo t = *open(model).tensors().find("blk.1.ffn_up.weight");
  const auto damaged = [&](float value) {
    std::string copy = bytes;
    std::memcpy(copy.data() + t.data_offset + (100 * 256 + 7) * sizeof value, &value, sizeof value);
    return write_file(folder / "bad.gguf", copy);
  };
  check_fails(11, "tensor \"blk.1.ffn_up.weight\": row 100 has NaN in column 7", "llm-quantize",
              {damaged(NAN), out, "Q4_K_M"});
  check_fails(11, "row 100 cannot be held by F16: it would have an infinite value in column 7", "llm-quantize",
              {damaged(1e6f), out, "F16"});
  // Scales of 16 bits and quants of 4: at most 65504 * 8.
  check_fails(11, "row 100 cannot be held by Q4_0: it would have 524032 in place of 1000000000 in column 7",
              "llm-quantize", {damaged(1e9f), out, "Q4_0", "--pure"});
  CHECK(folder.entries() == 2);
  output_of("llm-quantize", {damaged(2e5f), out, "Q4_0", "--pure"});
  output_of("llm-quantize", {damaged(1e9f), out, "MXFP4_MOE", "--tensor-type", "ffn_up=MXFP4", "--force"});
  output_of("llm-quantize", {damaged(1e6f), out, "BF16", "--force"});
}

TEST_CASE("a full disk and a signal leave nothing behind", "[quantize]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model(wide())), out = (folder / "o.gguf").string();
  const auto shell = [](const std::string& script) {
    return run({.program = "/bin/sh", .arguments = {"-c", script}, .limit = std::chrono::seconds(120)});
  };
  const std::string quantize = program("llm-quantize").string();
  const Outcome full = shell("ulimit -f 1000; exec '" + quantize + "' '" + model + "' '" + out + "' F16");
  CHECK(full.code == 8);
  CHECK_THAT(full.err, contains("cannot be written"));
  CHECK(folder.entries() == 1);

  // Long enough to be met at work: 16 million weights by a type whose grid is searched.
  TinyFile large = tiny_model({.n_embd = 256, .d_ff = 32});
  large.resize("output.weight", {4096, 4096});
  const std::string big = write_model(folder, large, "large.gguf");
  const Outcome ended =
      shell("'" + quantize + "' '" + big + "' '" + out + "' Q4_0 --pure --tensor-type output=IQ2_S -t 1 & p=$!\n" +
            "until ls '" + folder.path().string() + "'/*.tmp* >/dev/null 2>&1; do\n" +
            "  kill -0 $p || exit 99; done\nkill -TERM $p; wait $p");
  CHECK(ended.code == 128 + SIGTERM);
  CHECK(folder.entries() == 2);
}

TEST_CASE("help names every type", "[quantize]") {
  const std::string help = output_of("llm-quantize", {"--help"});
  for (const Mix& mix : mixes()) CHECK_THAT(help, contains("\n  " + std::string(mix.name) + " "));
  CHECK_THAT(help, contains("COPY"));
}
