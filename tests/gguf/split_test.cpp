// Models split over several files: found from any of them, and every way in which a set can be wrong.
#include "gguf/file.h"
#include "gguf/writer.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace llm::test {
namespace {

struct Shard {
  std::uint16_t no, count;
  std::int32_t total = 3;
  bool big_endian = false;
  int version = 3;
  std::string architecture = {};  ///< the first split has it, the others need not
  std::vector<std::string> tensors = {};
};

std::vector<std::byte> build(const Shard& s) {
  GgufWriter w({.version = s.version, .big_endian = s.big_endian});
  if (!s.architecture.empty()) w.set("general.architecture", s.architecture.c_str());
  w.set<std::uint16_t>("split.no", s.no);
  w.set<std::uint16_t>("split.count", s.count);
  w.set<std::int32_t>("split.tensors.count", s.total);
  for (const std::string& name : s.tensors)
    w.add_tensor(name, {DType::I8, Shape{4}}, std::vector<std::byte>(4, static_cast<std::byte>(name[0])));
  return w.bytes();
}

const Shard kFirst{.no = 0, .count = 3, .architecture = "test", .tensors = {"a"}};
const Shard kSecond{.no = 1, .count = 3, .tensors = {"b", "c"}};
const Shard kThird{.no = 2, .count = 3};

std::string file_name(int no) { return "model-0000" + std::to_string(no) + "-of-00003.gguf"; }

class Set {
 public:
  Set() {
    put(kFirst);
    put(kSecond);
    put(kThird);
  }
  void put(const Shard& s) { folder_.write(file_name(s.no + 1), build(s)); }
  void put(const Shard& s, int named) { folder_.write(file_name(named), build(s)); }
  std::filesystem::path path(int no) const { return folder_.path() / file_name(no); }
  const TempDir& folder() const { return folder_; }

  /// The error of opening by one of the files; it names `also` beside the file that it is about.
  std::string error(int given = 1) const {
    Warnings warnings;
    try {
      GgufFile::open(path(given), warnings);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Model);
      return e.what();
    }
    return "no error";
  }

 private:
  TempDir folder_;
};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a split model opens by any of its files") {
  const Set set;
  for (const int given : {1, 2, 3}) {
    INFO(given);
    Warnings warnings;
    const GgufFile file = GgufFile::open(set.path(given), warnings);
    CHECK(warnings.empty());
    CHECK(file.shards().size() == 3);
    CHECK(file.metadata().get<std::string_view>("general.architecture") == "test");
    CHECK(file.metadata().file() == set.path(1).string());
    REQUIRE(file.tensors().all().size() == 3);
    for (const char* name : {"a", "b", "c"}) {
      const TensorInfo* t = file.tensors().find(name);
      REQUIRE(t);
      CHECK(t->shard == (name[0] == 'a' ? 0u : 1u));
      CHECK(static_cast<char>(*file.view(*t).data) == name[0]);
    }
    std::uint64_t bytes = 0;
    for (const int no : {1, 2, 3}) bytes += std::filesystem::file_size(set.path(no));
    CHECK(file.file_bytes() == bytes);
    try {
      file.fail(*file.tensors().find("c"), "is wrong");
    } catch (const Error& e) {
      CHECK(e.parts().file == set.path(2).string());
    }
  }
}

TEST_CASE("a split model of the other byte order") {
  Set set;
  for (Shard s : {kFirst, kSecond, kThird}) {
    s.big_endian = true;
    set.put(s);
  }
  Warnings warnings;
  const GgufFile file = GgufFile::open(set.path(2), warnings);
  CHECK(file.foreign_byte_order());
  CHECK(file.tensors().all().size() == 3);
}

TEST_CASE("a single file may say that it is split 1 of 1") {
  const TempDir folder;
  Warnings warnings;
  const auto path = folder.write("any-name.gguf", build({.no = 0, .count = 1, .total = 1, .tensors = {"a"}}));
  CHECK(GgufFile::open(path, warnings).shards().size() == 1);
}

TEST_CASE("a missing split is named") {
  const Set set;
  std::filesystem::remove(set.path(2));
  for (const int given : {1, 3}) {
    const std::string e = set.error(given);
    INFO(e);
    CHECK(holds(e, set.path(given).string() + ": offset 0x"));
    CHECK(holds(e, "split 2 of 3 is missing"));
    CHECK(holds(e, set.path(2).string()));
  }
}

TEST_CASE("a split under another name cannot find the others") {
  const Set set;
  std::filesystem::rename(set.path(1), set.folder().path() / "renamed.gguf");
  Warnings warnings;
  try {
    GgufFile::open(set.folder().path() / "renamed.gguf", warnings);
    FAIL("was read");
  } catch (const Error& e) {
    CHECK(holds(e.what(), "key \"split.no\""));
    CHECK(holds(e.what(), "-00001-of-00003.gguf"));
  }
}

TEST_CASE("splits that do not belong together name both files") {
  struct Case {
    const char* what;
    Shard shard;
    int named;
    const char* word;
  };
  const std::vector<Case> cases{
      {"the same tensor twice", {.no = 1, .count = 3, .tensors = {"b", "a"}}, 2, "duplicate tensor"},
      {"another number", {.no = 0, .count = 3, .architecture = "test", .tensors = {"b", "c"}}, 2, "split 1 of 3"},
      {"another count", {.no = 1, .count = 4, .tensors = {"b", "c"}}, 2, "split 2 of 4"},
      {"another model by its tensor count", {.no = 1, .count = 3, .total = 4, .tensors = {"b", "c"}}, 2, "differs"},
      {"another architecture", {.no = 1, .count = 3, .architecture = "other", .tensors = {"b", "c"}}, 2, "differs"},
      {"another byte order", {.no = 1, .count = 3, .big_endian = true, .tensors = {"b", "c"}}, 2, "byte order"},
      {"another version", {.no = 1, .count = 3, .version = 2, .tensors = {"b", "c"}}, 2, "version"},
  };
  for (const Case& c : cases) {
    Set set;
    set.put(c.shard, c.named);
    const std::string e = set.error();
    INFO(c.what << ": " << e);
    CHECK(holds(e, c.word));
    CHECK(holds(e, set.path(2).string() + ": offset 0x"));
    CHECK(holds(e, set.path(1).string()));
  }
}

TEST_CASE("tensors that are missing from the set are noticed") {
  Set set;
  set.put({.no = 1, .count = 3, .tensors = {"b"}});
  const std::string e = set.error();
  INFO(e);
  CHECK(holds(e, "key \"split.tensors.count\": value 3"));
  CHECK(holds(e, "hold 2 tensors"));
}

TEST_CASE("splits joined into one file are recognised") {
  const TempDir folder;
  auto joined = build(kFirst);
  const auto second = build(kSecond);
  const std::size_t at = joined.size();
  joined.insert(joined.end(), second.begin(), second.end());
  Warnings warnings;
  try {
    GgufFile::open(folder.write("joined.gguf", joined), warnings);
    FAIL("was read");
  } catch (const Error& e) {
    CHECK(holds(e.what(), "joined into one"));
    CHECK(e.parts().offset == at);
  }
}

TEST_CASE("split numbers have their types") {
  const TempDir folder;
  const auto error = [&](auto fill) {
    GgufWriter w;
    fill(w);
    Warnings warnings;
    try {
      GgufFile::open(folder.write("m-00001-of-00002.gguf", w.bytes()), warnings);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(holds(error([](GgufWriter& w) {
                w.set<std::uint16_t>("split.no", 0);
                w.set<std::uint32_t>("split.count", 2);
              }),
              "key \"split.count\": has type u32, u16 is required"));
  CHECK(holds(error([](GgufWriter& w) {
                w.set<std::uint32_t>("split.no", 0);
                w.set<std::uint16_t>("split.count", 2);
              }),
              "key \"split.no\": has type u32, u16 is required"));
  CHECK(holds(error([](GgufWriter& w) { w.set<std::uint16_t>("split.count", 2); }), "key \"split.no\": is missing"));
  CHECK(holds(error([](GgufWriter& w) {
                w.set<std::uint16_t>("split.no", 2);
                w.set<std::uint16_t>("split.count", 2);
              }),
              "key \"split.no\": "));
  CHECK(holds(error([](GgufWriter& w) {
                w.set<std::uint16_t>("split.no", 0);
                w.set<std::uint16_t>("split.count", 65535);
              }),
              "-00001-of-65535.gguf"));
}

}  // namespace llm::test
