// A file that appears under its name only when it is whole: written under a temporary name in the same folder, brought
// to disk, renamed. One that was there keeps its permissions.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/handler_list.h"

namespace llm {

/// The file that a name means: behind links, also where the last of them leads to nothing yet.
std::filesystem::path link_target(const std::filesystem::path&);

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
  /// Creates the temporary file beside the link_target(), with the permissions, and as far as we may the owner, of the
  /// file that it is to replace. Its name is drawn, so that it is nobody else's: processes of two containers that share
  /// a folder may have one id. Throws ErrorKind::Io naming the final path, as all others here.
  explicit OutputFile(const std::filesystem::path& final_path);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  /// Removes what was not put in place.
  ~OutputFile();
  /// The same of all there are: for a program that ends without them, also in the handler of a signal.
  static void remove_unfinished() noexcept;

  void write(std::span<const std::byte>);
  /// Brings the data to disk and closes: after this only the rename is left that can fail.
  void close();
  /// Renames; closes before if that was not done. A file of that name is replaced, of a link the one that it leads to.
  void put_in_place();
  /// The same, but the file, open for reading and writing, is the caller's from now on.
  int put_in_place_open();

  int descriptor() const { return fd_; }  ///< until it is closed
  const std::filesystem::path& path() const { return final_; }

 private:
  int create();
  void sync() const;
  void rename();
  [[noreturn]] void fail(const char* what, int error) const;
  std::filesystem::path final_, temporary_;
  HandlerList<std::string>::Entry unfinished_;
  int fd_ = -1;
};

}  // namespace llm
