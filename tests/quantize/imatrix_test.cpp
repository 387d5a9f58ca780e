// Importance matrices: what is written and read, both forms of llama.cpp's files, and what is wrong with others.
#include "quantize/imatrix.h"

#include <cmath>
#include <cstring>

#include "gguf/file.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace llm::test {
namespace {

ImportanceMatrix read(const std::filesystem::path& path) {
  Warnings warnings;
  return ImportanceMatrix::read(path, warnings);
}

std::string error_of(const std::filesystem::path& path) {
  try {
    read(path);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Model);
    return e.what();
  }
  return "no error";
}

/// A file as llama.cpp's imatrix tool lays it out, by the writer's plain calls.
GgufWriter gguf_file(const std::vector<float>& sums, const std::vector<float>& counts, std::size_t matrices = 0) {
  if (matrices == 0) matrices = counts.size();
  GgufWriter w;
  w.set("general.type", "imatrix");
  const std::vector<std::string> texts{"calibration.txt"};
  w.set_array("imatrix.datasets", std::span<const std::string>(texts));
  w.set<std::uint32_t>("imatrix.chunk_count", 3);
  w.set<std::uint32_t>("imatrix.chunk_size", 512);
  const auto add = [&w](const std::string& name, const std::vector<float>& values, std::size_t rows) {
    std::vector<std::byte> data(values.size() * 4);
    std::memcpy(data.data(), values.data(), data.size());
    w.add_tensor(name,
                 {DType::F32, Shape{static_cast<std::int64_t>(values.size() / rows), static_cast<std::int64_t>(rows)}},
                 data);
  };
  add("blk.0.ffn_up_exps.weight.in_sum2", sums, matrices);
  add("blk.0.ffn_up_exps.weight.counts", counts, counts.size());
  return w;
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The older form with one entry of four values.
std::string old_file(std::int32_t calls, const std::vector<float>& values) {
  std::string bytes;
  append(bytes, std::int32_t{1});
  const std::string name = "blk.0.attn_q.weight";
  append(bytes, static_cast<std::int32_t>(name.size()));
  bytes += name;
  append(bytes, calls);
  append(bytes, static_cast<std::int32_t>(values.size()));
  for (const float v : values) append(bytes, v);
  append(bytes, std::int32_t{7});
  append(bytes, std::int32_t{4});
  return bytes + "text";
}

}  // namespace

TEST_CASE("sums divided by counts, expert by expert; an expert that nothing reached counts the same everywhere",
          "[imatrix]") {
  TempDir folder;
  const auto path = folder / "m.gguf";
  gguf_file({2, 4, 6, 8, 0, 0, 3, 1}, {2, 4, 0, 1}).write(path);
  const ImportanceMatrix m = read(path);
  CHECK(m.chunk_count == 3);
  CHECK(m.chunk_size == 512);
  CHECK(m.datasets == std::vector<std::string>{"calibration.txt"});
  CHECK(m.importance("blk.0.ffn_up_exps.weight", 2, 4) == std::vector<float>{1, 2, 1.5f, 2, 1, 1, 3, 1});
  CHECK(m.importance("blk.0.attn_q.weight", 2, 1).empty());
  for (const auto& [width, matrices] : {std::pair{4, 2}, {8, 1}, {2, 3}})
    CHECK_THROWS_WITH(m.importance("blk.0.ffn_up_exps.weight", width, matrices), contains("8 sums for 4 matrices"));
}

TEST_CASE("what is written is read again, and sorted by name", "[imatrix]") {
  TempDir folder;
  ImportanceMatrix m;
  m.entries = {{"z", {1, 2, 3, 4}, {5, 6}}, {"a", {0.5f, 0}, {1000000}}};
  m.datasets = {"one", "two"};
  m.chunk_count = 9;
  m.chunk_size = 256;
  m.file().write(folder / "m.gguf");
  const ImportanceMatrix again = read(folder / "m.gguf");
  REQUIRE(again.entries.size() == 2);
  CHECK(again.entries[0].tensor == "a");
  CHECK(again.entries[0].counts == std::vector<std::int64_t>{1000000});
  CHECK(again.entries[1].sums == std::vector<float>{1, 2, 3, 4});
  CHECK(again.datasets == m.datasets);
  CHECK(again.chunk_count == 9);
  CHECK(again.chunk_size == 256);
  Warnings warnings;
  const GgufFile file = GgufFile::open(folder / "m.gguf", warnings);
  CHECK(file.metadata().get<std::string_view>("general.type") == "imatrix");
  CHECK(file.tensors().find("z.in_sum2")->type.shape == Shape{2, 2});
  CHECK(file.tensors().find("z.counts")->type.shape == Shape{1, 2});
}

TEST_CASE("the older form is read: means times calls", "[imatrix]") {
  TempDir folder;
  const auto path = folder.write("m.dat", old_file(4, {4, 8, 12, 2}));
  const ImportanceMatrix m = read(path);
  CHECK(m.importance("blk.0.attn_q.weight", 4, 1) == std::vector<float>{1, 2, 3, 0.5f});
  CHECK(m.importance("blk.0.attn_q.weight", 2, 2) == std::vector<float>{1, 2, 3, 0.5f});  // experts, all in one entry
  CHECK(m.chunk_count == 7);
  CHECK(m.datasets == std::vector<std::string>{"text"});
  // Without the two fields at its end, as the oldest files are.
  const std::string whole = old_file(4, {4, 8, 12, 2});
  CHECK(read(folder.write("oldest.dat", whole.substr(0, whole.size() - 12))).chunk_count == 0);
}

TEST_CASE("files that are no importance matrix, or a damaged one", "[imatrix]") {
  TempDir folder;
  const std::string whole = old_file(4, {4, 8, 12, 2});
  for (std::size_t n = 0; n < whole.size(); ++n) {
    if (n == whole.size() - 12 || n == whole.size() - 8) continue;  // whole files of the oldest forms
    INFO(n);
    CHECK(error_of(folder.write("cut.dat", whole.substr(0, n))) != "no error");
  }
  CHECK_THAT(error_of(folder.write("text", "just a text file, not a matrix")), contains("neither a GGUF file nor"));
  CHECK_THAT(error_of(folder.write("calls", old_file(0, {1}))), contains("no calls"));
  CHECK_THAT(error_of(folder.write("none", old_file(1, {}))), contains("no values"));
  CHECK_THAT(error_of(folder.write("nan", old_file(1, {NAN}))), contains("finite and not negative"));
  CHECK_THAT(error_of(folder.write("minus", old_file(1, {-1}))), contains("finite and not negative"));

  GgufWriter model;
  model.set("general.architecture", "llama");
  model.write(folder / "model.gguf");
  CHECK_THAT(error_of(folder / "model.gguf"), contains("is not an importance matrix"));
  gguf_file({1, 2, 3}, {1, 1}, 1).write(folder / "uneven.gguf");
  CHECK_THAT(error_of(folder / "uneven.gguf"), contains("counts"));
  gguf_file({1, 2}, {-1, 1}).write(folder / "count.gguf");
  CHECK_THAT(error_of(folder / "count.gguf"), contains("no count"));
  gguf_file({1, INFINITY}, {1}).write(folder / "inf.gguf");
  CHECK_THAT(error_of(folder / "inf.gguf"), contains("blk.0.ffn_up_exps.weight"));
  GgufWriter half;
  half.set<std::uint32_t>("imatrix.chunk_count", 1);
  half.add_tensor("x.in_sum2", {DType::F32, Shape{2}}, std::vector<std::byte>(8));
  half.write(folder / "half.gguf");
  CHECK_THAT(error_of(folder / "half.gguf"), contains("has no .counts beside it"));
}

}  // namespace llm::test
