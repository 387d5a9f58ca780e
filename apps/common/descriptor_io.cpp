#include "common/descriptor_io.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace llm::app {
namespace {

/// Whether what failed may be tried again: a signal came, or the descriptor was not ready, and now is.
bool may_try_again(int fd, short wanted) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  pollfd ready{fd, wanted, 0};
  (void)::poll(&ready, 1, -1);
  return true;
}

}  // namespace

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (!may_try_again(fd, POLLOUT)) {
      return errno;
    }
  }
  return 0;
}

bool wait_for_input(int fd, const std::atomic<bool>& stop) {
  while (!stop.load()) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, kSignalDelayMs) > 0) return true;
  }
  return false;
}

ssize_t read_some(int fd, std::span<char> to) {
  for (;;) {
    const ssize_t n = ::read(fd, to.data(), to.size());
    if (n >= 0 || !may_try_again(fd, POLLIN)) return n;
  }
}

}  // namespace llm::app
