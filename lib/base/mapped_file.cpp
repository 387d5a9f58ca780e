// Opening, refusing and mapping files.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace llm {

struct FileMapping {
  std::span<const std::byte> bytes;
  std::string name;
};

namespace {

constinit HandlerList<FileMapping> g_mappings;
constexpr std::size_t kMaxName = 4096;  // PATH_MAX: a path is shown whole

[[noreturn]] void refuse(const std::filesystem::path& path, std::string problem, ErrorKind kind = ErrorKind::Model) {
  throw Error(kind, ErrorParts{.file = path.string(), .problem = std::move(problem)});
}

std::string system_text(int error) { return std::generic_category().message(error); }

/// Why open() or stat() failed, in words.
[[noreturn]] void refuse_unreachable(const std::filesystem::path& path, int error) {
  struct stat link {};
  if (error == ENOENT && ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    refuse(path, "is a symbolic link to a file that does not exist");
  }
  if (error == ENOENT) refuse(path, "no such file");
  refuse(path, "cannot be opened: " + system_text(error));
}

const char* special_kind(mode_t mode) {
  if (S_ISREG(mode)) return nullptr;
  return S_ISDIR(mode)    ? "a directory"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
         : S_ISCHR(mode)  ? "a character device"
         : S_ISBLK(mode)  ? "a block device"
                          : "a special file";
}

void require_regular(const std::filesystem::path& path, const struct stat& st) {
  if (const char* what = special_kind(st.st_mode))
    refuse(path, std::string("is ") + what + ", a regular file is required");
}

long long modified_ns(const struct stat& st) {
  return static_cast<long long>(st.st_mtim.tv_sec) * 1'000'000'000 + st.st_mtim.tv_nsec;
}

void unmap(std::span<const std::byte> bytes) noexcept {
  if (!bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
}

/// Pages that are given back unless keep() was called.
class Anonymous {
 public:
  explicit Anonymous(std::size_t bytes) : bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ != MAP_FAILED) ::madvise(data_, bytes, MADV_HUGEPAGE);  // where the system has them
  }
  Anonymous(const Anonymous&) = delete;
  ~Anonymous() {
    if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
  }
  bool there() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  /// In the place of what is at `to`, read-only.
  bool move_to(const std::byte* to) {
    if (::mprotect(data_, bytes_, PROT_READ) != 0) return false;
    if (::mremap(data_, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, const_cast<std::byte*>(to)) == MAP_FAILED)
      return false;
    data_ = MAP_FAILED;
    return true;
  }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace

const char* special_kind(const std::filesystem::path& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? special_kind(st.st_mode) : nullptr;
}

const char* mapped_file_at(const void* address) noexcept {
  const char* found = nullptr;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  g_mappings.take_all([&](const FileMapping& mapping) {
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping.bytes.data());
    if (at >= begin && at - begin < mapping.bytes.size()) found = mapping.name.c_str();
  });
  return found;
}

MappedFile MappedFile::open(const std::filesystem::path& path) {
  struct stat st {};
  // Before open(), which alone can have effects on a device; and again on the descriptor, which cannot be swapped any
  // more.
  if (::stat(path.c_str(), &st) != 0) refuse_unreachable(path, errno);
  require_regular(path, st);

  MappedFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file.fd_ < 0) refuse_unreachable(path, errno);
  if (::fstat(file.fd_, &st) != 0) refuse_unreachable(path, errno);
  require_regular(path, st);
  file.modified_ns_ = modified_ns(st);
  if (st.st_size == 0) return file;
  if (static_cast<std::uintmax_t>(st.st_size) > std::numeric_limits<std::size_t>::max() / 2) {
    refuse(path, "is too large to map", ErrorKind::Memory);
  }

  const auto size = static_cast<std::size_t>(st.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd_, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    const ErrorKind kind = error == ENOMEM ? ErrorKind::Memory : ErrorKind::Model;
    refuse(path, "cannot be mapped (" + std::to_string(size) + " bytes): " + system_text(error), kind);
  }
  // Advice only. Where the file system keeps a file in large pages, reading all of it takes a page walk per 2 MiB.
  ::madvise(data, size, MADV_HUGEPAGE);
  file.bytes_ = {static_cast<const std::byte*>(data), size};
  file.mapping_ = g_mappings.add({file.bytes_, escaped(path.string(), kMaxName)});
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      mapping_(std::move(other.mapping_)),
      fd_(std::exchange(other.fd_, -1)),
      modified_ns_(other.modified_ns_),
      in_memory_(other.in_memory_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(fd_, other.fd_);
  std::swap(modified_ns_, other.modified_ns_);
  std::swap(in_memory_, other.in_memory_);
  return *this;
}

MappedFile::~MappedFile() {
  mapping_.reset();
  unmap(bytes_);
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::read_into_memory(const std::function<void(std::size_t)>& progress) {
  if (bytes_.empty() || in_memory_) return;
  constexpr std::size_t kPiece = std::size_t{32} << 20;
  Anonymous memory(bytes_.size());
  if (!memory.there()) refuse(path_, "memory for it: " + system_text(errno), ErrorKind::Memory);
  for (std::size_t at = 0; at < bytes_.size();) {
    const std::size_t n = read_some(at, {memory.data() + at, std::min(kPiece, bytes_.size() - at)});
    at += n;
    progress(n);
  }
  check_unchanged();
  if (!memory.move_to(bytes_.data())) refuse(path_, "memory for it: " + system_text(errno), ErrorKind::Memory);
  in_memory_ = true;
}

void MappedFile::read(std::size_t offset, std::span<std::byte> dst) const {
  const std::span<const std::byte> wanted = bytes_.subspan(offset, dst.size());
  if (in_memory_) {
    std::copy(wanted.begin(), wanted.end(), dst.begin());
    return;
  }
  while (!dst.empty()) {
    const std::size_t n = read_some(offset, dst);
    offset += n;
    dst = dst.subspan(n);
  }
}

/// At least one byte.
std::size_t MappedFile::read_some(std::size_t offset, std::span<std::byte> dst) const {
  for (;;) {
    const ssize_t n = ::pread(fd_, dst.data(), dst.size(), static_cast<off_t>(offset));
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) refuse(path_, "was cut while it was read: it had " + std::to_string(bytes_.size()) + " bytes");
    if (errno != EINTR) refuse(path_, "cannot be read: " + system_text(errno));
  }
}

void MappedFile::release(std::span<const std::byte> range) const noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = [](const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const std::uintptr_t mapped_begin = address(bytes_.data());
  const std::uintptr_t mapped_end = mapped_begin + bytes_.size();
  const std::uintptr_t range_begin = address(range.data());
  const std::uintptr_t range_end = range_begin + range.size();
  if (bytes_.empty() || range_begin < mapped_begin || range_end > mapped_end) return;
  const std::uintptr_t begin = (range_begin + page - 1) / page * page;
  const std::uintptr_t end = range_end / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void MappedFile::check_unchanged() const {
  if (in_memory_) return;
  struct stat st {};
  if (::fstat(fd_, &st) != 0) refuse_unreachable(path_, errno);
  if (static_cast<std::uintmax_t>(st.st_size) != bytes_.size()) {
    refuse(path_, "was changed while in use: it had " + std::to_string(bytes_.size()) + " bytes and now has " +
                      std::to_string(st.st_size));
  }
  if (modified_ns(st) != modified_ns_) refuse(path_, "was written to while in use");
}

}  // namespace llm
