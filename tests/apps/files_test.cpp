// llm-inspect split, merge and verify as processes.
#include <algorithm>
#include <cstring>

#include "gguf/file.h"
#include "programs.h"

using namespace llm;
using namespace llm::test;

namespace {

/// The sum of a file by coreutils.
std::string sha256sum(const std::filesystem::path& path) {
  const Outcome o = run({.program = "/usr/bin/sha256sum", .arguments = {path.string()}});
  REQUIRE(o.code == 0);
  return o.out.substr(0, 64);
}

std::uint64_t offset_of(const std::string& model, const std::string& tensor) {
  Warnings warnings;
  return GgufFile::open(model, warnings).tensors().find(tensor)->data_offset;
}

/// Writes bytes over a file.
void patch(const std::string& path, std::uint64_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

const std::string kHalfNan("\x00\x7e", 2), kHalfInfinity("\x00\xfc", 2), kFloatNan("\x00\x00\xc0\x7f", 4),
    kDoubleInfinity("\x00\x00\x00\x00\x00\x00\xf0\x7f", 8);

}  // namespace

TEST_CASE("split and merge give the same file back", "[files]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model({.layers = 3, .type = DType::Q4_0}));
  const std::string prefix = (folder / "part").string();
  const std::string plan = output_of("llm-inspect", {"split", model, prefix, "--max-tensors", "8", "--dry-run"});
  CHECK(folder.entries() == 1);
  const std::string done = output_of("llm-inspect", {"split", model, prefix, "--max-tensors", "8"});
  CHECK(done == plan);
  CHECK(std::count(plan.begin(), plan.end(), '\n') == 4);  // 3 + 3 * 9 tensors
  CHECK(folder.entries() == 1 + 4);
  CHECK_THAT(plan,
             contains("part-00004-of-00004.gguf  6 tensors  " +
                      std::to_string(std::filesystem::file_size(folder / "part-00004-of-00004.gguf") / 1000) + ","));

  const std::string merged = (folder / "merged.gguf").string();
  output_of("llm-inspect", {"merge", (folder / "part-00003-of-00004.gguf").string(), merged});
  CHECK(contents(merged) == contents(model));
  CHECK(output_of("llm-run", {"-m", merged, "-p", "ab", "-n", "4", "--temp", "0", "-q"}) ==
        output_of("llm-run",
                  {"-m", (folder / "part-00001-of-00004.gguf").string(), "-p", "ab", "-n", "4", "--temp", "0", "-q"}));
}

TEST_CASE("a limit in bytes, metadata alone, and files of other versions", "[files]") {
  TempDir folder;
  const TinyFile tiny = tiny_model({.layers = 2});
  const std::string model = write_model(folder, tiny);
  const std::string prefix = (folder / "s.gguf").string();  // the suffix is not doubled
  output_of("llm-inspect", {"split", model, prefix, "--max-size", "40k", "--no-tensor-first-split"});
  std::size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (!entry.path().filename().string().starts_with("s-")) continue;
    CHECK(entry.file_size() <= 40'000);
    ++n;
  }
  CHECK(n >= 4);

  tiny.write(folder / "old.gguf", {.version = 1, .big_endian = true});
  const Outcome o = run_program(
      "llm-inspect", {"split", (folder / "old.gguf").string(), (folder / "o").string(), "--max-tensors", "100"});
  CHECK(o.code == 0);
  CHECK_THAT(o.err, contains("becomes version 3"));
  output_of("llm-inspect", {"merge", (folder / "o-00001-of-00001.gguf").string(), (folder / "new.gguf").string()});
  CHECK(contents(folder / "new.gguf") == contents(model));
}

TEST_CASE("split and merge refuse what would lose something", "[files]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string prefix = (folder / "p").string(), first = (folder / "p-00001-of-00002.gguf").string();
  const std::string before = contents(model);
  check_fails(2, "either --max-tensors N or --max-size S", "llm-inspect", {"split", model, prefix});
  check_fails(2, "either --max-tensors N or --max-size S", "llm-inspect",
              {"split", model, prefix, "--max-tensors", "2", "--max-size", "1M"});
  check_fails(2, "\"0\" is not a whole number", "llm-inspect", {"split", model, prefix, "--max-tensors", "0"});
  check_fails(2, "nothing to merge", "llm-inspect", {"merge", model, (folder / "out.gguf").string()});
  check_fails(3, "no such file", "llm-inspect", {"split", (folder / "none").string(), prefix, "--max-tensors", "2"});
  output_of("llm-inspect", {"split", model, prefix, "--max-tensors", "6"});
  check_fails(2, "already exists; --force", "llm-inspect", {"split", model, prefix, "--max-tensors", "6"});
  output_of("llm-inspect", {"split", model, prefix, "--max-tensors", "6", "--force"});
  check_fails(2, "already exists; --force", "llm-inspect", {"merge", first, model});
  for (const char* force : {"--force", "-q"})
    check_fails(2, "would be overwritten by OUT while it is read", "llm-inspect", {"merge", first, first, force});
  std::filesystem::create_hard_link(first, folder / "link");
  check_fails(2, "would be overwritten by OUT while it is read", "llm-inspect",
              {"merge", first, (folder / "link").string(), "--force"});
  check_fails(8, "cannot be created", "llm-inspect", {"merge", first, (folder / "no/folder").string()});
  check_fails(8, "cannot be created: Not a directory", "llm-inspect", {"merge", first, model + "/out.gguf"});
  for (const char* prefix_of_nothing : {"/", "parts/"})
    check_fails(2, "is a folder; PREFIX begins", "llm-inspect",
                {"split", model, prefix_of_nothing, "--max-tensors", "6"});
  std::filesystem::remove(folder / "p-00002-of-00002.gguf");
  check_fails(3, "split 2 of 2 is missing", "llm-inspect", {"merge", first, (folder / "out.gguf").string()});
  check_fails(3, "; the splits of a model lie in one folder\n", "llm-inspect", {"show", first});
  CHECK(contents(model) == before);
}

TEST_CASE("verify's sums are those of sha256sum", "[files]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model({.type = DType::Q8_0}));
  const Json j = json_of("llm-inspect", {"verify", model, "--json"});
  CHECK(j["ok"] == true);
  CHECK(j["problems"].empty());
  REQUIRE(j["files"].size() == 1);
  CHECK(j["files"][0]["sha256"] == sha256sum(model));
  REQUIRE(j["tensors"].size() == 12);
  const std::string bytes = contents(model);
  for (const Json& t : j["tensors"]) {
    INFO(t["name"]);
    const std::string data = bytes.substr(offset_of(model, t["name"]), t["bytes"]);
    CHECK(t["sha256"] == sha256sum(write_file(folder / "data", data)));
  }
  CHECK_THAT(output_of("llm-inspect", {"verify", model}), contains(sha256sum(model)) && contains("no NaN"));
}

TEST_CASE("verify compares with sums that are expected", "[files]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string sum = sha256sum(model), zeros(64, '0');
  std::string upper = sum;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const auto list = [&](const std::string& text) { return write_file(folder / "SUMS", text); };
  for (const std::string& good :
       {sum, upper, list(sum + "  m.gguf\n"), list(zeros + "  other\n" + sum + " *some/folder/m.gguf\r\n"), list(sum)})
    CHECK_THAT(output_of("llm-inspect", {"verify", model, "--sha256", good}), contains("as expected"));

  // Of files with one name, the one whose path it is; a sum that no path tells apart is none.
  const std::string folder_name = folder.path().filename().string();
  for (const std::string& good :
       {zeros + "  other/m.gguf\n" + sum + "  ./" + folder_name + "/m.gguf\n",
        zeros + "  m.gguf\n" + sum + "  " + folder_name + "/m.gguf\n", sum + "  a/m.gguf\n" + sum + "  b/m.gguf\n"})
    CHECK_THAT(output_of("llm-inspect", {"verify", model, "--sha256", list(good)}), contains("as expected"));
  check_fails(2, "several lines for \"m.gguf\" with different sums", "llm-inspect",
              {"verify", model, "--sha256", list(sum + "  a/m.gguf\n" + zeros + "  b/m.gguf\n")});
  // What sha256sum itself writes of a name with a backslash and a line end, both ways.
  const std::filesystem::path strange = folder / "a\\n\n) = b.gguf";
  std::filesystem::copy_file(model, strange);
  for (const char* form : {"--text", "--tag"}) {
    const Outcome o = run({.program = "/usr/bin/sha256sum", .arguments = {form, model, strange.string()}});
    REQUIRE(o.code == 0);
    for (const std::string& file : {model, strange.string()})
      CHECK_THAT(output_of("llm-inspect", {"verify", file, "--sha256", list(o.out)}), contains("as expected"));
  }

  const Outcome wrong = run_program("llm-inspect", {"verify", model, "--sha256", zeros, "--json"});
  CHECK(wrong.code == 3);
  CHECK_THAT(wrong.err, contains("its SHA-256 sum is " + sum + ", expected " + zeros));
  const Json j = Json::parse(wrong.out);
  CHECK(j["ok"] == false);
  CHECK(j["problems"][0]["kind"] == "sha256");
  CHECK(j["files"][0]["expected"] == zeros);
  check_fails(2, "has no line for \"m.gguf\"", "llm-inspect", {"verify", model, "--sha256", list(sum + "  other\n")});
  check_fails(2, "64 digits", "llm-inspect", {"verify", model, "--sha256", list("nonsense\n")});
  check_fails(2, "holds no SHA-256 sum", "llm-inspect", {"verify", model, "--sha256", list("")});
  check_fails(2, "cannot read", "llm-inspect", {"verify", model, "--sha256", (folder / "none").string()});

  output_of("llm-inspect", {"split", model, (folder / "p").string(), "--max-tensors", "6"});
  const std::string first = (folder / "p-00001-of-00002.gguf").string();
  check_fails(2, "set of 2 files", "llm-inspect", {"verify", first, "--sha256", sum});
  const std::string both = sha256sum(first) + "  p-00001-of-00002.gguf\n" +
                           sha256sum(folder / "p-00002-of-00002.gguf") + "  p-00002-of-00002.gguf\n";
  CHECK_THAT(output_of("llm-inspect", {"verify", first, "--sha256", list(both)}), contains("as expected"));
}

TEST_CASE("verify finds scales and elements that are not numbers, and says where", "[files]") {
  struct Damage {
    DType type;
    std::string bytes;
    std::uint64_t block, field;  // where: a block, and a byte in it
    std::int64_t row, column;    // of the first element that it makes bad
  };
  // Rows of 256 elements in attn_q of a model of width 256.
  const Damage kDamages[] = {
      {DType::F32, kFloatNan, 300, 0, 1, 44},
      {DType::F64, kDoubleInfinity, 513, 0, 2, 1},
      {DType::F16, kHalfInfinity, 255, 0, 0, 255},
      {DType::BF16, std::string("\x80\x7f", 2), 256, 0, 1, 0},
      {DType::Q4_0, kHalfNan, 9, 0, 1, 32},
      {DType::Q4_1, kHalfInfinity, 8, 2, 1, 0},
      {DType::Q5_1, kHalfNan, 7, 2, 0, 224},
      {DType::Q8_0, kHalfInfinity, 17, 0, 2, 32},
      {DType::Q2_K, kHalfNan, 3, 82, 3, 0},
      {DType::Q3_K, kHalfNan, 2, 108, 2, 0},
      {DType::Q4_K, kHalfInfinity, 5, 2, 5, 0},
      {DType::Q5_K, kHalfNan, 5, 0, 5, 0},
      {DType::Q6_K, kHalfInfinity, 6, 208, 6, 0},
      {DType::IQ4_NL, kHalfNan, 8, 0, 1, 0},
      {DType::IQ2_XXS, kHalfNan, 4, 0, 4, 0},
      {DType::TQ1_0, kHalfInfinity, 4, 52, 4, 0},
      {DType::MXFP4, std::string("\xff", 1), 10, 0, 1, 64},
      {DType::NVFP4, std::string("\x7f", 1), 5, 2, 1, 96},
  };
  for (const Damage& d : kDamages) {
    INFO(name(d.type));
    TempDir folder;
    const std::string model =
        write_model(folder, tiny_model({.n_embd = 256, .d_ff = 256, .types = {{"blk.0.attn_q.weight", d.type}}}));
    CHECK(json_of("llm-inspect", {"verify", model, "--json"})["ok"] == true);
    const std::uint64_t block_bytes = info(d.type).block_bytes;
    const std::uint64_t at = offset_of(model, "blk.0.attn_q.weight") + d.block * block_bytes;
    patch(model, at + d.field, d.bytes);
    patch(model, at + block_bytes + d.field, d.bytes);  // and the block after it
    const Outcome o = run_program("llm-inspect", {"verify", model, "--json"});
    CHECK(o.code == 3);
    CHECK_THAT(o.err, contains("tensor \"blk.0.attn_q.weight\""));
    const Json j = Json::parse(o.out);
    CHECK(j["ok"] == false);
    REQUIRE(j["problems"].size() == 1);
    const Json& p = j["problems"][0];
    CHECK(p["kind"] == "values");
    CHECK(p["tensor"] == "blk.0.attn_q.weight");
    CHECK(p["blocks"] == 2);
    CHECK(p["first_block"] == d.block);
    CHECK(p["offset"] == at);
    CHECK(p["row"] == d.row);
    CHECK(p["column"] == d.column);
  }
}

TEST_CASE("verify says what is wrong with a structure", "[files]") {
  TempDir folder;
  const std::string model = write_model(folder, tiny_model());
  const std::string bytes = contents(model);
  const std::string cut = write_file(folder / "cut.gguf", bytes.substr(0, bytes.size() - 200));
  const Outcome o = run_program("llm-inspect", {"verify", cut, "--json"});
  CHECK(o.code == 3);
  const Json j = Json::parse(o.out);
  CHECK(j["ok"] == false);
  CHECK(j["problems"][0]["kind"] == "structure");
  CHECK_THAT(j["problems"][0]["problem"].get<std::string>(), contains("truncated"));
  check_fails(3, "truncated", "llm-inspect", {"verify", cut});
  const std::string told = run_program("llm-inspect", {"verify", cut}).err;
  CHECK_THAT(told, contains("; nothing behind it was looked at: fetch the file again"));
  CHECK_THAT(told, !contains("llm-inspect verify"));  // that is what was done
  check_fails(3, "no such file", "llm-inspect", {"verify", (folder / "none").string()});
}

TEST_CASE("verify looks at other byte orders too", "[files]") {
  TempDir folder;
  tiny_model({.type = DType::Q8_0}).write(folder / "be.gguf", {.version = 2, .big_endian = true});
  const std::string model = (folder / "be.gguf").string();
  CHECK(json_of("llm-inspect", {"verify", model, "--json"})["ok"] == true);
  patch(model, offset_of(model, "blk.0.attn_q.weight"), std::string("\x7e\x00", 2));
  const Outcome o = run_program("llm-inspect", {"verify", model, "--json"});
  CHECK(o.code == 3);
  CHECK(Json::parse(o.out)["problems"][0]["value"] == "NaN");
}
