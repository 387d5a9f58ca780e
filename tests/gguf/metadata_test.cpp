// Typed access to metadata: what converts, what is refused, and how errors name it.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "gguf/file.h"
#include "gguf/reader.h"
#include "gguf/writer.h"
#include "support/catch.h"
#include "support/temp_dir.h"

namespace llm::test {
namespace {

/// A file in memory and what the reader makes of it.
struct Read {
  std::vector<std::byte> bytes;
  GgufContent content;
  const Metadata& md() const { return content.metadata; }
};

template <class Fill>
Read written(Fill fill, GgufWriterOptions options = {}) {
  GgufWriter w(options);
  fill(w);
  Read r{w.bytes(), {}};
  r.content = GgufReader("m.gguf", r.bytes).read();
  return r;
}

template <class Ask>
std::string error_of(Ask ask) {
  try {
    ask();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Model);
    CHECK(e.parts().offset);
    return e.what();
  }
  return "no error";
}

const std::vector<GgufWriterOptions> kEveryForm = [] {
  std::vector<GgufWriterOptions> out;
  for (const int version : {1, 2, 3})
    for (const bool big : {false, true}) out.push_back({.version = version, .big_endian = big});
  return out;
}();

}  // namespace

TEST_CASE("every scalar type comes back, in every version and byte order") {
  for (const GgufWriterOptions& form : kEveryForm) {
    INFO("version " << form.version << ", big endian " << form.big_endian);
    const Read r = written(
        [](GgufWriter& w) {
          w.set<std::uint8_t>("u8", 200);
          w.set<std::int8_t>("i8", -100);
          w.set<std::uint16_t>("u16", 60000);
          w.set<std::int16_t>("i16", -30000);
          w.set<std::uint32_t>("u32", 4'000'000'000u);
          w.set<std::int32_t>("i32", -2'000'000'000);
          w.set<std::uint64_t>("u64", 0xFEDCBA9876543210u);
          w.set<std::int64_t>("i64", std::numeric_limits<std::int64_t>::min());
          w.set("f32", 1.5e-20f);
          w.set("f64", 1.0e300);
          w.set("true", true);
          w.set("false", false);
          w.set("text", "gr\xc3\xbc\xc3\x9f dich");
          w.set("nothing", "");
        },
        form);
    const Metadata& md = r.md();
    CHECK(md.get<std::uint8_t>("u8") == 200);
    CHECK(md.get<std::int8_t>("i8") == -100);
    CHECK(md.get<std::uint16_t>("u16") == 60000);
    CHECK(md.get<std::int16_t>("i16") == -30000);
    CHECK(md.get<std::uint32_t>("u32") == 4'000'000'000u);
    CHECK(md.get<std::int32_t>("i32") == -2'000'000'000);
    CHECK(md.get<std::uint64_t>("u64") == 0xFEDCBA9876543210u);
    CHECK(md.get<std::int64_t>("i64") == std::numeric_limits<std::int64_t>::min());
    CHECK(md.get<float>("f32") == 1.5e-20f);
    CHECK(md.get<double>("f64") == 1.0e300);
    CHECK(md.get<bool>("true"));
    CHECK_FALSE(md.get<bool>("false"));
    CHECK(md.get<std::string_view>("text") == "gr\xc3\xbc\xc3\x9f dich");
    CHECK(md.get<std::string_view>("nothing").empty());
    CHECK(md.entries().size() == 14);
    CHECK(md.entries()[0].key == "u8");  // the file's order
    CHECK(md.entries()[13].key == "nothing");
  }
}

TEST_CASE("every array type comes back, in every version and byte order") {
  for (const GgufWriterOptions& form : kEveryForm) {
    INFO("version " << form.version << ", big endian " << form.big_endian);
    const std::vector<std::uint8_t> u8{0, 255};
    const std::vector<std::int16_t> i16{-32768, 5};
    const std::vector<std::uint32_t> u32{1, 0xFFFFFFFFu};
    const std::vector<std::int32_t> i32{-1, 0x12345678};
    const std::vector<std::int64_t> i64{-1, std::int64_t{1} << 60};
    const std::vector<float> f32{1.25f, -0.0f};
    const std::vector<double> f64{1e200};
    const std::vector<std::string> strings{"", "a", std::string("\xff\0\xfe", 3)};
    const bool flags[] = {true, false, true};
    const Read r = written(
        [&](GgufWriter& w) {
          w.set_array<std::uint8_t>("u8", u8);
          w.set_array<std::int16_t>("i16", i16);
          w.set_array<std::uint32_t>("u32", u32);
          w.set_array<std::int32_t>("i32", i32);
          w.set_array<std::int64_t>("i64", i64);
          w.set_array<float>("f32", f32);
          w.set_array<double>("f64", f64);
          w.set_array<bool>("flags", flags);
          w.set_array("strings", strings);
          w.set_array<std::int32_t>("none", {});
        },
        form);
    const Metadata& md = r.md();
    CHECK(md.array<std::uint8_t>("u8") == u8);
    CHECK(md.array<std::int32_t>("u8") == std::vector<std::int32_t>{0, 255});
    CHECK(md.array<std::int64_t>("i16") == std::vector<std::int64_t>{-32768, 5});
    CHECK(md.array<std::uint32_t>("u32") == u32);
    CHECK(md.array<std::int64_t>("u32") == std::vector<std::int64_t>{1, 0xFFFFFFFF});
    CHECK(md.array<std::int32_t>("i32") == i32);
    CHECK(md.array<std::int64_t>("i64") == i64);
    CHECK(md.array<float>("f32") == f32);
    CHECK(md.array<double>("f32") == std::vector<double>{1.25, 0.0});
    CHECK(md.array<double>("f64") == f64);
    CHECK(md.array<bool>("flags") == std::vector<bool>{true, false, true});
    const auto got = md.array<std::string_view>("strings");
    CHECK(std::vector<std::string>(got.begin(), got.end()) == strings);
    CHECK(md.array<std::int32_t>("none").empty());
  }
}

TEST_CASE("integers convert where the value fits") {
  const Read r = written([](GgufWriter& w) {
    w.set<std::uint64_t>("small", 5);
    w.set<std::uint64_t>("large", 1ull << 40);
    w.set<std::int32_t>("negative", -1);
    w.set("huge", 1e300);
  });
  CHECK(r.md().get<int>("small") == 5);
  CHECK(r.md().get<std::uint8_t>("small") == 5);
  CHECK(r.md().get_or<int>("absent", 7) == 7);
  CHECK(r.md().get_or<int>("small", 7) == 5);
  CHECK(error_of([&] {
          r.md().get<int>("large");
        }).find("key \"large\": value 1099511627776 is outside of -2147483648 to 2147483647") != std::string::npos);
  CHECK(error_of([&] { r.md().get<std::uint32_t>("negative"); }).find("value -1") != std::string::npos);
  CHECK(error_of([&] { r.md().get<float>("huge"); }).find("outside") != std::string::npos);
}

TEST_CASE("wrong types are refused by name") {
  const std::vector<std::uint32_t> list{1, 2, 3};
  const Read r = written([&](GgufWriter& w) {
    w.set<std::uint32_t>("number", 1);
    w.set("text", "1");
    w.set_array<std::uint32_t>("list", list);
  });
  CHECK(error_of([&] { r.md().get<std::string_view>("number"); }).find("has type u32, a string is required") !=
        std::string::npos);
  CHECK(error_of([&] { r.md().get<int>("text"); }).find("has type string, an integer is required") !=
        std::string::npos);
  CHECK(error_of([&] { r.md().get<bool>("number"); }).find("a bool is required") != std::string::npos);
  CHECK(error_of([&] { r.md().get<float>("number"); }).find("a floating-point number is required") !=
        std::string::npos);
  CHECK(error_of([&] { r.md().get<int>("list"); }).find("has type array of u32") != std::string::npos);
  CHECK(error_of([&] { r.md().get_or<int>("text", 1); }).find("an integer is required") != std::string::npos);
  CHECK(error_of([&] { r.md().array<std::int32_t>("list"); }).find("i32 or narrower") !=
        std::string::npos);  // may not fit
  CHECK(error_of([&] { r.md().array<float>("list"); }).find("array of f32") != std::string::npos);
  CHECK(error_of([&] { r.md().array<int>("number"); }).find("has type u32") != std::string::npos);
  CHECK(error_of([&] { r.md().array<std::string_view>("list"); }).find("strings") != std::string::npos);
}

TEST_CASE("one value, or one per layer") {
  const std::vector<std::int32_t> list{1, 2, 3};
  const Read r = written([&](GgufWriter& w) {
    w.set<std::uint64_t>("one", 4);
    w.set_array<std::int32_t>("each", list);
  });
  CHECK(r.md().one_or_each<int>("one", 3) == std::vector<int>{4, 4, 4});
  CHECK(r.md().one_or_each<std::uint32_t>("each", 3) == std::vector<std::uint32_t>{1, 2, 3});
  CHECK(error_of([&] { r.md().one_or_each<int>("each", 2); }).find("array of 3 values") != std::string::npos);
  CHECK(error_of([&] { r.md().one_or_each<float>("each", 3); }).find("array of i32") != std::string::npos);
}

TEST_CASE("errors give the offset of the value, or of the section for a missing key") {
  const Read r = written([](GgufWriter& w) { w.set<std::uint32_t>("a.b", 7); });
  // header 24, key length 8, key 3, type 4: the value is at 39.
  CHECK(error_of([&] { r.md().fail("a.b", "is odd"); }) == "m.gguf: offset 0x27: key \"a.b\": is odd");
  CHECK(error_of([&] { r.md().get<int>("a.c"); }) == "m.gguf: offset 0x18: key \"a.c\": is missing");
  const Read v1 = written([](GgufWriter& w) { w.set<std::uint32_t>("a.b", 7); }, {.version = 1});
  // header 16, key length 4, key 3, type 4
  CHECK(error_of([&] { v1.md().fail("a.b", "is odd"); }) == "m.gguf: offset 0x1b: key \"a.b\": is odd");
  CHECK(error_of([&] { v1.md().get<int>("a.c"); }) == "m.gguf: offset 0x10: key \"a.c\": is missing");
}

TEST_CASE("lookup finds each of many keys") {
  const Read r = written([](GgufWriter& w) {
    for (std::uint32_t i = 0; i < 5000; ++i) w.set("key." + std::to_string(i * 7919 % 5000), i);
  });
  for (std::uint32_t i = 0; i < 5000; ++i)
    CHECK(r.md().get<std::uint32_t>("key." + std::to_string(i * 7919 % 5000)) == i);
  CHECK_FALSE(r.md().has("key.5000"));
  CHECK_FALSE(r.md().has("key"));
  CHECK_FALSE(r.md().has(""));
}

TEST_CASE("an array of more strings than anybody has is refused before memory is taken for them") {
  const TempDir folder;
  const auto path = folder / "m.gguf";
  GgufWriter w;
  const std::vector<std::string> one{"a"};
  w.set_array("last", std::span<const std::string>(one));
  std::vector<std::byte> bytes = w.bytes();
  const std::string key = "last";
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  const std::size_t count_at = std::string_view(begin, bytes.size()).find(key) + key.size() + 2 * sizeof(std::uint32_t);
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 26) + 1;
  std::memcpy(bytes.data() + count_at, &kCount, sizeof kCount);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::resize_file(path, (kCount + 1000) * sizeof(std::uint64_t));  // a hole
  Warnings warnings;
  const std::string message = error_of([&] { GgufFile::open(path, warnings); });
  CHECK(message.find("67108865 strings") != std::string::npos);
  CHECK(message.find("last") != std::string::npos);
}

TEST_CASE("keys of UTF-8 are accepted, control characters are not") {
  const auto opens = [](std::string_view key) {
    GgufWriter w;
    w.set(key, true);
    try {
      GgufReader("m.gguf", w.bytes()).read();
      return true;
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Model);
      return false;
    }
  };
  for (const char* good :
       {"a", "general.name", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "a b"})
    CHECK(opens(good));
  for (const char* bad : {"\n", "a\x7f", "\xc2\x9b", "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
                          "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xff"})
    CHECK_FALSE(opens(bad));
  CHECK(opens(std::string(65535, 'k')));
}

}  // namespace llm::test
