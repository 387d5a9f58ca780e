// Mapping, and refusing what is not a regular file without waiting for it.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace llm;
namespace fs = std::filesystem;

namespace {

/// The problem that open() reports, after checking that it is a model error naming the path.
std::string refusal_to_map(const fs::path& path) {
  try {
    MappedFile::open(path);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Model);
    CHECK(e.parts().file == path.string());
    return e.parts().problem;
  }
  return "opened";
}

std::string_view text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

long resident_file_pages() {
  std::ifstream in("/proc/self/statm");
  long total = 0, resident = 0, shared = 0;
  in >> total >> resident >> shared;
  return shared;
}

}  // namespace

TEST_CASE("a regular file is mapped") {
  const test::TempDir dir;
  const std::string content = "0123456789" + std::string(10'000, 'x');
  const MappedFile file = MappedFile::open(dir.write("model", content));
  CHECK(text(file) == content);
  CHECK(file.path() == dir / "model");
  CHECK_NOTHROW(file.check_unchanged());

  fs::create_symlink(dir / "model", dir / "link");
  CHECK(text(MappedFile::open(dir / "link")) == content);
}

TEST_CASE("a file that was read into memory does not depend on the disk any more") {
  const test::TempDir dir;
  const std::string content = "0123456789" + std::string(100'000, 'x') + "end";
  MappedFile file = MappedFile::open(dir.write("model", content));
  const std::byte* const place = file.bytes().data();
  std::size_t read = 0;
  file.read_into_memory([&](std::size_t n) { read += n; });
  CHECK(read == content.size());
  CHECK(file.bytes().data() == place);
  std::ofstream(dir / "model") << "other";
  CHECK(text(file) == content);
  CHECK_NOTHROW(file.check_unchanged());
  const MappedFile moved = std::move(file);
  CHECK_NOTHROW(moved.check_unchanged());
}

TEST_CASE("a file that is cut while it is read into memory is refused") {
  const test::TempDir dir;
  MappedFile file = MappedFile::open(dir.write("model", std::string(10'000, 'x')));
  fs::resize_file(dir / "model", 100);
  CHECK_THROWS_AS(file.read_into_memory([](std::size_t) {}), Error);
}

TEST_CASE("parts of a file are read without mapping their pages") {
  const test::TempDir dir;
  std::string content(4 << 20, 'x');
  for (std::size_t i = 0; i < content.size(); i += 97) content[i] = static_cast<char>('a' + i % 23);
  MappedFile file = MappedFile::open(dir.write("model", content));
  std::vector<std::byte> part(content.size() - 5000);
  const long before = resident_file_pages();
  file.read(3000, part);
  CHECK(resident_file_pages() - before < 100);
  CHECK(std::memcmp(part.data(), content.data() + 3000, part.size()) == 0);

  fs::resize_file(dir / "model", 100'000);
  try {
    file.read(3000, part);
    FAIL("read what is not there");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Model);
    CHECK(e.parts().file == (dir / "model").string());
    CHECK(e.parts().problem.starts_with("was cut while it was read"));
  }
}

TEST_CASE("parts of a file that was read into memory are copied from there") {
  const test::TempDir dir;
  MappedFile file = MappedFile::open(dir.write("model", "0123456789"));
  file.read_into_memory([](std::size_t) {});
  std::ofstream(dir / "model") << "other";
  std::vector<std::byte> part(4);
  file.read(3, part);
  CHECK(std::memcmp(part.data(), "3456", 4) == 0);
}

TEST_CASE("an empty file maps to nothing") {
  const test::TempDir dir;
  const MappedFile file = MappedFile::open(dir.write("empty", ""));
  CHECK(file.bytes().empty());
  CHECK_NOTHROW(file.check_unchanged());
  CHECK_NOTHROW(file.release(file.bytes()));
}

TEST_CASE("a mapped file can be moved") {
  const test::TempDir dir;
  MappedFile a = MappedFile::open(dir.write("a", "aaaa"));
  MappedFile b = std::move(a);
  CHECK(text(b) == "aaaa");
  CHECK(a.bytes().empty());
  b = MappedFile::open(dir.write("b", "bb"));
  CHECK(text(b) == "bb");
  CHECK_NOTHROW(b.check_unchanged());
}

TEST_CASE("what is not a regular file is refused") {
  const test::TempDir dir;
  CHECK(refusal_to_map(dir / "absent") == "no such file");
  CHECK(refusal_to_map(dir.path()) == "is a directory, a regular file is required");
  CHECK(refusal_to_map("/dev/zero") == "is a character device, a regular file is required");

  // Nobody writes to it: a blocking open would wait for ever.
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(refusal_to_map(dir / "fifo") == "is a pipe, a regular file is required");

  fs::create_symlink(dir / "absent", dir / "dangling");
  CHECK(refusal_to_map(dir / "dangling") == "is a symbolic link to a file that does not exist");
  fs::create_symlink(dir / "loop", dir / "loop");
  CHECK(refusal_to_map(dir / "loop").starts_with("cannot be opened: "));
  CHECK(refusal_to_map(dir.write("plain", "x") / "below").starts_with("cannot be opened: "));

  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(fd >= 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = (dir / "socket").string();
  REQUIRE(name.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK(refusal_to_map(name) == "is a socket, a regular file is required");
  ::close(fd);
}

TEST_CASE("an unreadable file is refused") {
  if (::geteuid() == 0) return;  // may read everything
  const test::TempDir dir;
  const fs::path file = dir.write("secret", "x");
  fs::permissions(file, fs::perms::none);
  CHECK(refusal_to_map(file) == "cannot be opened: Permission denied");
}

TEST_CASE("a change on disk is noticed") {
  const test::TempDir dir;
  const fs::path path = dir.write("model", std::string(1000, 'a'));
  const auto problem = [](const MappedFile& file) {
    try {
      file.check_unchanged();
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::Model);
      return e.parts().problem;
    }
    return std::string("unchanged");
  };

  const MappedFile file = MappedFile::open(path);
  CHECK(problem(file) == "unchanged");
  fs::resize_file(path, 10);
  CHECK(problem(file) == "was changed while in use: it had 1000 bytes and now has 10");

  const MappedFile same_size = MappedFile::open(path);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  CHECK(problem(same_size) == "was written to while in use");

  // Replaced under the same name: the mapping keeps the old file, which did not change.
  const MappedFile replaced = MappedFile::open(path);
  fs::rename(dir.write("other", "zz"), path);
  CHECK(problem(replaced) == "unchanged");
}

TEST_CASE("released pages leave memory and come back unchanged") {
  const test::TempDir dir;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t pages = 512;
  std::string content(pages * page, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / page);
  const MappedFile file = MappedFile::open(dir.write("model", content));
  REQUIRE(text(file) == content);  // reads every page

  const long before = resident_file_pages();
  file.release(file.bytes().subspan(1, 2 * page - 2));  // no whole page inside
  CHECK(text(file) == content);
  file.release(file.bytes().subspan(1));
  const long after = resident_file_pages();
  CHECK(before - after >= static_cast<long>(pages) - 16);
  CHECK(text(file) == content);

  const std::byte elsewhere{};
  CHECK_NOTHROW(file.release({&elsewhere, 1}));
}

TEST_CASE("an address tells whose mapping it is in") {
  const test::TempDir dir;
  std::optional<MappedFile> gone = MappedFile::open(dir.write("gone", "0123456789"));
  gone.reset();
  const MappedFile first = MappedFile::open(dir.write("first", "0123456789"));
  MappedFile second = MappedFile::open(dir.write("a\nsecond", "0123456789"));
  const MappedFile moved = std::move(second);
  const char* const name = mapped_file_at(moved.bytes().data() + 9);  // after this the program ends: only once
  REQUIRE(name != nullptr);
  CHECK(std::string(name).ends_with("a\\x0asecond"));
}
