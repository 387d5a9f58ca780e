// Files that appear under their names only when they are whole.
#include "base/output_file.h"

#include "support/catch.h"
#include "support/temp_dir.h"

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
  CHECK_FALSE(is_there(temporary_name(path)));
}

TEST_CASE("what a killed run with our process id left behind is no obstacle") {
  const TempDir folder;
  const auto path = folder / "out";
  folder.write(temporary_name(path).filename().string(), "left behind, and longer than what comes now");
  OutputFile file(path);
  write_text(file, "new");
  file.put_in_place();
  CHECK(std::filesystem::file_size(path) == 3);
}
