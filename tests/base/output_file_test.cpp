// Files that appear under their names only when they are whole.
#include "base/output_file.h"

#include <unistd.h>

#include <utility>

#include "support/catch.h"
#include "support/temp_dir.h"
#include "support/text.h"

using namespace llm;
using namespace llm::test;

namespace {

void write_text(OutputFile& file, std::string_view text) { file.write(std::as_bytes(std::span(text))); }

}  // namespace

TEST_CASE("a file is there once it is put in place, and nothing is left of one that was not") {
  const TempDir folder;
  const auto path = folder / "out";
  {
    OutputFile file(path);
    write_text(file, "half");
    CHECK_FALSE(is_there(path));
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  OutputFile file(path);
  write_text(file, "whole");
  file.put_in_place();
  CHECK(std::filesystem::file_size(path) == 5);
  CHECK(folder.entries() == 1);
}

TEST_CASE("files of one name that are written at the same time have nothing in common") {
  const TempDir folder;
  const auto path = folder / "out";
  OutputFile first(path);
  write_text(first, "the first");
  {
    OutputFile second(path);
    write_text(second, "half of");
    first.put_in_place();
  }
  CHECK(read_file(path) == "the first");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a program that ends without its files leaves nothing that is not whole") {
  const TempDir folder;
  {
    OutputFile whole(folder / "whole"), half(folder / "half"), moved(folder / "moved");
    const OutputFile to = std::move(moved);
    write_text(whole, "all of it");
    whole.put_in_place();
    CHECK(folder.entries() == 3);
    OutputFile::remove_unfinished();
    CHECK(folder.entries() == 1);
    OutputFile later(folder / "later");  // while others of these are there
    later.put_in_place();
  }
  CHECK(folder.entries() == 2);
  CHECK(read_file(folder / "whole") == "all of it");
}

TEST_CASE("a file that is put in place open can be written on") {
  const TempDir folder;
  OutputFile file(folder / "out");
  write_text(file, "begun");
  const int fd = file.put_in_place_open();
  CHECK(folder.entries() == 1);
  CHECK(::write(fd, ".", 1) == 1);
  ::close(fd);
  CHECK(read_file(folder / "out") == "begun.");
}
