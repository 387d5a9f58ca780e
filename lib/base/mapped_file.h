// A regular file mapped read-only, or read into memory. Anything else (directory, FIFO, device, socket) is refused
// before it is read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

#include "base/handler_list.h"

namespace llm {

/// "a pipe": what a file is that is there and is no regular one; nullptr for all others.
const char* special_kind(const std::filesystem::path&);

/// The file, as messages name it, that is mapped at this address; nullptr: none. Only for the handler of a signal after
/// which the program ends.
const char* mapped_file_at(const void* address) noexcept;

struct FileMapping;

class MappedFile {
 public:
  /// Throws ErrorKind::Model naming the path: missing, unreadable, not a regular file. An empty file maps to an empty
  /// span.
  static MappedFile open(const std::filesystem::path& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  /// The file's bytes in memory of the process's own from now on, in the same place: what happens to the file on disk
  /// does not matter any more. `progress` gets the bytes read each time. Throws ErrorKind::Memory where the system has
  /// none, ErrorKind::Model where the file cannot be read or was cut.
  void read_into_memory(const std::function<void(std::size_t)>& progress);
  /// Copies the bytes that begin at `offset`, which are in the file, without mapping their pages. Throws
  /// ErrorKind::Model where the file cannot be read or was cut. Several threads may.
  void read(std::size_t offset, std::span<std::byte> dst) const;
  /// The caller keeps its own copy of this range: its pages may leave memory.
  void release(std::span<const std::byte> range) const noexcept;
  /// Throws ErrorKind::Model if the file on disk, and with it the mapping, was changed or cut since it was opened.
  void check_unchanged() const;

 private:
  MappedFile() = default;
  std::size_t read_some(std::size_t offset, std::span<std::byte> dst) const;
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  HandlerList<FileMapping>::Entry mapping_;
  int fd_ = -1;
  long long modified_ns_ = 0;
  bool in_memory_ = false;
};

}  // namespace llm
