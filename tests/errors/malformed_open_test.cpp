// Every malformed file through the GGUF reader alone: what the container decides ends as a typed error or is read.
#include <set>

#include "base/error.h"
#include "gguf/reader.h"
#include "malformed.h"
#include "support/catch.h"

namespace llm::test {
namespace {

/// What opening gives: nothing if the container is fine, else the error.
std::optional<Error> open_error(const Bytes& file) {
  try {
    GgufReader("x.gguf", file).read();
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  }
}

std::uint64_t offset_named_in(const std::string& line) {
  const auto at = line.find(": offset 0x");
  REQUIRE(at != std::string::npos);
  return std::stoull(line.substr(at + 11), nullptr, 16);
}

}  // namespace

TEST_CASE("the table of malformed files is complete") {
  const auto files = malformed_files();
  CHECK(files.size() == 185);
  std::set<std::string> ids;
  for (const MalformedFile& f : files) ids.insert(f.id);
  CHECK(ids.size() == 185);
  // Files are different from each other: no recipe lost its change.
  std::set<std::string> contents;
  for (const MalformedFile& f : files) {
    const Bytes bytes = f.build();
    contents.emplace(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  CHECK(contents.size() == 185);
}

TEST_CASE("base files have the sizes that their tensors give") {
  // 105,600 bytes of F32 weights behind the aligned directory.
  RawLayout layout;
  const Bytes file = tiny_llama().build(&layout);
  CHECK(file.size() - layout.data_at == 105'600);
  const GgufContent content = GgufReader("x.gguf", file).read();
  CHECK(content.tensors.size() == 12);
  CHECK(content.metadata.array<std::string_view>("tokenizer.ggml.tokens").size() == 267);
  CHECK(content.data_end == file.size());
}

TEST_CASE("malformed containers are refused with file, offset, subject and problem") {
  for (const MalformedFile& f : malformed_files()) {
    if (f.layer != Layer::Gguf || f.outcome != Outcome::Refused) continue;
    INFO(f.id << ": " << f.construction);
    const Bytes bytes = f.build();
    const bool by_file_name = f.id[0] == 'H';  // the reader of one file does not look beside it
    const auto error = open_error(bytes);
    if (by_file_name) {
      CHECK_FALSE(error);
      continue;
    }
    REQUIRE(error);
    INFO(error->what());
    CHECK(error->kind() == ErrorKind::Model);
    CHECK(error->parts().file == "x.gguf");
    REQUIRE(error->parts().offset);
    CHECK(*error->parts().offset <= bytes.size());
    CHECK_FALSE(error->parts().subject.empty());
    CHECK_FALSE(error->parts().problem.empty());
    const std::string line = error->what();
    CHECK(line.find(f.must_contain) != std::string::npos);
    CHECK(offset_named_in(line) == *error->parts().offset);
    for (const char c : line) CHECK_FALSE((static_cast<unsigned char>(c) < 0x20 || c == 0x7f));
  }
}

TEST_CASE("containers that are sound are read, whatever their model is") {
  for (const MalformedFile& f : malformed_files()) {
    if (f.layer == Layer::Gguf) continue;
    INFO(f.id << ": " << f.construction);
    const auto error = open_error(f.build());
    if (error) FAIL(error->what());
  }
}

TEST_CASE("large metadata is read or refused") {
  for (const MalformedFile& f : metadata_files()) {
    if (f.id == "B33") {  // above the limit of 65,536 keys
      const auto error = open_error(f.build());
      REQUIRE(error);
      CHECK(error->parts().subject == "key count");
    }
    if (f.id == "B34") {
      const Bytes bytes = f.build();
      CHECK(GgufReader("x.gguf", bytes).read().metadata.array<std::string_view>("test.array").size() == 1'000'000);
    }
  }
}

TEST_CASE("errors point at the field") {
  const auto offset_of = [](std::string_view id) {
    for (const MalformedFile& f : malformed_files())
      if (f.id == id) return open_error(f.build()).value().parts().offset.value();
    return ~std::uint64_t{0};
  };
  RawLayout layout;
  const RawGguf g = tiny_llama();
  const Bytes base = g.build(&layout);
  CHECK(offset_of("A04") == 0);
  CHECK(offset_of("A08") == 4);
  CHECK(offset_of("A11") == 8);
  CHECK(offset_of("A13") == 0x10);
  const std::uint64_t name_at = layout.entry_at[g.entry_index("general.name")];
  CHECK(offset_of("B01") == name_at);
  CHECK(offset_of("B11") == name_at + 8 + 12 + 4);
  // One more entry after the last: its key, its type, its value.
  const std::uint64_t added = layout.tensor_at[0];
  CHECK(offset_of("B07") == added);
  CHECK(offset_of("B09") == added + 8 + 6);
  CHECK(offset_of("B14") == added + 8 + 11 + 4);
  CHECK(offset_of("B17") == added + 8 + 10 + 4 + 4);
  CHECK(offset_of("B22") == added + 8 + 17 + 4);
  const std::uint64_t norm_at = layout.tensor_at[1];
  CHECK(offset_of("C02") == norm_at);
  CHECK(offset_of("C05") == norm_at + 8 + 18);
  CHECK(offset_of("C10") == norm_at + 8 + 18 + 4);
  CHECK(offset_of("C15") == norm_at + 8 + 18 + 4 + 8);
  CHECK(offset_of("C21") == norm_at + 8 + 18 + 4 + 8 + 4);
}

}  // namespace llm::test
