// Systematic damage to sound files: every prefix, every bit of everything before the data, extreme values in every
// field.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "gguf/reader.h"
#include "malformed.h"
#include "support/catch.h"

namespace llm::test {
namespace {

enum class End { Read, Refused };

/// Reads the bytes as a file; any way to end but these two fails the test. What is read must lie inside the file.
End read(std::span<const std::byte> file) {
  try {
    const GgufContent content = GgufReader("x.gguf", file).read();
    for (const TensorInfo& t : content.tensors)
      if (t.data_offset > file.size() || t.type.bytes() > file.size() - t.data_offset)
        throw std::runtime_error("outside of the file");
    return End::Read;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Model || !e.parts().offset || *e.parts().offset > file.size()) throw;
    return End::Refused;
  }
}

/// Asks for every value as every type: a value or a typed error.
void read_all_values(std::span<const std::byte> file) {
  const auto attempt = [](auto ask) {
    try {
      ask();
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Model) throw;
    }
  };
  GgufContent content;
  attempt([&] { content = GgufReader("x.gguf", file).read(); });
  const Metadata& md = content.metadata;
  for (const Metadata::Entry& e : md.entries()) {
    attempt([&] { md.get<bool>(e.key); });
    attempt([&] { md.get<std::int32_t>(e.key); });
    attempt([&] { md.get<float>(e.key); });
    attempt([&] { md.get<std::string_view>(e.key); });
    attempt([&] { md.array<std::int64_t>(e.key); });
    attempt([&] { md.array<float>(e.key); });
    attempt([&] { md.array<std::string_view>(e.key); });
    attempt([&] { md.one_or_each<std::uint32_t>(e.key, 3); });
  }
}

struct Base {
  const char* name;
  RawGguf (*make)();
};
constexpr std::array<Base, 4> kBases{
    {{"llama", tiny_llama}, {"q4_0", tiny_llama_q4_0}, {"moe", tiny_moe}, {"bpe", tiny_bpe}}};

}  // namespace

TEST_CASE("no prefix of a file is read as a file") {
  const Bytes file = tiny_llama().build();
  std::size_t read_anyway = 0;
  for (std::size_t n = 0; n < file.size(); ++n) read_anyway += read(std::span(file).first(n)) == End::Read;
  CHECK(read_anyway == 0);
  CHECK(read(file) == End::Read);
}

TEST_CASE("prefixes in buffers of their own size") {  // where a sanitizer sees any access past the end
  const Bytes file = tiny_llama().build();
  for (std::size_t n = 0; n < file.size(); n += 1 + (n > 8000 ? 97 : 3)) {
    const Bytes prefix(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n));
    CHECK(read(prefix) == End::Refused);
  }
}

TEST_CASE("every single-bit flip before the data is read or refused") {
  for (const Base& base : kBases) {
    INFO(base.name);
    RawLayout layout;
    Bytes file = base.make().build(&layout);
    std::size_t refused = 0;
    for (std::size_t at = 0; at < layout.data_at; ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        file[at] ^= static_cast<std::byte>(1 << bit);
        refused += read(file) == End::Refused;
        if ((at * 8 + static_cast<std::size_t>(bit)) % 61 == 0) read_all_values(file);
        file[at] ^= static_cast<std::byte>(1 << bit);
      }
    }
    CHECK(refused >
          layout.data_at / 2);  // flips in names and values are fine, those in counts, lengths and types are not
    CHECK(read(file) == End::Read);
  }
}

TEST_CASE("extreme values in every field") {
  for (const Base& base : kBases) {
    INFO(base.name);
    RawLayout layout;
    Bytes file = base.make().build(&layout);
    for (std::size_t at = 0; at + 8 <= layout.data_at; ++at) {
      std::uint64_t right;
      std::memcpy(&right, file.data() + at, 8);
      for (const std::uint64_t v :
           {std::uint64_t{0}, std::uint64_t{1}, (std::uint64_t{1} << 31) - 1, std::uint64_t{1} << 31,
            (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 32, (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 63,
            ~std::uint64_t{63}, ~std::uint64_t{0}, right + 1, right - 1}) {
        patch(file, at, v);
        read(file);
      }
      patch(file, at, right);
    }
    CHECK(read(file) == End::Read);
  }
}

}  // namespace llm::test
