// Values that count instead of a file's: as if the file had been written with them.
#include <limits>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/fingerprint.h"
#include "gguf/writer.h"
#include "support/catch.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace llm::test {
namespace {

KeyOverride override_of(const std::string& key, decltype(KeyOverride::value) value) {
  return {.key = key, .value = std::move(value), .origin = "--said"};
}

GgufFile opened(const TempDir& folder, GgufWriterOptions form = {}) {
  const std::vector<std::uint32_t> list{1, 2};
  GgufWriter w(form);
  w.set<std::uint8_t>("u8", 200);
  w.set<std::int16_t>("i16", -5);
  w.set<std::uint32_t>("u32", 7);
  w.set<std::uint64_t>("u64", 8);
  w.set("f32", 0.5f);
  w.set("f64", 1e300);
  w.set("flag", false);
  w.set("text", "old");
  w.set_array<std::uint32_t>("list", list);
  w.add_tensor("t", {DType::F32, {4}}, std::vector<std::byte>(16));
  const auto path = folder / "m.gguf";
  w.write(path);
  Warnings warnings;
  return GgufFile::open(path, warnings);
}

Error error_of(GgufFile& file, const KeyOverride& o) {
  try {
    file.override_keys({&o, 1});
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error");
  throw std::logic_error("unreachable");
}

}  // namespace

TEST_CASE("a value that is said counts, in the type and byte order that the file has it in") {
  const TempDir folder;
  for (const int version : {1, 2, 3}) {
    for (const bool big_endian : {false, true}) {
      INFO("version " << version << ", big endian " << big_endian);
      GgufFile file = opened(folder, {.version = version, .big_endian = big_endian});
      const std::vector<KeyOverride> all{override_of("u8", std::int64_t{255}),
                                         override_of("i16", std::int64_t{-32768}),
                                         override_of("u32", std::int64_t{70000}),
                                         override_of("u64", std::int64_t{1} << 40),
                                         override_of("f32", 0.1),
                                         override_of("f64", 0.1),
                                         override_of("flag", true),
                                         override_of("text", std::string("new, \"text\"")),
                                         override_of("a new", std::int64_t{-9}),
                                         override_of("b new", 2.5),
                                         override_of("c new", true),
                                         override_of("0 new", std::string("first"))};
      file.override_keys(all);
      const Metadata& md = file.metadata();
      CHECK(md.get<int>("u8") == 255);
      CHECK(md.get<int>("i16") == -32768);
      CHECK(md.get<std::uint32_t>("u32") == 70000);
      CHECK(md.get<std::int64_t>("u64") == std::int64_t{1} << 40);
      CHECK(md.get<float>("f32") == 0.1f);
      CHECK(md.get<double>("f32") == double{0.1f});  // as a file would hold it
      CHECK(md.get<double>("f64") == 0.1);
      CHECK(md.get<bool>("flag"));
      CHECK(md.get<std::string_view>("text") == "new, \"text\"");
      CHECK(md.get<int>("a new") == -9);
      CHECK(md.get<float>("b new") == 2.5f);
      CHECK(md.get<bool>("c new"));
      CHECK(md.get<std::string_view>("0 new") == "first");
      CHECK(md.array<std::uint32_t>("list") == std::vector<std::uint32_t>{1, 2});
      CHECK(md.find("u8")->type == GgufType::U8);
      CHECK(md.overrides().size() == all.size());
    }
  }
}

TEST_CASE("of a key that is said twice the last value counts, also where the file lacks it") {
  const TempDir folder;
  GgufFile file = opened(folder);
  for (const std::int64_t value : {1, 2, 3}) {
    const std::vector<KeyOverride> both{override_of("new", value), override_of("u32", value)};
    file.override_keys(both);
  }
  GgufFile moved = std::move(file);  // views stay valid
  CHECK(moved.metadata().get<int>("new") == 3);
  CHECK(moved.metadata().get<int>("u32") == 3);
  CHECK(moved.metadata().overrides().size() == 2);
}

TEST_CASE("a value of another kind, or one that does not fit, is the user's error") {
  const TempDir folder;
  GgufFile file = opened(folder);
  struct Case {
    KeyOverride said;
    std::string part;
  };
  for (const Case& c : std::initializer_list<Case>{
           {override_of("u8", std::int64_t{256}), "value 256 does not fit u8"},
           {override_of("u32", std::int64_t{-1}), "value -1 does not fit u32"},
           {override_of("u32", 1.0), "has type u32 in the file, which int:... replaces, not float:..."},
           {override_of("f32", std::int64_t{1}), "which float:... replaces, not int:..."},
           {override_of("flag", std::int64_t{1}), "which bool:... replaces"},
           {override_of("text", true), "which str:... replaces"},
           {override_of("list", std::int64_t{1}), "array of u32"},
           {override_of("general.alignment", std::int64_t{64}), "says how the file is made"},
           {override_of("split.count", std::int64_t{2}), "says how the file is made"}}) {
    const Error e = error_of(file, c.said);
    INFO(e.what());
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find("--said: key \"" + c.said.key + "\"") != std::string::npos);
    CHECK(std::string(e.what()).find(c.part) != std::string::npos);
  }
  CHECK(file.metadata().overrides().empty());
  // Whoever reads the value refuses it in the user's name, not the file's.
  const KeyOverride small = override_of("u32", std::int64_t{5});
  file.override_keys({&small, 1});
  try {
    (void)file.metadata().get<std::string_view>("u32");
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Usage);
    CHECK(std::string(e.what()).find("(the value is that of --said)") != std::string::npos);
  }
}

TEST_CASE("keys that nobody looked up are known, and another model is told from the file's own") {
  const TempDir folder;
  GgufFile file = opened(folder);
  const std::string own = fingerprint(file);
  const std::vector<KeyOverride> two{override_of("u32", std::int64_t{7}), override_of("odd", 0.25)};
  file.override_keys(two);
  CHECK(fingerprint(file) != own);
  CHECK(file.metadata().unread_overrides().size() == 2);
  (void)file.metadata().get<int>("u32");
  REQUIRE(file.metadata().unread_overrides().size() == 1);
  CHECK(to_string(file.metadata().unread_overrides().front()) == "odd=float:0.25");
  CHECK_FALSE(file.metadata().has("other"));
  CHECK(file.metadata().has("odd"));
  CHECK(file.metadata().unread_overrides().empty());
}

}  // namespace llm::test
