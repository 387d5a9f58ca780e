#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace llm {
namespace {

constexpr mode_t kPermissions = 0777;
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;  // Linux writes no more than 2 GiB at once

constinit HandlerList<std::string> g_unfinished;

std::filesystem::path drawn_name(const std::filesystem::path& final_path) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";
  constexpr int kLength = 8;
  std::random_device random;
  std::string suffix = ".tmp";
  for (int i = 0; i < kLength; ++i) suffix += kLetters[random() % kLetters.size()];
  return link_target(final_path) += suffix;
}

}  // namespace

std::filesystem::path link_target(const std::filesystem::path& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::filesystem::path file = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, error); ++i) {
    const std::filesystem::path next = std::filesystem::read_symlink(file, error);
    if (error) return path;
    file = next.is_absolute() ? next : file.parent_path() / next;
  }
  return file;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::exists(path, unknown);
}

void require_writable(const std::filesystem::path& final_path) {
  const std::filesystem::path parent = link_target(final_path).parent_path(), folder = parent.empty() ? "." : parent;
  std::error_code unknown;
  int error = 0;
  if (std::filesystem::is_directory(final_path, unknown)) {
    error = EISDIR;
  } else if (is_there(folder) && !std::filesystem::is_directory(folder, unknown)) {
    error = ENOTDIR;
  } else if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    error = errno;
  }
  if (error == 0) return;
  throw Error(ErrorKind::Io, ErrorParts{.file = final_path.string(),
                                        .problem = "cannot be created: " + std::generic_category().message(error)});
}

void require_openable(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!is_there(path) || std::filesystem::is_directory(path, unknown)) return require_writable(path);
  if (::access(path.c_str(), W_OK) == 0) return;
  throw Error(ErrorKind::Io, ErrorParts{.file = path.string(),
                                        .problem = "cannot be written: " + std::generic_category().message(errno)});
}

void replace_file(const std::filesystem::path& path, std::string_view content) {
  OutputFile out(path);
  out.write(std::as_bytes(std::span(content)));
  out.put_in_place();
}

OutputFile::OutputFile(const std::filesystem::path& final_path) : final_(final_path) {
  std::error_code unknown;
  const auto there = std::filesystem::status(final_path, unknown);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    fail("cannot be replaced", std::filesystem::is_directory(there) ? EISDIR : EINVAL);
  fd_ = create();
  if (fd_ < 0) fail("cannot be created", errno);
}

/// -1: errno says why not.
int OutputFile::create() {
  struct stat there {};
  const bool replaces = ::stat(final_.c_str(), &there) == 0;
  const mode_t mode = replaces ? there.st_mode & kPermissions : 0666;
  int fd = -1;
  do {
    temporary_ = drawn_name(final_);
    unfinished_ = g_unfinished.add(temporary_.string());  // before it is there: a signal may come between
    fd = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EEXIST);
  if (fd < 0 || !replaces) return fd;
  (void)!::fchown(fd, there.st_uid, there.st_gid);
  if (::fchmod(fd, mode) == 0) return fd;  // also what the umask took
  const int error = errno;
  ::close(fd);
  ::unlink(temporary_.c_str());
  errno = error;
  return -1;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : final_(std::move(other.final_)),
      temporary_(std::exchange(other.temporary_, {})),
      unfinished_(std::move(other.unfinished_)),
      fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::remove_unfinished() noexcept {
  g_unfinished.take_all([](const std::string& name) { ::unlink(name.c_str()); });
}

void OutputFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd_, data.data(), std::min(data.size(), kLargestWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot be written", errno);
    data = data.subspan(static_cast<std::size_t>(n));
  }
}

void OutputFile::close() {
  if (fd_ < 0) return;
  sync();
  if (::close(std::exchange(fd_, -1)) != 0) fail("cannot be written", errno);
}

void OutputFile::put_in_place() {
  close();
  rename();
}

int OutputFile::put_in_place_open() {
  sync();
  rename();
  return std::exchange(fd_, -1);
}

void OutputFile::sync() const {
  if (::fsync(fd_) != 0) fail("cannot be written", errno);
}

void OutputFile::rename() {
  if (::rename(temporary_.c_str(), link_target(final_).c_str()) != 0) fail("cannot be put in place", errno);
  temporary_.clear();
  unfinished_.reset();
}

void OutputFile::fail(const char* what, int error) const {
  throw Error(ErrorKind::Io, ErrorParts{.file = final_.string(),
                                        .problem = std::string(what) + ": " + std::generic_category().message(error)});
}

}  // namespace llm
