// A file that appears under its name only when it is whole: written under a temporary name in the same folder, brought
// to disk, renamed. One that was there keeps its permissions.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace llm {

/// The file that a name means: behind links, also where the last of them leads to nothing yet.
std::filesystem::path link_target(const std::filesystem::path&);

/// What OutputFile calls the file until it is whole. It lies beside the link_target().
std::filesystem::path temporary_name(const std::filesystem::path& final_path);

/// Creates the file of that temporary_name() for writing and reading, with the permissions, and as far as we may the
/// owner, of the file that it is to replace. One that is there was left by a run that was killed and had this process's
/// id, as in containers, and goes. -1: errno says why not.
int open_temporary(const std::filesystem::path& final_path);

/// Whether there is anything of that name. What cannot be looked at is not there: opening it says why.
bool is_there(const std::filesystem::path&);

/// Throws ErrorKind::Io, as an OutputFile would, if none could be put there now. Nothing is made.
void require_writable(const std::filesystem::path& final_path);
/// The same of a file, device or pipe that is to be written in its place.
void require_openable(const std::filesystem::path&);

/// Writes all of it as an OutputFile.
void replace_file(const std::filesystem::path&, std::string_view content);

class OutputFile {
 public:
  /// Creates the temporary file. Throws ErrorKind::Io naming the final path, as all others here.
  explicit OutputFile(const std::filesystem::path& final_path);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes what was not put in place.
  ~OutputFile();

  void write(std::span<const std::byte>);
  /// Brings the data to disk and closes: after this only the rename is left that can fail.
  void close();
  /// Renames; closes before if that was not done. A file of that name is replaced, of a link the one that it leads to.
  void put_in_place();

  const std::filesystem::path& path() const { return final_; }

 private:
  [[noreturn]] void fail(const char* what, int error) const;
  std::filesystem::path final_, temporary_;
  int fd_ = -1;
};

}  // namespace llm
