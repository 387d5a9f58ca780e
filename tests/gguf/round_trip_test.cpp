// Writer to reader: tensors of every type, version, byte order and alignment; copying metadata; writing to disk.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace llm::test {
namespace {

std::vector<std::byte> random_bytes(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

/// (first byte, width) of each number.
using Numbers = std::vector<std::pair<std::size_t, std::size_t>>;

Numbers with_run(Numbers numbers, std::size_t first, std::size_t width, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) numbers.push_back({first + width * i, width});
  return numbers;
}

/// Which bytes of a block form numbers: from the published structs, independent of the library.
Numbers numbers_in_block(DType t) {
  switch (t) {
    case DType::F32:
    case DType::I32:
      return {{0, 4}};
    case DType::F64:
    case DType::I64:
      return {{0, 8}};
    case DType::F16:
    case DType::BF16:
    case DType::I16:
    case DType::Q4_0:
    case DType::Q5_0:
    case DType::Q8_0:
    case DType::IQ2_S:
    case DType::IQ3_S:
    case DType::IQ4_NL:
    case DType::Q1_0:
    case DType::Q2_0:
      return {{0, 2}};
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q8_1:
    case DType::Q4_K:
    case DType::Q5_K:
    case DType::IQ4_XS:
      return {{0, 2}, {2, 2}};
    case DType::Q2_K:
      return {{80, 2}, {82, 2}};
    case DType::Q3_K:
      return {{108, 2}};
    case DType::Q6_K:
      return {{208, 2}};
    case DType::Q8_K:
      return with_run({{0, 4}}, 260, 2, 16);
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
      return with_run({{0, 2}}, 2, 2, 32);
    case DType::IQ3_XXS:
      return with_run({{0, 2}}, 66, 4, 8);
    case DType::IQ1_S:
      return with_run({{0, 2}}, 34, 2, 8);
    case DType::IQ1_M:
      return with_run({}, 48, 2, 4);
    case DType::TQ1_0:
      return {{52, 2}};
    case DType::TQ2_0:
      return {{64, 2}};
    case DType::I8:
    case DType::F8_E4M3:
    case DType::MXFP4:
    case DType::NVFP4:
      return {};
  }
  return {};
}

GgufFile open_quietly(const std::filesystem::path& path) {
  Warnings warnings;
  GgufFile file = GgufFile::open(path, warnings);
  CHECK(warnings.empty());
  return file;
}

/// The types that files have.
std::vector<DTypeInfo> file_types() {
  std::vector<DTypeInfo> types;
  std::ranges::copy_if(dtypes(), std::back_inserter(types), [](const DTypeInfo& t) { return t.gguf_id.has_value(); });
  return types;
}

TensorType type_for(DType t) { return {t, Shape{static_cast<std::int64_t>(info(t).block_elems) * 2, 3}}; }

}  // namespace

TEST_CASE("tensors of every type come back in every version, byte order and alignment") {
  const TempDir folder;
  for (const int version : {1, 2, 3}) {
    for (const bool big : {false, true}) {
      for (const std::uint32_t alignment : {8u, 32u, 4096u}) {
        INFO("version " << version << ", big endian " << big << ", alignment " << alignment);
        GgufWriter w({.version = version, .big_endian = big, .alignment = alignment});
        w.set("general.architecture", "test");
        for (const DTypeInfo& t : file_types()) {
          const TensorType type = type_for(t.dtype);
          w.add_tensor(t.name, type, random_bytes(type.bytes(), *t.gguf_id));
        }
        const auto path = folder.path() / "all.gguf";
        w.write(path);
        const GgufFile file = open_quietly(path);
        CHECK(file.version() == version);
        CHECK(file.foreign_byte_order() == big);
        REQUIRE(file.tensors().all().size() == file_types().size());
        for (const DTypeInfo& t : file_types()) {
          INFO(t.name);
          const TensorInfo* found = file.tensors().find(t.name);
          REQUIRE(found);
          CHECK(found->type == type_for(t.dtype));
          CHECK(found->data_offset % alignment == 0);
          const auto expected = random_bytes(found->type.bytes(), *t.gguf_id);
          std::vector<std::byte> got(expected.size());
          file.read(*found, got);
          CHECK(got == expected);
          if (!big) CHECK(std::memcmp(file.view(*found).data, expected.data(), expected.size()) == 0);
        }
      }
    }
  }
}

TEST_CASE("big-endian files hold each number of a block reversed, and nothing else") {
  for (const DTypeInfo& t : file_types()) {
    INFO(t.name);
    const TensorType type = type_for(t.dtype);
    const auto data = random_bytes(type.bytes(), 7);
    GgufWriter w({.big_endian = true});
    w.add_tensor("x", type, data);
    auto expected = data;
    for (std::size_t block = 0; block < data.size(); block += t.block_bytes)
      for (const auto& [first, width] : numbers_in_block(t.dtype))
        std::reverse(expected.begin() + static_cast<std::ptrdiff_t>(block + first),
                     expected.begin() + static_cast<std::ptrdiff_t>(block + first + width));
    const auto file = w.bytes();
    const std::size_t at = GgufReader("x", file).read().tensors[0].data_offset;
    CHECK(std::equal(expected.begin(), expected.end(), file.begin() + static_cast<std::ptrdiff_t>(at)));
  }
}

TEST_CASE("no file gets a tensor of a type that only caches have") {
  GgufWriter w;
  CHECK_THROWS_AS(w.add_tensor("x", {DType::F8_E4M3, Shape{4}}, std::vector<std::byte>(4)), Error);
}

TEST_CASE("the bytes of a small file are those of the format's description") {
  GgufWriter w;
  w.set("k", true);
  const float one = 1.0f;
  std::vector<std::byte> data(4);
  std::memcpy(data.data(), &one, 4);
  w.add_tensor("t", {DType::F32, Shape{1}}, data);
  const auto bytes = w.bytes();
  const std::string expected(
      "GGUF\3\0\0\0"                              // magic, version
      "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"          // one tensor, one key
      "\1\0\0\0\0\0\0\0k\7\0\0\0\1"               // key, bool, true
      "\1\0\0\0\0\0\0\0t\1\0\0\0"                 // name, one dimension
      "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"  // of 1; F32; offset 0
      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "\0\0\x80\x3f",
      100);
  REQUIRE(bytes.size() == 128);  // the data begins at 96 and is padded to 32
  CHECK(std::memcmp(bytes.data(), expected.data(), expected.size()) == 0);
  CHECK(GgufReader("x", bytes).read().tensors[0].data_offset == 96);
}

TEST_CASE("metadata copied between byte orders and versions keeps its types and values") {
  const std::vector<std::uint16_t> list{1, 2, 0xABCD};
  const std::vector<std::string> strings{"x", "", "yz"};
  const bool flags[] = {true, false};
  const auto fill = [&](GgufWriter& w) {
    w.set<std::int64_t>("i64", -2);
    w.set("f32", 0.1f);
    w.set("text", "t");
    w.set_array<std::uint16_t>("list", list);
    w.set_array("strings", strings);
    w.set_array<bool>("flags", flags);
  };
  for (const bool from_big : {false, true}) {
    for (const bool to_big : {false, true}) {
      GgufWriter from({.version = 1, .big_endian = from_big, .alignment = 64});
      fill(from);
      const auto bytes = from.bytes();
      const GgufContent content = GgufReader("x", bytes).read();
      GgufWriter to({.big_endian = to_big});
      for (const Metadata::Entry& e : content.metadata.entries()) to.copy(content.metadata, e.key);
      GgufWriter direct({.big_endian = to_big});
      fill(direct);
      CHECK(to.bytes() == direct.bytes());
    }
  }
}

TEST_CASE("the writer replaces a file whole or not at all") {
  const TempDir folder;
  const auto path = folder.path() / "m.gguf";
  GgufWriter first;
  first.set("n", 1);
  first.write(path);
  GgufWriter failing;
  failing.set("n", 2);
  failing.add_tensor("t", {DType::F32, Shape{4}}, [](const ByteSink&) { throw std::runtime_error("no data"); });
  CHECK_THROWS_AS(failing.write(path), std::runtime_error);
  CHECK(open_quietly(path).metadata().get<int>("n") == 1);
  CHECK(folder.entries() == 1);  // no temporary file is left
  GgufWriter second;
  second.set("n", 3);
  second.write(path);
  CHECK(open_quietly(path).metadata().get<int>("n") == 3);
  try {
    second.write(folder.path() / "no-such-folder" / "m.gguf");
    FAIL("was written");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Io);
  }
}

TEST_CASE("a tensor's data may come in pieces, in either byte order, and must be whole") {
  const std::vector<std::byte> data = random_bytes(34 * 12, 1);
  for (const bool big_endian : {false, true}) {
    GgufWriter at_once({.big_endian = big_endian}), in_pieces({.big_endian = big_endian});
    at_once.add_tensor("t", {DType::Q8_0, Shape{32, 12}}, data);
    in_pieces.add_tensor("t", {DType::Q8_0, Shape{32, 12}}, [&](const ByteSink& sink) {
      for (std::size_t at = 0; at < data.size(); at += 34 * 3) sink(std::span(data).subspan(at, 34 * 3));
    });
    CHECK(in_pieces.bytes() == at_once.bytes());
  }
  GgufWriter cut;
  cut.add_tensor("t", {DType::Q8_0, Shape{32, 12}}, [&](const ByteSink& sink) { sink(std::span(data).first(34)); });
  CHECK_THROWS_AS(cut.bytes(), Error);
}

TEST_CASE("a file's size is known before its data is") {
  for (const int version : {1, 3}) {
    for (const std::uint32_t alignment : {8u, 32u, 4096u}) {
      GgufWriter w({.version = version, .alignment = alignment});
      w.set("a.key", "text");
      w.add_tensor("one", {DType::Q4_K, Shape{512, 3}}, std::vector<std::byte>(864));
      w.add_tensor("three", {DType::F32, Shape{5, 2, 3}}, std::vector<std::byte>(120));
      CHECK(w.file_bytes() == w.bytes().size());
    }
  }
}

TEST_CASE("up to four dimensions keep their number") {
  GgufWriter w;
  w.add_tensor("a", {DType::I8, Shape{4, 3, 2, 5}}, std::vector<std::byte>(120));
  w.add_tensor("b", {DType::I8, Shape{4, 1}}, std::vector<std::byte>(4));
  const auto bytes = w.bytes();
  const GgufContent content = GgufReader("x", bytes).read();
  CHECK(content.tensors[0].type.shape == Shape{4, 3, 2, 5});
  CHECK(content.tensors[1].type.shape.n_dims() == 2);
}

TEST_CASE("a file's own errors name the tensor and its record") {
  const TempDir folder;
  const auto path = folder.path() / "m.gguf";
  GgufWriter w;
  w.add_tensor("t", {DType::F32, Shape{8}}, std::vector<std::byte>(32));
  w.write(path);
  const GgufFile file = open_quietly(path);
  try {
    file.fail(*file.tensors().find("t"), "is wrong");
  } catch (const Error& e) {
    CHECK(e.what() == path.string() + ": offset 0x18: tensor \"t\": is wrong");
  }
  try {
    file.fail_missing("u", "is missing");
  } catch (const Error& e) {
    CHECK(e.what() == path.string() + ": offset 0x18: tensor \"u\": is missing");
    CHECK(e.kind() == ErrorKind::Model);
  }
}

TEST_CASE("bytes after the last tensor are a warning, missing padding is not") {
  const TempDir folder;
  GgufWriter w;
  w.add_tensor("t", {DType::F32, Shape{3}}, std::vector<std::byte>(12));
  auto bytes = w.bytes();
  Warnings warnings;
  auto longer = bytes;
  longer.resize(bytes.size() + 5, std::byte{1});
  GgufFile::open(folder.write("long.gguf", longer), warnings);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].code == "trailing-data");
  CHECK(warnings[0].text.find("5 bytes") != std::string::npos);
  warnings.clear();
  bytes.resize(bytes.size() - 20);  // 12 bytes of data were padded to 32
  GgufFile::open(folder.write("unpadded.gguf", bytes), warnings);
  CHECK(warnings.empty());
}

}  // namespace llm::test
