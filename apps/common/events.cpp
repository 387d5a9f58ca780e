#include "common/events.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "common/descriptor_io.h"
#include "common/message_codes.h"
#include "common/messages.h"
#include "common/numbers.h"

namespace llm::app {
namespace {

constexpr int kNone = -1;
constexpr std::string_view kDescriptor = "fd:";
constexpr auto kPause = std::chrono::milliseconds(500);

struct Stream {
  int fd = kNone;
  Clock::time_point start = Clock::now();
};
Stream& stream() {
  static Stream s;
  return s;
}

int open_stream(const std::string& where) {
  if (where.starts_with(kDescriptor)) {
    const auto fd = static_cast<int>(parse_integer("--events", where.substr(kDescriptor.size()), 0, kMaxInt32));
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
      throw Error(ErrorKind::Usage, "option --events: descriptor " + std::to_string(fd) + " is not open for writing");
    }
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }
  const int fd = ::open(where.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd >= 0) return fd;
  throw Error(ErrorKind::Io,
              ErrorParts{.file = where, .problem = std::string("cannot write: ") + std::strerror(errno)});
}

}  // namespace

void open_events(const std::string& where) { stream().fd = open_stream(where); }

bool events_wanted() { return stream().fd != kNone; }

void emit_event(std::string_view event, EventFields fields) {
  if (!events_wanted()) return;
  EventFields json{{"event", event}, {"t", seconds_since(stream().start)}};
  json.update(fields);
  const std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (const int error = write_all(stream().fd, line); error != 0) {
    stream().fd = kNone;  // before the note: it must not come here again
    note(std::string("events end here: ") + std::strerror(error));
  }
}

void emit_error(const Error& error) {
  emit_event(
      "error",
      {{"code", static_cast<int>(error.kind())}, {"id", error_code(error.kind()).code}, {"message", error.what()}});
}

bool EventPace::due(bool is_last) {
  const Clock::time_point now = Clock::now();
  if (!is_last && last_ != Clock::time_point{} && now - last_ < kPause) return false;
  last_ = now;
  return true;
}

}  // namespace llm::app
