#include "common/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "common/descriptor_io.h"

namespace llm::app {
namespace {

std::string& stdout_name() {
  static std::string name = "stdout";
  return name;
}

}  // namespace

void write_stdout(std::string_view bytes) {
  const int error = write_all(STDOUT_FILENO, bytes);
  if (error == EPIPE) throw BrokenPipe{};
  if (error != 0)
    throw Error(ErrorKind::Io,
                ErrorParts{.file = stdout_name(), .problem = std::string("cannot write: ") + std::strerror(error)});
}

void write_stderr(std::string_view bytes) { (void)write_all(STDERR_FILENO, bytes); }

void redirect_stdout(const std::string& path) {
  if (path.empty() || path == "-") return;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0 || ::dup2(fd, STDOUT_FILENO) < 0) {
    throw Error(ErrorKind::Io,
                ErrorParts{.file = path, .problem = std::string("cannot write: ") + std::strerror(errno)});
  }
  ::close(fd);
  stdout_name() = path;
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool is_same_file(const std::string& a, const std::string& b) {
  const auto is_none = [](const std::string& name) { return name.empty() || name == "-"; };
  if (is_none(a) || is_none(b)) return false;
  std::error_code missing;
  if (std::filesystem::exists(a, missing) && !std::filesystem::is_regular_file(a, missing)) return false;
  if (std::filesystem::equivalent(a, b, missing)) return true;
  return std::filesystem::weakly_canonical(a, missing) == std::filesystem::weakly_canonical(b, missing);
}

}  // namespace llm::app
