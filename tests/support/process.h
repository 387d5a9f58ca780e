// Runs a program as a process of its own: arguments, environment, the three streams, a signal, a time limit.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

extern char** environ;

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define LLM_TEST_LIMITS_FILES_OF_THE_SANITIZER  // it maps a file of its own, which a small limit cuts
#endif
#endif

namespace llm::test {

struct Command {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< set beside what the test itself has
  std::string input_file = "/dev/null";                               ///< stdin
  std::string output_file = {};                                       ///< stdout; empty: captured; "-": closed
  std::size_t read_at_most = static_cast<std::size_t>(-1);            ///< bytes of stdout, then the pipe is closed
  int signal = 0;                                                     ///< sent when the first byte of stdout has come
  std::chrono::seconds limit{60};
};

inline std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

struct Outcome {
  int code = -1;                 ///< exit code; 128 + signal if one ended it
  std::string out;               ///< stdout
  std::string err;               ///< stderr
  std::uint64_t peak_bytes = 0;  ///< most memory that it had at once
};

class ChildStreams {
 public:
  ChildStreams() {
    if (::pipe2(out_.data(), O_CLOEXEC) != 0 || ::pipe2(err_.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
  }
  ChildStreams(const ChildStreams&) = delete;
  ChildStreams& operator=(const ChildStreams&) = delete;
  ~ChildStreams() {
    for (int* fd : {&out_[0], &out_[1], &err_[0], &err_[1]}) close(*fd);
  }

  void connect(posix_spawn_file_actions_t& actions, const Command& c) const {
    ::posix_spawn_file_actions_addopen(&actions, 0, c.input_file.c_str(), O_RDONLY, 0);
    if (c.output_file.empty()) {
      ::posix_spawn_file_actions_adddup2(&actions, out_[1], 1);
    } else if (c.output_file == "-") {
      ::posix_spawn_file_actions_addclose(&actions, 1);
    } else {
      ::posix_spawn_file_actions_addopen(&actions, 1, c.output_file.c_str(), O_WRONLY, 0);
    }
    ::posix_spawn_file_actions_adddup2(&actions, err_[1], 2);
  }
  void close_childs_ends() {
    close(out_[1]);
    close(err_[1]);
  }

  /// Reads until both streams end; false if the time is up before.
  bool gather(pid_t pid, const Command& c, Outcome& outcome) {
    const auto deadline = std::chrono::steady_clock::now() + c.limit;
    bool signalled = c.signal == 0;
    while (out_[0] >= 0 || err_[0] >= 0) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      std::array<pollfd, 2> waiting{{{out_[0], POLLIN, 0}, {err_[0], POLLIN, 0}}};
      if (::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) <= 0) continue;
      if (waiting[0].revents != 0) read(out_[0], outcome.out);
      if (waiting[1].revents != 0) read(err_[0], outcome.err);
      if (!signalled && !outcome.out.empty()) {
        ::kill(pid, c.signal);
        signalled = true;
      }
      if (outcome.out.size() >= c.read_at_most) close(out_[0]);
    }
    return true;
  }

 private:
  static void close(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  static void read(int& fd, std::string& into) {
    std::array<char, 4096> buffer;
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) into.append(buffer.data(), static_cast<std::size_t>(n));
    if (n == 0) close(fd);
  }
  std::array<int, 2> out_{-1, -1}, err_{-1, -1};
};

/// Throws if the program cannot be started or outlives its limit (it is killed then).
inline Outcome run(const Command& c) {
  std::vector<std::string> words{c.program.string()};
  words.insert(words.end(), c.arguments.begin(), c.arguments.end());
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  std::vector<std::string> settings;
  for (const auto& [name, value] : c.environment) settings.push_back(name + "=" + value);
  std::vector<char*> env;
  for (std::string& s : settings) env.push_back(s.data());  // the first of two settings of a name counts
  for (char** e = environ; *e != nullptr; ++e) env.push_back(*e);
  env.push_back(nullptr);

  ChildStreams streams;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  streams.connect(actions, c);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), env.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::system_error(error, std::generic_category(), words[0]);
  streams.close_childs_ends();
  Outcome outcome;
  const bool in_time = streams.gather(pid, c, outcome);
  if (!in_time) ::kill(pid, SIGKILL);
  int status = 0;
  rusage usage{};
  while (::wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  if (!in_time) throw std::runtime_error(words[0] + " did not end in time; stderr: " + outcome.err);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.peak_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  return outcome;
}

}  // namespace llm::test
