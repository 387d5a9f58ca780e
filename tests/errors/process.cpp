#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>

#include "base/clock.h"

extern char** environ;

namespace llm::test {
namespace {

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(0);
    close(1);
  }
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close(std::size_t end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

pid_t start(const std::filesystem::path& program, const std::vector<std::string>& arguments, const Pipe& out,
            const Pipe& err) {
  std::vector<char*> argv;
  std::string name = program.string();
  argv.push_back(name.data());
  std::vector<std::string> copies = arguments;
  for (std::string& a : copies) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write_end(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, err.write_end(), 2);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, name.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::system_error(error, std::generic_category(), name);
  return pid;
}

/// Reads both pipes until they are closed; false if the time is up before.
bool gather(Pipe& out, Pipe& err, ProcessResult& result, Clock::time_point deadline) {
  std::array<pollfd, 2> waiting{{{out.read_end(), POLLIN, 0}, {err.read_end(), POLLIN, 0}}};
  const std::array<std::string*, 2> into{&result.out, &result.err};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    if (::poll(waiting.data(), waiting.size(), static_cast<int>(left)) < 0 && errno != EINTR) return false;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t n = ::read(waiting[i].fd, buffer.data(), buffer.size());
      if (n > 0)
        into[i]->append(buffer.data(), static_cast<std::size_t>(n));
      else if (n == 0 || errno != EINTR)
        waiting[i].fd = -1;
    }
  }
  return true;
}

}  // namespace

ProcessResult run_process(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                          std::chrono::milliseconds limit) {
  ProcessResult result;
  Pipe out, err;
  const auto deadline = Clock::now() + limit;
  const pid_t pid = start(program, arguments, out, err);
  out.close(1);
  err.close(1);
  if (!gather(out, err, result, deadline)) {
    result.timed_out = true;
    ::kill(pid, SIGKILL);
  }
  int status = 0;
  rusage usage{};
  while (::wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.peak_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  return result;
}

}  // namespace llm::test
