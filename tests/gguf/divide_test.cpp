// A model written as a set of files: which tensors go where, what each file says, and that a set appears whole or not
// at all.
#include <numeric>
#include <stdexcept>

#include "gguf/file.h"
#include "gguf/split.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace llm::test {
namespace {

using Counts = std::vector<std::size_t>;

/// Tensors of these many bytes, multiples of 32.
ModelContent content(const std::vector<std::int64_t>& sizes) {
  ModelContent c;
  c.metadata = [](GgufWriter& w) { w.set("general.architecture", "test"); };
  for (const std::int64_t n : sizes) {
    const std::vector<std::byte> data(static_cast<std::size_t>(n), static_cast<std::byte>(c.tensors.size() + 1));
    c.tensors.push_back(
        {"t" + std::to_string(c.tensors.size()), {DType::I8, Shape{n}}, [data](const ByteSink& sink) { sink(data); }});
  }
  return c;
}

/// What a file of a set takes beside the data: by the format's definition, version 3. Records of tensors with names of
/// two bytes and one dimension; keys with their lengths, types and values.
std::uint64_t head_bytes(std::size_t tensors, bool first) {
  const auto key = [](std::string_view name, std::uint64_t value) { return 8 + name.size() + 4 + value; };
  std::uint64_t bytes = 4 + 4 + 8 + 8;
  bytes += key("split.no", 2) + key("split.count", 2) + key("split.tensors.count", 4);
  if (first) bytes += key("general.architecture", 8 + 4);
  bytes += tensors * (8 + 2 + 4 + 8 + 4 + 8);
  return (bytes + 31) / 32 * 32;
}

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  Warnings warnings;
  const MappedFile file = MappedFile::open(path);
  return {file.bytes().begin(), file.bytes().end()};
}

}  // namespace

TEST_CASE("tensors are divided by number", "[split]") {
  const ModelContent c = content(std::vector<std::int64_t>(7, 32));
  CHECK(divide(c, {.tensors = 3}) == Counts{3, 3, 1});
  CHECK(divide(c, {.tensors = 7}) == Counts{7});
  CHECK(divide(c, {.tensors = 1}) == Counts(7, 1));
  CHECK(divide(c, {.tensors = 3, .metadata_first = true}) == Counts{0, 3, 3, 1});
  CHECK(divide(c, {}) == Counts{7});
}

TEST_CASE("a limit of bytes holds for whole files", "[split]") {
  const ModelContent c = content({320, 320, 320, 320, 320, 320});
  const std::uint64_t two = head_bytes(2, true) + 640;
  CHECK(divide(c, {.bytes = two}) == Counts{2, 2, 2});
  CHECK(divide(c, {.bytes = two - 1}) == Counts{1, 2, 2, 1});  // two need less without the metadata
  CHECK(divide(c, {.bytes = head_bytes(2, false) + 639}) == Counts{1, 1, 1, 1, 1, 1});
  CHECK(divide(c, {.bytes = head_bytes(1, false) + 320}) == Counts{0, 1, 1, 1, 1, 1, 1});
  CHECK(divide(c, {.bytes = 1}) == Counts{0, 1, 1, 1, 1, 1, 1});
  const ModelContent uneven = content({32, 6400, 32, 32});
  CHECK(divide(uneven, {.bytes = head_bytes(3, true) + 96}) == Counts{1, 1, 2});
}

TEST_CASE("more files than the key can count are refused", "[split]") {
  ModelContent c;
  c.metadata = [](GgufWriter&) {};
  for (int i = 0; i < 65'536; ++i) c.tensors.push_back({"t" + std::to_string(i), {DType::I8, Shape{32}}, {}});
  CHECK_THROWS_WITH(divide(c, {.tensors = 1}), contains("65535"));
}

TEST_CASE("a set opens as the model that it was made from, and merges back to the same bytes", "[split]") {
  TempDir folder;
  const ModelContent c = content({320, 64, 96, 352, 32});
  const Counts counts{2, 0, 3};
  const auto paths = split_paths(folder / "m", counts.size());
  CHECK(paths[1] == folder / "m-00002-of-00003.gguf");
  CHECK(split_paths(folder / "m.gguf", counts.size()) == paths);
  write_all(file_set(c, counts), paths, {});
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Warnings warnings;
    const GgufFile file = GgufFile::open(paths[i], warnings);
    CHECK(warnings.empty());
    CHECK(file.tensors().all().size() == 5);
    CHECK(file.metadata().get<std::string_view>("general.architecture") == "test");
    CHECK(file.metadata().find("split.count")->type == GgufType::U16);
    CHECK(file.metadata().find("split.tensors.count")->type == GgufType::I32);

    ModelContent back = content_like(file);
    for (const TensorInfo& t : file.tensors().all())
      back.tensors.push_back({std::string(t.name), t.type, stored_data(file, t)});
    CHECK(single_file(back).bytes() == single_file(c).bytes());
  }
}

TEST_CASE("an alignment is kept", "[split]") {
  TempDir folder;
  ModelContent c = content({320, 64});
  c.alignment = 4096;
  write_all(file_set(c, Counts{1, 1}), split_paths(folder / "m", 2), {});
  Warnings warnings;
  const GgufFile file = GgufFile::open(folder / "m-00001-of-00002.gguf", warnings);
  CHECK(content_like(file).alignment == 4096);
  CHECK(file.tensors().all()[1].data_offset % 4096 == 0);
}

TEST_CASE("a set that cannot be finished leaves nothing, and what was there stays", "[split]") {
  TempDir folder;
  ModelContent c = content({320, 64});
  const auto paths = split_paths(folder / "m", 2);
  write_all(file_set(c, Counts{1, 1}), paths, {});
  const auto before = bytes_of(paths[0]);
  c.tensors[0].source = [](const ByteSink& sink) { sink(std::vector<std::byte>(320, std::byte{9})); };
  c.tensors[1].source = [](const ByteSink&) { throw std::runtime_error("no data"); };
  CHECK_THROWS_AS(write_all(file_set(c, Counts{1, 1}), paths, {}), std::runtime_error);
  CHECK(bytes_of(paths[0]) == before);
  CHECK(folder.entries() == 2);
}

TEST_CASE("progress counts to the size of all files", "[split]") {
  TempDir folder;
  const ModelContent c = content({320, 64, 96});
  const std::vector<GgufWriter> files = file_set(c, Counts{1, 2});
  std::uint64_t last = 0, total = 0;
  for (const GgufWriter& f : files) total += f.file_bytes();
  write_all(files, split_paths(folder / "m", 2), [&](std::uint64_t bytes) {
    CHECK(bytes >= last);
    last = bytes;
  });
  CHECK(last == total);
}

}  // namespace llm::test
