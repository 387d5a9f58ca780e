#include "batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/output_file.h"
#include "batch_state.h"
#include "common/descriptor_io.h"
#include "common/output.h"

namespace llm::app {
namespace {

/// All of it, or false with the reason in errno.
bool read_all(int fd, std::string& text) {
  std::array<char, 1 << 16> chunk;
  for (;;) {
    const ssize_t n = ::pread(fd, chunk.data(), chunk.size(), static_cast<off_t>(text.size()));
    if (n == 0) return true;
    if (n > 0) text.append(chunk.data(), static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) return false;
  }
}

struct Result {
  std::string id;
  RowOutcome outcome;
};

std::optional<Result> parse_result(std::string_view line) {
  const Json result = Json::parse(line, nullptr, false);
  if (!result.is_object() || !result.contains("custom_id") || !result["custom_id"].is_string() ||
      !result.contains("error")) {
    return std::nullopt;
  }
  return Result{result["custom_id"].get<std::string>(),
                result["error"].is_null() ? RowOutcome::Answered : RowOutcome::Failed};
}

/// Of a line that was cut there is the beginning alone.
bool begins_with_result(int fd) {
  constexpr std::string_view kBegin = "{\"id\":\"batch_req_";
  std::array<char, 1 << 16> bytes;
  const ssize_t n = ::pread(fd, bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return text.starts_with(kBegin) || kBegin.starts_with(text) || parse_result(text.substr(0, text.find('\n')));
}

}  // namespace

BatchOutput::BatchOutput(std::string path, BatchStart start) : path_(std::move(path)), start_(start) {
  if (path_.empty() || path_ == "-") {
    fd_ = STDOUT_FILENO;
    return;
  }
  try {
    open();
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

BatchOutput::~BatchOutput() {
  if (made_) ::unlink(link_target(path_).c_str());  // while it is locked
  if (owned_) ::close(fd_);
}

void BatchOutput::fail(std::string_view what) const {
  throw Error(ErrorKind::Io, ErrorParts{.file = path_, .problem = std::string(what) + ": " + std::strerror(errno)});
}

void BatchOutput::open() {
  do {
    if (owned_) ::close(std::exchange(fd_, -1));
    open_file();
    if (!regular_) return;
    lock();
  } while (!has_the_name());
  const off_t size = ::lseek(fd_, 0, SEEK_END);  // now that nobody else writes
  if (start_ == BatchStart::Fresh && size != 0) {
    throw Error(ErrorKind::Usage,
                ErrorParts{.file = path_,
                           .problem = begins_with_result(fd_)
                                          ? "there are results in it: --resume goes on after them, --force begins anew"
                                          : "is there already, and what it begins with is no result of a batch; -o "
                                            "names another file, --force writes over it"});
  }
  end_ = static_cast<std::uint64_t>(size);
  if (start_ == BatchStart::Resume || start_ == BatchStart::RetryFailed) read_known();
}

void BatchOutput::open_file() {
  constexpr int kFlags = O_RDWR | O_APPEND | O_CLOEXEC;
  struct stat there {};
  // Who also reads a pipe never learns that nobody else does any more.
  const bool pipe = ::stat(path_.c_str(), &there) == 0 && S_ISFIFO(there.st_mode);
  do {
    fd_ = ::open(path_.c_str(), pipe ? O_WRONLY | O_CLOEXEC : kFlags);
    made_ = false;
    if (fd_ >= 0 || errno != ENOENT) break;
    fd_ = ::open(link_target(path_).c_str(), kFlags | O_CREAT | O_EXCL, 0666);
    made_ = fd_ >= 0;
  } while (fd_ < 0 && errno == EEXIST);  // another batch was faster
  if (fd_ < 0) fail("cannot open for results");
  owned_ = true;
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("cannot look at");
  regular_ = S_ISREG(status.st_mode);
}

void BatchOutput::lock() {
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) fail("cannot lock");
  const std::optional<int> writer = writer_of(state_path(path_));
  throw Error(ErrorKind::Io, ErrorParts{.file = path_,
                                        .problem = "another batch is writing to it" +
                                                   (writer ? ": process " + std::to_string(*writer) : std::string())});
}

/// Between opening and locking, a batch that ends may have put another file in its place, or removed it.
bool BatchOutput::has_the_name() const {
  struct stat ours {};
  struct stat there {};
  if (::fstat(fd_, &ours) != 0) fail("cannot look at");
  return ::stat(path_.c_str(), &there) == 0 && there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

void BatchOutput::prepare() {
  made_ = false;
  if (!regular_) return;
  if (gaps_) {
    replace();
  } else {
    mend_end();
  }
  end_ = kept_.size();
  kept_ = {};
}

/// What a run left behind: whole lines, and perhaps one that was cut by its end.
void BatchOutput::read_known() {
  std::string text;
  if (!read_all(fd_, text)) fail("cannot read the results in it");
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    ++number;
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    const std::optional<Result> result = parse_result(line);
    const bool last = end == std::string_view::npos;
    rest.remove_prefix(last ? rest.size() : end + 1);
    if (!result) {
      if (last) break;  // cut
      throw Error(ErrorKind::Usage, ErrorParts{.file = path_,
                                               .problem = "line " + std::to_string(number) +
                                                          " is no result of a batch; nothing was changed"});
    }
    const bool dropped = start_ == BatchStart::RetryFailed && result->outcome == RowOutcome::Failed;
    gaps_ = gaps_ || dropped;
    if (dropped) continue;
    known_[result->id] = result->outcome;
    kept_.append(line).push_back('\n');
  }
}

/// Without the line that was cut or all that is to be forgotten, or with the line feed that is missing.
void BatchOutput::mend_end() {
  if (kept_.size() < end_ && ::ftruncate(fd_, static_cast<off_t>(kept_.size())) != 0) fail("cannot shorten it");
  if (kept_.size() > end_) append("");
}

/// Rows that failed leave gaps: the others go to a file that then takes its place.
void BatchOutput::replace() {
  OutputFile file(path_);
  file.write(std::as_bytes(std::span(kept_)));
  const int fd = file.descriptor();
  if (::fcntl(fd, F_SETFL, O_APPEND) != 0 || ::flock(fd, LOCK_EX | LOCK_NB) != 0)
    fail("cannot drop the rows that failed");
  ::close(std::exchange(fd_, file.put_in_place_open()));
}

void BatchOutput::append(std::string_view line) {
  std::string bytes(line);
  bytes += '\n';
  if (!owned_) {
    write_stdout(stdout_is_terminal() ? terminal_safe(bytes) : bytes);
    return;
  }
  if (const int error = write_all(fd_, bytes); error != 0) {
    (void)!::ftruncate(fd_, static_cast<off_t>(end_));  // what was written of the line
    errno = error;
    fail(regular_ ? "cannot write a result (those before it are whole; --resume goes on after them)"
                  : "cannot write a result");
  }
  end_ += bytes.size();
  unsynced_ = true;
}

void BatchOutput::sync_when_due() {
  if (unsynced_ && Clock::now() - synced_ >= std::chrono::seconds(1)) sync();
}

void BatchOutput::sync() {
  if (!owned_) return;
  if (::fdatasync(fd_) != 0 && errno != EINVAL) fail("cannot bring results to the disk");  // EINVAL: a pipe
  unsynced_ = false;
  synced_ = Clock::now();
}

}  // namespace llm::app
